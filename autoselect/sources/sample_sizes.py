"""Sizes that a source leaves open, read off representative samples; knows their shapes, not their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from autoselect.data.fit import is_signature_sample, numeric_array
from autoselect.data.sources import numbered_items, stacks_in, unwrap
from autoselect.data.stacks import SOLE_INPUT
from autoselect.errors import ModelError
from autoselect.sources.tflite_files import FloatModel
from autoselect.sources.wishes import FreeInput, FreeSizes, Shapes, Wishes

_PURPOSE = "representative dataset"

T = TypeVar("T")


def with_sample_sizes(load: Callable[[Wishes], FloatModel], wishes: Wishes, calibration: object) -> FloatModel:
    """Load a source, and where it leaves sizes free load it again with those of the samples.

    Args:
        load: Loads it as it is wished.
        wishes: What the user says of it.
        calibration: Anything that ``representative_samples`` takes; None for no samples.
    """
    try:
        return load(wishes)
    except FreeSizes as free:
        if calibration is None:
            raise
        shapes = sizes_in_samples(calibration, free, chosen=dict(wishes.shapes), signature=wishes.signature)
    listing = ", ".join(f"{key}={_text(sizes)}" for key, sizes in shapes.items())
    note = f"Free sizes were taken from the representative samples, which agree: {listing}. Choose others with --shape."
    return load(wishes.with_sizes(shapes)).noted(note)


def sizes_in_samples(
    calibration: object, free: FreeSizes, chosen: Shapes, signature: str | None = None
) -> dict[str, tuple[int, ...]]:
    """Find the sizes of all inputs that have free ones, where all samples agree.

    Args:
        calibration: Anything that ``representative_samples`` takes. A function is called once more later on.
        free: What the source leaves open.
        chosen: What the user chose.
        signature: As ``representative_samples`` takes it.

    Returns:
        Shape by input key, for the inputs with free sizes beside the batch.

    Raises:
        FreeSizes: If the samples can be read once only, or say nothing of an input.
        ModelError: If samples differ in their sizes.
        DataError, UsageError: If there are no samples to read.
    """
    data = unwrap(calibration, purpose=_PURPOSE)
    if isinstance(data, Iterator) and data is calibration:
        raise free  # A generator object: what is read here would be missing later.
    fixed_shapes: dict[str, tuple[int, ...]] = {}
    wanted = [spec for spec in free.inputs if spec.is_open and not set(spec.names) & set(chosen)]
    for number, shapes in enumerate(_shapes(data, free.inputs, signature)):
        for spec in (spec for spec in wanted if spec.key in shapes):
            sizes = _sizes(shapes[spec.key], spec)
            if sizes is None:
                raise free
            if fixed_shapes.setdefault(spec.key, sizes) != sizes:
                raise ModelError(
                    f"Input {spec.key!r} has free sizes beside its batch ({spec}), and the representative samples "
                    f"differ in theirs: {_text(fixed_shapes[spec.key])} in the first, {_text(sizes)} in sample "
                    f"{number} (counted from 0). Choose one with --shape {spec.key}={_text(fixed_shapes[spec.key])} "
                    "(shapes=... in Python), and bring all samples to it."
                )
    if any(spec.key not in fixed_shapes for spec in wanted):
        raise free
    return fixed_shapes


def _shapes(
    data: object, inputs: Sequence[FreeInput], signature: str | None
) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """Shape of every input in each sample; of arrays of N samples, one row's."""
    stacks = stacks_in(data, [spec.key for spec in inputs], purpose=_PURPOSE)
    if stacks is None:
        for number, raw in numbered_items(data, purpose=_PURPOSE, signature=signature):
            yield _item_shapes(raw, inputs, f"{_PURPOSE}, sample {number}")
        return
    opened = {spec.key: _named(stacks, spec, sole=len(inputs) == 1) for spec in inputs}
    yield {key: stack().shape[1:] for key, stack in opened.items() if stack is not None}


def _item_shapes(raw: object, inputs: Sequence[FreeInput], where: str) -> dict[str, tuple[int, ...]]:
    value = raw[1] if is_signature_sample(raw) else raw
    if isinstance(value, Mapping):
        named = {spec.key: _named(value, spec, sole=False) for spec in inputs}
    else:
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        named = dict(zip([spec.key for spec in inputs], values, strict=False))
    return {key: np.shape(numeric_array(item, where)) for key, item in named.items() if item is not None}


def _named(values: Mapping[str, T], spec: FreeInput, *, sole: bool) -> T | None:
    """The value of an input; that of a sole one may be called ``x``, or be the only one, as samples are read."""
    names = (*spec.names, SOLE_INPUT, *(values if len(values) == 1 else ())) if sole else spec.names
    return next((values[name] for name in names if name in values), None)


def _sizes(shape: tuple[int, ...], free: FreeInput) -> tuple[int, ...] | None:
    """The whole shape of an input, batch 1, from a sample with or without its batch axis; None if it cannot fit."""
    batch = 1 if free.sizes[0] is None else free.sizes[0]
    if len(shape) == len(free.sizes):
        whole = (batch, *shape[1:])
    elif len(shape) == len(free.sizes) - 1:
        whole = (batch, *shape)
    else:
        return None
    fits = all(size in (None, length) for size, length in zip(free.sizes[1:], whole[1:], strict=True))
    return whole if fits and all(whole) else None


def _text(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
