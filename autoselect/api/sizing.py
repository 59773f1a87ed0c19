"""The shapes that a finished model has when it runs, for what is told of its costs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoselect.errors import ModelError, PreparationError, TrialError
from autoselect.isolation.pool import open_pool
from autoselect.sources import shapes
from autoselect.sources.tflite_files import free_inputs
from autoselect.sources.wishes import FreeSizes, sizes_of
from autoselect.tflite import flatbuffer as fb


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A model whose tensors have their true shapes as far as they are known.

    Attributes:
        content: Bytes of the model, with the ops of the file.
        notes: What is not known, in sentences.
    """

    content: bytes
    notes: tuple[str, ...] = ()


def in_true_shapes(content: bytes, wished: Sequence[tuple[str, tuple[int, ...]]] = ()) -> Sized:
    """Fix the sizes that a model leaves free, and run it in a worker to see what shapes its other tensors have.

    A file of a converter has placeholders for shapes that are computed while the model runs. Costs by these would be
    far too low.

    Args:
        content: Bytes of a ``.tflite``, quantized or not.
        wished: Sizes of inputs, by key or tensor name. Without them free sizes are 1.

    Raises:
        ModelError: If it is no whole TFLite file, or LiteRT cannot run it in the sizes that are wished.
        UsageError: If a size is of no input, or does not fit its input.
    """
    model = fb.parse(content)
    inputs, notes = free_inputs(model), list[str]()
    try:
        sizes = sizes_of(inputs, wished)
    except FreeSizes:
        told = ", ".join(str(one) for one in inputs if one.is_open)
        notes.append(f"Sizes that the model leaves free count as 1: {told}. Give them with --shape.")
        chosen = dict(wished)
        sizes = {i.key: chosen.get(i.key) or tuple(size or 1 for size in i.sizes) for i in inputs}
    if not wished and shapes.is_settled(model):
        return Sized(content=content)
    places = map(int, model.subgraphs[0].inputs)
    shapes.resize_inputs(model, {place: sizes[one.key] for place, one in zip(places, inputs, strict=True)})
    try:
        with (
            tempfile.TemporaryDirectory(prefix="autoselect-") as name,
            open_pool(1, log=Path(name) / "worker.log") as pool,
        ):
            return Sized(content=pool.call(shapes.settled_bytes, fb.serialise(model)), notes=tuple(notes))
    except (ModelError, PreparationError, TrialError) as exc:
        if wished:
            raise
        notes.append(f"Costs are by the shapes in the file, some of which may be placeholders. {exc}")
        return Sized(content=content, notes=tuple(notes))
