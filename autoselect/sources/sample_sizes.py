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
        found = sizes_in_samples(calibration, free, known=dict(wishes.shapes), signature=wishes.signature)
    told = ", ".join(f"{key}={_text(sizes)}" for key, sizes in found.items())
    note = f"Free sizes were taken from the representative samples, which agree: {told}. Choose others with --shape."
    return load(wishes.with_sizes(found)).noted(note)


def sizes_in_samples(
    calibration: object, free: FreeSizes, known: Shapes, signature: str | None = None
) -> dict[str, tuple[int, ...]]:
    """Find the sizes of all inputs that have free ones, where all samples agree.

    Args:
        calibration: Anything that ``representative_samples`` takes. A function is called once more later on.
        free: What the source leaves open.
        known: What the user chose.
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
    found: dict[str, tuple[int, ...]] = {}
    wanted = [one for one in free.inputs if one.is_open and not set(one.names) & set(known)]
    for number, shapes in enumerate(_shapes(data, free.inputs, signature)):
        for one in (one for one in wanted if one.key in shapes):
            sizes = _sizes(shapes[one.key], one)
            if sizes is None:
                raise free
            if found.setdefault(one.key, sizes) != sizes:
                raise ModelError(
                    f"Input {one.key!r} has free sizes beside its batch ({one}), and the representative samples differ "
                    f"in theirs: {_text(found[one.key])} in the first, {_text(sizes)} in sample {number} (counted from "
                    f"0). Choose one with --shape {one.key}={_text(found[one.key])} (shapes=... in Python), and bring "
                    "all samples to it."
                )
    if any(one.key not in found for one in wanted):
        raise free
    return found


def _shapes(
    data: object, inputs: Sequence[FreeInput], signature: str | None
) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """Shape of every input in each sample; of arrays of N samples, one row's."""
    stacks = stacks_in(data, [one.key for one in inputs], purpose=_PURPOSE)
    if stacks is None:
        for number, raw in numbered_items(data, purpose=_PURPOSE, signature=signature):
            yield _item_shapes(raw, inputs, f"{_PURPOSE}, sample {number}")
        return
    opened = {one.key: _named(stacks, one, sole=len(inputs) == 1) for one in inputs}
    yield {key: found().shape[1:] for key, found in opened.items() if found is not None}


def _item_shapes(raw: object, inputs: Sequence[FreeInput], where: str) -> dict[str, tuple[int, ...]]:
    value = raw[1] if is_signature_sample(raw) else raw
    if isinstance(value, Mapping):
        named = {one.key: _named(value, one, sole=False) for one in inputs}
    else:
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        named = dict(zip([one.key for one in inputs], values, strict=False))
    return {key: np.shape(numeric_array(item, where)) for key, item in named.items() if item is not None}


def _named(values: Mapping[str, T], one: FreeInput, *, sole: bool) -> T | None:
    """The value of an input; that of a sole one may be called ``x``, or be the only one, as samples are read."""
    names = (*one.names, SOLE_INPUT, *(values if len(values) == 1 else ())) if sole else one.names
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
    fits = all(size in (None, found) for size, found in zip(free.sizes[1:], whole[1:], strict=True))
    return whole if fits and all(whole) else None


def _text(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
