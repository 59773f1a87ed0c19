"""The shapes that a finished model has when it runs, for what is told of its costs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from autoselect.errors import ModelError, PreparationError, TrialError, UsageError, WorkerDied
from autoselect.isolation.pool import open_pool
from autoselect.sources import shapes
from autoselect.sources.tflite_files import free_inputs
from autoselect.sources.wishes import FreeInput, FreeSizes, Shapes, sizes_of
from autoselect.tflite import flatbuffer as fb


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A model with the shapes that a run of it showed.

    Attributes:
        content: Bytes of the model; its ops are those of the file, unchanged.
        notes: Sentences that say which shapes stay unknown, and why.
    """

    content: bytes
    notes: tuple[str, ...] = ()


def in_true_shapes(content: bytes, wished: Shapes = MappingProxyType({}), *, is_one_of_several: bool = False) -> Sized:
    """Fix the sizes that a model leaves free, and run it in a worker to see what shapes its other tensors have.

    Converters write placeholders for shapes that a model computes while it runs. Costs by placeholders would be far too
    low.

    Args:
        content: Bytes of a ``.tflite``, quantized or not.
        wished: Sizes of inputs, by key or tensor name. Free sizes of an input that it does not name are 1.
        is_one_of_several: Whether the caller has the same sizes for several models. Then those that do not fit this
            model are ignored.

    Returns:
        The model; in the shapes of its file if LiteRT cannot run it and no sizes are wished.

    Raises:
        ModelError: If ``content`` is no whole TFLite file, or LiteRT cannot run it in the sizes that are wished.
        UsageError: If a size is of no input, or does not fit its input.
    """
    model = fb.parse(content)
    places = fb.indices(model.subgraphs[0].inputs)
    if not places or (not wished and shapes.is_settled(model)):
        return Sized(content=content)
    notes = list[str]()
    try:
        inputs = free_inputs(model)
    except ModelError as exc:  # Of a type that no sample has.
        return Sized(content=content, notes=(_by_the_file(exc),))
    if is_one_of_several:
        wished = {name: shape for name, shape in wished.items() if _fits(inputs, name, shape)}
    try:
        sizes = sizes_of(inputs, tuple(wished.items()))
    except FreeSizes:
        open_inputs = ", ".join(str(tensor) for tensor in inputs if tensor.is_open)
        notes.append(
            f"Sizes that the model leaves free count as 1: {open_inputs}. `autoselect inspect` takes them (--shape)."
        )
        unnamed = [tensor for tensor in inputs if wished.keys().isdisjoint(tensor.names)]
        ones = {tensor.key: tuple(size or 1 for size in tensor.sizes) for tensor in unnamed}
        sizes = sizes_of(inputs, tuple({**wished, **ones}.items()))
    shapes.resize_inputs(model, {place: sizes[tensor.key] for place, tensor in zip(places, inputs, strict=True)})
    longest_seconds = 60.0  # Who only looks at a model does not wait longer.
    try:
        with (
            tempfile.TemporaryDirectory(prefix="autoselect-") as name,
            open_pool(1, log=Path(name) / "worker.log") as pool,
        ):
            settled_content = pool.call(shapes.settled_bytes, fb.serialise(model), timeout_seconds=longest_seconds)
            return Sized(content=settled_content, notes=tuple(notes))
    except WorkerDied:
        notes.append(_by_the_file(f"It crashes, or runs for more than {longest_seconds:g} s."))
    except (ModelError, PreparationError, TrialError) as exc:
        if wished:
            raise
        notes.append(_by_the_file(exc))
    return Sized(content=content, notes=tuple(notes))


def _by_the_file(why: object) -> str:
    return f"Costs are by the shapes in the file, where placeholders may be: the model cannot be run. {why}"


def _fits(inputs: Sequence[FreeInput], name: str, shape: tuple[int, ...]) -> bool:
    """Whether a wish is of one of the inputs, and as that allows."""
    try:
        sizes_of([tensor for tensor in inputs if name in tensor.names], [(name, shape)])
    except UsageError:
        return False
    return True
