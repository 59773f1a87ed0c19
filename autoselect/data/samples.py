"""Samples kept in a folder and shared between processes: written as they come, never holding more than one, and read.

It knows no model, no metric and no source of data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.data.fit import Sample, numeric_array
from autoselect.data.npy import NpyWriter
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError, StorageError

_INDEX_FILE = "samples.json"
_TARGETS_FILE = "targets.npy"
_FORMAT = 2
_PART = ".part"

LabelledSample = tuple[Sample, object | None] | tuple[Sample, object | None, str]
"""A sample and its target, None where there is none; where samples have groups also the label of its group."""


class SampleStore:
    """N samples in a folder, or a choice of them, read through shared, read-only memory maps.

    A pickled store carries its path and choice only, so that worker processes share its pages.
    """

    def __init__(self, folder: Path, indices: np.ndarray | None = None) -> None:
        self.folder = folder.absolute()
        self._index = _read_index(self.folder)
        self._rows = np.arange(self._index["count"], dtype=np.int64) if indices is None else indices
        self._is_whole = indices is None

    @classmethod
    def write(cls, folder: Path, samples: Iterable[LabelledSample], inputs: Sequence[TensorSpec]) -> SampleStore:
        """Write samples into a folder, one after the other, and open it.

        Args:
            folder: Created if missing; a store that it already holds is replaced at the end.
            samples: Pairs of sample and target, as ``labelled_samples`` yields them; None for no target. A third member
                labels the sample's group.
            inputs: The model's inputs, which every sample must fit exactly.

        Raises:
            DataError: If there are no samples, a sample does not fit, only some have targets or groups, or targets
                are not numbers of one shape and one kind.
            StorageError: If a file cannot be written.
        """
        with _storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            writer = _SampleWriter(folder, inputs)
        try:
            for labelled in samples:  # What reading them raises is no error of writing.
                with _storage_errors(folder):
                    writer.append(*labelled)
            with _storage_errors(folder):
                writer.commit()
        finally:
            with _storage_errors(folder):
                writer.discard()
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> SampleStore:
        """Open a folder that :meth:`write` made.

        Raises:
            DataError: If the folder holds no samples or is damaged.
        """
        store = cls(folder)
        store._check_files()
        return store

    def __len__(self) -> int:
        return len(self._rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return SampleStore, (self.folder, None if self._is_whole else self._rows)

    def inputs(self, index: int) -> Sample:
        """Return one sample; its arrays are read-only views of the file, batch axis included."""
        row = self._rows[index]
        return {key: np.asarray(array[row]) for key, array in self._arrays.items()}

    def target(self, index: int) -> Any:
        """Return the target of one sample (a NumPy scalar or array), or None if there are no targets."""
        array = self._target_array
        return None if array is None else array[self._rows[index]]

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """One content digest per sample, of its inputs only: 32 hex digits (BLAKE2b, 16 bytes)."""
        digests = self._index["digests"]
        return tuple(digests[row] for row in self._rows)

    @cached_property
    def groups(self) -> tuple[str, ...] | None:
        """The label of each sample's group; None where they have none."""
        groups = self._index["groups"]
        return None if groups is None else tuple(groups[row] for row in self._rows)

    @property
    def signature(self) -> str:
        """One digest of all samples of the folder in order, their targets and groups, 32 hex digits."""
        return str(self._index["signature"])

    def subset(self, indices: Sequence[int] | np.ndarray) -> SampleStore:
        """Choose samples, in the given order; the files stay shared.

        Args:
            indices: Whole numbers from 0 to ``len(self) - 1``; may repeat.

        Raises:
            DataError: If there are none.
            IndexError: If one is out of range.
        """
        chosen = np.asarray(indices, dtype=np.int64)
        if not chosen.size:
            raise DataError("expected at least one sample in a subset, got none. Choose at least one.")
        if chosen.min() < 0 or chosen.max() >= len(self):
            raise IndexError(f"expected sample numbers from 0 to {len(self) - 1}, got {chosen.tolist()[:9]}")
        return SampleStore(self.folder, self._rows[chosen])

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return {key: self._mapped(file) for key, file in self._index["inputs"].items()}

    @cached_property
    def _target_array(self) -> np.ndarray | None:
        return self._mapped(_TARGETS_FILE) if self._index["has_targets"] else None

    def _mapped(self, file: str) -> np.ndarray:
        path = self.folder / file
        try:
            # A plain view: slices of np.memmap are slower and pickle as memmaps.
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError, EOFError) as exc:
            raise DataError(_damaged(self.folder, f"{file}: {exc}")) from exc

    def _check_files(self) -> None:
        for key, array in [*self._arrays.items(), ("targets", self._target_array)]:
            if array is not None and len(array) != self._index["count"]:
                raise DataError(_damaged(self.folder, f"{len(array)} samples of {key!r}"))


def _read_index(folder: Path) -> dict[str, Any]:
    try:
        index = json.loads((folder / _INDEX_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise DataError(
            f"{folder}: expected a folder of prepared samples, but {_INDEX_FILE} is missing. "
            "Prepare the samples again; writing them may have been cut short."
        ) from exc
    except (OSError, ValueError) as exc:
        raise DataError(_damaged(folder, str(exc))) from exc
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise DataError(_damaged(folder, f"{_INDEX_FILE} is not of format {_FORMAT}"))
    return index


def _damaged(folder: Path, detail: str) -> str:
    return f"{folder}: expected prepared samples that can be read, got {detail}. Prepare the samples again."


class _SampleWriter:
    """Writes beside the final names and renames at the end; the index comes last and makes it a store."""

    def __init__(self, folder: Path, inputs: Sequence[TensorSpec]) -> None:
        self._folder = folder
        self._inputs = inputs
        self._files = {spec.key: f"input_{number:03}.npy" for number, spec in enumerate(inputs)}
        self._writers = {
            spec.key: NpyWriter(self._part(self._files[spec.key]), spec.shape, np.dtype(spec.dtype)) for spec in inputs
        }
        self._targets: NpyWriter | None = None
        self._digests: list[str] = []
        self._named: list[str] = []
        self._groups: list[str] = []

    def append(self, sample: Sample, target: object | None, group: str | None = None) -> None:
        """Append one sample, or refuse it with a DataError before anything of it is written."""
        where = f"sample {len(self._digests)} (counted from 0)"
        for spec in self._inputs:
            _check_fits(sample, spec, where)
        if (group is None) != (not self._groups) and self._digests:
            raise DataError(f"{where}: expected groups for all samples or for none, got some. Give each its group.")
        self._append_target(target, f"{where}, target")
        for key, writer in self._writers.items():
            writer.append(sample[key])
        self._digests.append(content_digest(sample))
        self._named.append(named_digest(sample, group))
        if group is not None:
            self._groups.append(group)

    def _append_target(self, target: object | None, where: str) -> None:
        if (target is None) != (self._targets is None) and self._digests:
            raise DataError(f"{where}: expected targets for all samples or for none, got some. Give each its target.")
        if target is None:
            return
        array = numeric_array(target, where)
        if self._targets is None:
            self._targets = NpyWriter(self._part(_TARGETS_FILE), array.shape, array.dtype)
        self._targets.append(_fitting_target(array, self._targets, where))

    def commit(self) -> None:
        """Give the files their final names; refuse an empty store with a DataError."""
        if not self._digests:
            raise DataError("expected at least one sample, got none. Check what yields the samples.")
        for writer in self._open_writers():
            writer.close()
        (self._folder / _INDEX_FILE).unlink(missing_ok=True)
        files = [*self._files.values(), *([_TARGETS_FILE] if self._targets else [])]
        for file in files:
            self._part(file).replace(self._folder / file)
        self._part(_INDEX_FILE).write_text(json.dumps(self._index(), indent=1), encoding="utf-8")
        self._part(_INDEX_FILE).replace(self._folder / _INDEX_FILE)

    def discard(self) -> None:
        """Close and remove what was not committed; does nothing after :meth:`commit`."""
        for writer in self._open_writers():
            writer.abandon()
        for file in [*self._files.values(), _TARGETS_FILE, _INDEX_FILE]:
            self._part(file).unlink(missing_ok=True)

    def _open_writers(self) -> list[NpyWriter]:
        return [*self._writers.values(), *([self._targets] if self._targets else [])]

    def _part(self, file: str) -> Path:
        return self._folder / (file + _PART)

    def _index(self) -> dict[str, Any]:
        targets = np.load(self._folder / _TARGETS_FILE, mmap_mode="r") if self._targets else None
        rows = targets if targets is not None else [None] * len(self._digests)
        return {
            "format": _FORMAT,
            "count": len(self._digests),
            "inputs": self._files,
            "has_targets": targets is not None,
            "signature": signature_of(self._named, rows),
            "digests": self._digests,
            "groups": self._groups or None,
        }


def content_digest(sample: Sample) -> str:
    """Digest what the inputs of a sample hold: dtype, shape and bytes.

    Names and order of the inputs do not matter, since the formats of one model differ in them.

    Returns:
        32 hex digits (BLAKE2b, 16 bytes).
    """
    alone = sorted(named_digest({"": array}, None) for array in sample.values())
    return hashlib.blake2b(" ".join(alone).encode(), digest_size=16).hexdigest()


def named_digest(sample: Sample, group: str | None) -> str:
    """Digest which input of a sample holds what, and its group; the order of the dict does not matter."""
    state = hashlib.blake2b(digest_size=16)
    for key in sorted(sample):
        _add_array(state, key, sample[key])
    if group is not None:
        state.update(f"group\0{group}".encode())
    return state.hexdigest()


def signature_of(digests: Iterable[str], targets: Iterable[Any]) -> str:
    """Digest the contents of samples in order, and their targets.

    Returns:
        32 hex digits (BLAKE2b, 16 bytes).
    """
    state = hashlib.blake2b(digest_size=16)
    for digest, target in zip(digests, targets, strict=True):
        state.update(digest.encode())
        if target is not None:
            _add_array(state, "target", np.asarray(target))
    return state.hexdigest()


def _add_array(state: hashlib.blake2b, name: str, array: np.ndarray) -> None:
    state.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
    state.update(array.tobytes())


def _check_fits(sample: Sample, spec: TensorSpec, where: str) -> None:
    array = sample.get(spec.key)
    if array is None or array.shape != spec.shape or array.dtype != spec.dtype:
        got = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise DataError(
            f"{where}: expected {spec.dtype} {spec.shape} for input {spec.key!r}, got {got}. "
            "Pass raw samples through fit_sample first."
        )


def _fitting_target(array: np.ndarray, writer: NpyWriter, where: str) -> np.ndarray:
    if array.shape != writer.row_shape:
        raise DataError(
            f"{where}: expected shape {writer.row_shape} as in the first sample, got {array.shape}. "
            "Bring all targets to one shape."
        )
    if array.dtype == writer.dtype:
        return array
    with np.errstate(invalid="ignore", over="ignore"):  # What does not survive is refused below.
        cast = array.astype(writer.dtype)
    is_kept = array.dtype.kind == writer.dtype.kind == "f" or np.array_equal(cast, array)
    if not is_kept or array.dtype.kind == "b" or writer.dtype.kind == "b":
        raise DataError(
            f"{where}: expected dtype {writer.dtype} as in the first sample, got {array.dtype}. "
            "Give all targets one dtype."
        )
    return cast


@contextmanager
def _storage_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StorageError(
            f"{folder}: expected to write samples here, got {type(exc).__name__}: {exc}. "
            "Free some space, or choose a folder that you may write to."
        ) from exc
