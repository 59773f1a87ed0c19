"""Many values stacked in one array, in memory or in a file, read row by row; knows no targets."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.data.fit import OtherInputs, Sample, expected_inputs, fit_sample, names_by_key, numeric_array
from autoselect.data.npy import iter_rows, read_header
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, first_line

SOLE_INPUT = "x"
"""The name that the only input of a model may have in a ``.npz`` file or a dict."""

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    OSError,
    NotImplementedError,
    RuntimeError,  # encrypted, or nested too deep
    SyntaxError,
    MemoryError,
    OverflowError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """N values along the first axis of one array.

    Attributes:
        name: What messages call it.
        shape: Full shape (n_values, ...).
        dtype: Stored dtype.
        rows: Starts a new pass over the N values, each of shape ``shape[1:]``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[], Iterator[np.ndarray]]

    def __len__(self) -> int:
        return self.shape[0]

    def __post_init__(self) -> None:
        if self.dtype.kind not in "biufcSU":  # Text may label groups; who takes numbers refuses it.
            raise DataError(
                f"{self.name}: expected an array of numbers, got dtype {self.dtype}. "
                "Convert it to a float or integer array before saving, labels of groups to text "
                "(`groups.astype(str)`); pickled objects are not read."
            )
        if not self.shape:
            raise DataError(f"{self.name}: expected samples along the first axis, got a single number.")


def stack_of(value: object, name: str) -> Stack:
    """Take an array in memory (or anything that NumPy converts without loss) as a stack.

    Raises:
        DataError: If the value is ragged, not numeric, or a single number.
    """
    array = numeric_array(value, name)
    return Stack(name=name, shape=array.shape, dtype=array.dtype, rows=lambda: iter(array))


def labels_of(value: object, name: str) -> Stack:
    """Take labels in memory, numbers or text, as a stack; those of a pandas column are Python objects.

    Raises:
        DataError: If they are neither, or a single one, or one is missing: NumPy makes the text ``nan`` of it.
    """
    try:
        array = np.asarray(value)
        _refuse_missing(value if isinstance(value, (list, tuple)) else array.tolist(), name)
        array = np.asarray(array.tolist()) if array.dtype.kind == "O" else array
    except DataError:
        raise
    except Exception as exc:  # What a library's array raises may be anything.
        raise DataError(
            f"{name}: expected one label for each sample, got {type(value).__name__} that NumPy cannot convert "
            f"({first_line(exc)}). Give a flat list or array."
        ) from exc
    return Stack(name=name, shape=array.shape, dtype=array.dtype, rows=lambda: iter(array))


def _refuse_missing(labels: object, name: str) -> None:
    """Refuse labels among texts that are none, as tables hold them in empty cells; fractions are refused later."""
    listed = labels if isinstance(labels, (list, tuple)) else [labels]
    has_text = any(isinstance(label, str) for label in listed)
    for number, label in enumerate(listed):
        if label is None or (has_text and isinstance(label, float) and math.isnan(label)):
            raise DataError(
                f"{name}: expected one label for each sample, got none ({label}) for sample {number} (counted from 0). "
                "Samples without one would count as one group: label each, or leave them out."
            )


def require_file(path: Path) -> None:
    """Refuse a path without a file.

    Raises:
        DataError: With the folder that was looked in.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: expected a data file, but there is none here ({Path.cwd()}). Check the path, or save "
            "the samples with numpy.savez(path, x=..., y=...)."
        )


def stacks_of_file(path: Path) -> Mapping[str, Callable[[], Stack]]:
    """Open the arrays of a ``.npz`` or ``.npy`` file without reading their data.

    Returns:
        Name -> function that opens the stack, so that an array nobody asks for may be of any kind.

    Raises:
        DataError: If the file is missing, damaged or of another kind.
    """
    require_file(path)
    if path.suffix == ".npy":
        return {SOLE_INPUT: partial(_npy_stack, path)}
    if path.suffix != ".npz":
        raise DataError(f"{path}: expected a .npz or .npy file, got {path.suffix!r}. Save it with numpy.savez.")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
    except _DAMAGE as exc:
        raise _damaged(str(path), exc) from exc
    return {member.removesuffix(".npy"): partial(_member_stack, path, member) for member in members}


def _damaged(name: str, exc: Exception) -> DataError:
    return DataError(
        f"{name}: expected an array saved by NumPy, got data that cannot be read "
        f"({type(exc).__name__}: {exc}). Save it again as numbers with numpy.savez or numpy.save."
    )


def _npy_stack(path: Path) -> Stack:
    try:
        with path.open("rb") as stream:
            shape, _, dtype = read_header(stream)
        array = np.load(path, mmap_mode="r", allow_pickle=False) if dtype.kind in "biufc" else None
    except _DAMAGE as exc:
        raise _damaged(str(path), exc) from exc
    return Stack(name=str(path), shape=shape, dtype=dtype, rows=lambda: iter(() if array is None else array))


def _member_stack(path: Path, member: str) -> Stack:
    name = f"array {member.removesuffix('.npy')!r} of {path}"
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            shape, is_fortran, dtype = read_header(stream)
            _check_room(shape, dtype, 4 << 30 if is_fortran else None)
    except _DAMAGE as exc:
        raise _damaged(name, exc) from exc
    return Stack(name=name, shape=shape, dtype=dtype, rows=partial(_member_rows, path, member, name))


def _check_room(shape: tuple[int, ...], dtype: np.dtype[Any], most_bytes: int | None) -> None:
    """What is read at once must fit: a row, or all of an array whose rows lie scattered. Zeros compress a thousandfold.

    Raises:
        ValueError: If it does not.
    """
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape {shape}")
    if (row := math.prod(shape[1:]) * dtype.itemsize) > 1 << 30:
        raise ValueError(f"rows of {row} bytes")
    if most_bytes is not None and row * math.prod(shape[:1]) > most_bytes:
        raise ValueError(f"an array of shape {shape} in Fortran order; save it with numpy.ascontiguousarray")


def _member_rows(path: Path, member: str, name: str) -> Iterator[np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
            shape, is_fortran, dtype = read_header(stream)
            if not is_fortran:
                yield from iter_rows(stream, shape, dtype)
                return
        with np.load(path, allow_pickle=False) as arrays:  # Rows of Fortran order lie scattered: read it whole.
            yield from arrays[member.removesuffix(".npy")]
    except _DAMAGE as exc:
        raise _damaged(name, exc) from exc


def input_stacks(
    stacks: Mapping[str, Callable[[], Stack]],
    inputs: Sequence[TensorSpec],
    *,
    where: str,
    beside: Collection[str] = (),
) -> dict[str, Stack]:
    """Pick the stack of each input and check that all hold equally many samples of the right shape.

    Args:
        stacks: Arrays by input key or tensor name. The input of a model that has one may also be called ``x``, and is
            the only array whatever its name. Arrays of other names are left unread.
        inputs: The model's inputs.
        where: What messages call these data.
        beside: Names of arrays that are no inputs, such as the targets.

    Returns:
        Input key -> stack, in the order of ``inputs``.

    Raises:
        DataError: If an input is missing, a shape does not fit, or lengths differ.
    """
    names = input_names(stacks, inputs, beside)
    if len(names) < len(inputs):
        sole = f" (or {SOLE_INPUT!r})" if len(inputs) == 1 and inputs[0].key != SOLE_INPUT else ""
        raise OtherInputs(
            f"{where}: expected one array of samples per input, {expected_inputs(inputs)}{sole}, got the "
            f"names {', '.join(map(repr, stacks)) or '(none)'}. Name each array after its input."
        )
    picked = {spec.key: _checked(stacks[names[spec.key]](), spec) for spec in inputs}
    check_lengths(list(picked.values()), where=where)
    return picked


def input_names(names: Collection[str], inputs: Sequence[TensorSpec], beside: Collection[str] = ()) -> dict[str, str]:
    """The name of the array of each input that has one, as :func:`input_stacks` picks it."""
    found_names = names_by_key(names, inputs)
    others = [name for name in names if name not in beside]
    if not found_names and len(inputs) == 1 and (SOLE_INPUT in names or len(others) == 1):
        return {inputs[0].key: SOLE_INPUT if SOLE_INPUT in names else others[0]}
    return found_names


def check_lengths(stacks: Sequence[Stack], *, where: str) -> None:
    """Refuse stacks that hold no samples or not equally many.

    Raises:
        DataError: Naming each stack and its length.
    """
    lengths = {stack.name: len(stack) for stack in stacks}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise DataError(f"{where}: expected equally many samples in each array, got {listed}. Make them match.")
    if not all(lengths.values()):
        raise DataError(f"{where}: expected at least one sample, got none. Check how the data were made.")


def _checked(stack: Stack, spec: TensorSpec) -> Stack:
    shapes = [spec.shape, spec.other_shape or spec.shape]
    fitting = [*shapes, *(shape[1:] for shape in shapes if shape[:1] == (1,))]
    if stack.shape[1:] not in fitting:
        wanted = spec.shape[1:] if spec.shape[:1] == (1,) else spec.shape
        raise DataError(
            f"{stack.name}: expected shape (n_samples, {', '.join(map(str, wanted))}) for input "
            f"{spec.key!r}, got {stack.shape}. Reshape or resize it as the model was trained."
        )
    return stack


def stacked_samples(stacks: Mapping[str, Stack], inputs: Sequence[TensorSpec], *, where: str) -> Iterator[Sample]:
    """Yield the samples of picked stacks in order, one at a time.

    Raises:
        DataError: As :func:`autoselect.data.fit.fit_sample` does, naming the sample from 0 on.
    """
    rows = zip(*(stack.rows() for stack in stacks.values()), strict=True)
    for number, values in enumerate(rows):
        raw = dict(zip(stacks, values, strict=True))
        yield from fit_sample(raw, inputs, where=f"{where} {number} (counted from 0)")
