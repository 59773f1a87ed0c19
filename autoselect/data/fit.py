"""One raw sample made to fit a model's inputs; knows shapes and dtypes, not where samples come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, first_line

Sample = dict[str, np.ndarray]
"""One sample: each input by ``TensorSpec.key``, in the full shape of its spec (batch axis 1 included)."""


class OtherInputs(DataError):
    """Samples hold other inputs than the model has."""


def fit_sample(raw: object, inputs: Sequence[TensorSpec], *, where: str) -> Iterator[Sample]:
    """Turn what a user gives as one sample into samples that a model takes.

    A missing batch axis is added; a batch larger than one is split into rows. Floats are cast to the
    float dtype of the input, integers to its integer dtype where every value survives.

    Args:
        raw: A list or tuple of arrays in input order, a dict by input key or tensor name, a
            ``(signature, dict)`` tuple, or one array where the model has one input.
        inputs: The model's inputs.
        where: The words that name this sample in a message: ``"calibration sample 3"``.

    Yields:
        Samples that own their memory: key -> array of shape ``spec.shape`` and dtype ``spec.dtype``.

    Raises:
        DataError: If names, count, shape or dtype do not fit, or a value is NaN or infinite.
    """
    values = _values_by_key(raw, inputs, where)
    batches = {spec.key: _batch(values[spec.key], spec, where) for spec in inputs}
    counts = {key: len(batch) for key, batch in batches.items()}
    if len(set(counts.values())) > 1:
        raise DataError(
            f"{where}: expected the same batch size for every input, got {counts}. "
            "Yield one sample at a time, or batches of equal size."
        )
    for row in range(min(counts.values())):
        yield {key: np.array(batch[row]) for key, batch in batches.items()}


def names_by_key(names: Iterable[str], inputs: Sequence[TensorSpec]) -> dict[str, str]:
    """Find under which of the given names each input comes.

    Returns:
        Input key -> given name, for the inputs found. An input's key goes before its tensor name,
        and the tensor name counts with and without a trailing ``:0``.
    """
    given = set(names)
    matches: dict[str, str] = {}
    for spec in inputs:
        for candidate in (spec.key, spec.name, spec.name.removesuffix(":0")):
            if candidate in given and candidate not in matches.values():
                matches[spec.key] = candidate
                break
    return matches


def expected_inputs(inputs: Sequence[TensorSpec]) -> str:
    """Describe the inputs for a message: ``'image' float32 (1, 8, 8, 3), 'mask' …``."""
    return ", ".join(f"{spec.key!r} {spec.dtype} {spec.shape}" for spec in inputs)


def _values_by_key(raw: object, inputs: Sequence[TensorSpec], where: str) -> dict[str, object]:
    if is_signature_sample(raw):
        raw = raw[1]
    if isinstance(raw, Mapping):
        return _values_of_mapping(raw, inputs, where)
    values = list(raw) if isinstance(raw, (list, tuple)) else [raw]
    if len(values) != len(inputs):
        raise OtherInputs(
            f"{where}: expected {len(inputs)} input(s), {expected_inputs(inputs)}, got {len(values)}. "
            "Yield a list with one array per input, in this order, or a dict by name."
        )
    return {spec.key: value for spec, value in zip(inputs, values, strict=True)}


def is_signature_sample(raw: object) -> TypeGuard[tuple[str | None, Mapping[Any, object]]]:
    """Tell whether this is the ``(signature, dict)`` form of a representative sample."""
    return (
        isinstance(raw, tuple)
        and len(raw) == 2
        and (raw[0] is None or isinstance(raw[0], str))
        and isinstance(raw[1], Mapping)
    )


def _values_of_mapping(raw: Mapping[Any, object], inputs: Sequence[TensorSpec], where: str) -> dict[str, object]:
    names = names_by_key(raw, inputs)
    unknown = [name for name in raw if name not in names.values()]
    if unknown or len(names) < len(inputs):
        raise OtherInputs(
            f"{where}: expected a dict of the inputs {expected_inputs(inputs)}, got the names "
            f"{', '.join(repr(name) for name in raw) or '(none)'}. Name each input once, by its key."
        )
    return {key: raw[name] for key, name in names.items()}


def _batch(value: object, spec: TensorSpec, where: str) -> np.ndarray:
    """Return shape (n_rows, *spec.shape), finite, in the input's dtype."""
    where = f"{where}, input {spec.key!r}"
    array = numeric_array(value, where)
    rows = _rows(array, spec, where)
    cast = _cast(rows, spec, where)
    if spec.dtype.kind in "fc":
        _refuse_non_finite(cast, rows, where)
    return cast


def numeric_array(value: object, where: str) -> np.ndarray:
    """Return the value as an array of numbers.

    Raises:
        DataError: If it is ragged, holds objects or text, has masked values, or cannot become an array.
    """
    if np.ma.is_masked(value):
        raise DataError(
            f"{where}: expected an array of numbers, got one with masked values. Fill them as in training, or leave "
            "out their samples."
        )
    try:
        array = np.asarray(value)
    except Exception as exc:  # What a library's array raises may be anything.
        is_list = isinstance(value, (list, tuple))
        raise DataError(
            f"{where}: expected an array of numbers, got {type(value).__name__} that NumPy cannot "
            f"convert ({first_line(exc)}). "
            + ("Give all rows one length, or yield them one by one." if is_list else "Make it a NumPy array first.")
        ) from exc
    if array.dtype.kind not in "biufc":
        is_text = array.dtype.kind in "SU" or any(isinstance(item, str) for item in array.flat)
        raise DataError(
            f"{where}: expected an array of numbers, got {type(value).__name__} of dtype {array.dtype}. "
            + (
                "Read the texts as numbers. Classes are numbered from 0 on, in the order of the model's outputs."
                if is_text
                else "Convert it to a float or integer array."
            )
        )
    return array


def _rows(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    """The samples in an array; shapes of the other layout go first, where both fit."""
    if spec.turned is not None and spec.other_shape is not None:
        rows = _rows_of(array, spec.other_shape)
        if rows is not None:
            return rows.transpose(0, *(axis + 1 for axis in spec.turned))
    rows = _rows_of(array, spec.shape)
    if rows is not None:
        return rows
    raise DataError(
        f"{where}: expected shape {spec.shape}, got {array.shape}. "
        "Reshape or resize it as the model was trained; one sample has batch 1, or no batch axis."
    )


def _rows_of(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    if array.shape == shape:
        return array[np.newaxis]
    if shape[:1] == (1,):
        if array.shape == shape[1:]:
            return array[np.newaxis, np.newaxis]
        if array.ndim == len(shape) and array.shape[1:] == shape[1:] and len(array):
            return array[:, np.newaxis]
    return None


def _cast(array: np.ndarray, spec: TensorSpec, where: str) -> np.ndarray:
    dtype = spec.dtype
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "f" and dtype.kind == "f":
        with np.errstate(over="ignore"):  # What becomes infinite is refused with a message of its own.
            return array.astype(dtype)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        return _cast_integers(array, dtype, where)
    if dtype.kind == "f" and array.dtype.kind in "biu":
        advice = "Convert and normalise the values first, exactly as in training."
    elif spec.is_quantized:
        advice = (
            "The input is quantized: pass the float model as reference (--reference), and the samples are quantized by "
            f"the input's own scale. Or bring its {dtype} levels."
        )
    elif array.dtype.kind == "f" and dtype.kind in "iu" and not np.array_equal(array, np.rint(array)):
        ends = np.iinfo(dtype)  # type: ignore[type-var]  # an integer dtype, by its kind
        advice = (
            f"The model takes whole numbers from {ends.min} to {ends.max}, and these go from {array.min():.3g} to "
            f"{array.max():.3g}: bring them before they were scaled, or scale and round them."
        )
    else:
        advice = f"Convert it to {dtype}."
    raise DataError(f"{where}: expected dtype {dtype}, got {array.dtype}. {advice}")


def _cast_integers(array: np.ndarray, dtype: np.dtype[np.generic], where: str) -> np.ndarray:
    limits = np.iinfo(dtype)  # type: ignore[type-var]  # an integer dtype, by its kind
    if not array.size:
        return array.astype(dtype)
    low, high = int(array.min()), int(array.max())
    if low < limits.min or high > limits.max:
        raise DataError(
            f"{where}: expected {dtype} values from {limits.min} to {limits.max}, "
            f"got {low} to {high}. Bring the values into this range."
        )
    return array.astype(dtype)


def _refuse_non_finite(cast: np.ndarray, given: np.ndarray, where: str) -> None:
    bad = int(np.count_nonzero(~np.isfinite(cast)))
    if not bad:
        return
    if np.isfinite(given).all():
        raise DataError(
            f"{where}: expected values that {cast.dtype} can hold, got {bad} larger ones. "
            "Normalise the values as in training."
        )
    row = int(np.argwhere(~np.isfinite(cast))[0][0])
    place = f" (first in row {row} of the batch)" if len(cast) > 1 else ""
    raise DataError(
        f"{where}: expected finite numbers, got {bad} NaN or infinite of {cast.size}{place}. "
        "Repair or leave out this sample."
    )
