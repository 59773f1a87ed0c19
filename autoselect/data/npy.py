"""The ``.npy`` file format: header reading, and writing row by row; knows no samples and no models."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of a ``.npy`` stream and stop at its first data byte.

    Returns:
        Shape, whether the data are in Fortran order, and dtype.

    Raises:
        ValueError: If this is no ``.npy`` stream of format version 1 or 2.
    """
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, in_fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, in_fortran_order, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f".npy format version {version} is not one of (1, 0) and (2, 0)")
    if math.prod(shape) * max(dtype.itemsize, 1) > sys.maxsize:
        raise ValueError(f"the header claims the shape {str(shape)[:60]}, which no memory holds")
    return shape, in_fortran_order, dtype


def iter_rows(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[np.ndarray]:
    """Yield the rows of C-ordered data one by one, so that a compressed archive never unpacks whole.

    Args:
        stream: Positioned at the first data byte.
        shape: Shape (n_rows, ...).
        dtype: The stored dtype.

    Yields:
        Read-only arrays of shape ``shape[1:]``.

    Raises:
        EOFError: If the data end early.
    """
    row_shape = shape[1:]
    row_bytes = int(np.prod(row_shape, dtype=np.int64)) * dtype.itemsize
    for number in range(shape[0]):
        raw = stream.read(row_bytes)
        if len(raw) != row_bytes:
            raise EOFError(f"the data end in row {number} of {shape[0]}")
        yield np.frombuffer(raw, dtype).reshape(row_shape)


class NpyWriter:
    """Writes a ``.npy`` file row by row, its length unknown until it is closed."""

    def __init__(self, path: Path, row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.row_shape = row_shape
        self.dtype = dtype
        self._count = 0
        self._stream = path.open("wb")
        self._write_header()

    def _write_header(self) -> None:
        """Before the number of rows is known, and again after: NumPy leaves room for it to grow."""
        shape, descr = (self._count, *self.row_shape), np.lib.format.dtype_to_descr(self.dtype)
        np.lib.format.write_array_header_1_0(self._stream, {"shape": shape, "fortran_order": False, "descr": descr})

    def append(self, row: np.ndarray) -> None:
        """Append one row of shape ``row_shape`` and dtype ``dtype``."""
        self._stream.write(np.ascontiguousarray(row, self.dtype).tobytes())
        self._count += 1

    def abandon(self) -> None:
        """Close the file as it is, for a file that nobody will read."""
        with suppress(OSError):
            self._stream.close()

    def close(self) -> None:
        """Write the header, now that the number of rows is known, and close the file."""
        with self._stream:
            self._stream.seek(0)
            self._write_header()
