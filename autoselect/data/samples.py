"""Samples kept in a folder and shared between processes; knows no model, no metric and no source of data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.data.fit import Sample
from autoselect.data.sample_writer import FORMAT, INDEX_FILE, TARGETS_FILE, LabelledSample, write_samples
from autoselect.domain.tensors import TensorSpec
from autoselect.errors import DataError

__all__ = ["Sample", "SampleStore"]


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
        write_samples(folder, samples, inputs)
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
        return self._mapped(TARGETS_FILE) if self._index["has_targets"] else None

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
        index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise DataError(
            f"{folder}: expected a folder of prepared samples, but {INDEX_FILE} is missing. "
            "Prepare the samples again; writing them may have been cut short."
        ) from exc
    except (OSError, ValueError) as exc:
        raise DataError(_damaged(folder, str(exc))) from exc
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise DataError(_damaged(folder, f"{INDEX_FILE} is not of format {FORMAT}"))
    return index


def _damaged(folder: Path, detail: str) -> str:
    return f"{folder}: expected prepared samples that can be read, got {detail}. Prepare the samples again."
