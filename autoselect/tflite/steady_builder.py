"""Writes the tables of a model, each in as many bytes wherever it comes to lie, and in a third of the usual time.

Knows the format of flatbuffers and TFLite's alignment of data, not what a model is. It uses what flatbuffers does not
promise: the fields of its builder, and that what lies before ``head`` is still zero.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

BUFFER_ALIGNMENT = 16
"""Bytes. The schema's ``force_align`` on ``Buffer.data``; kernels on microcontrollers rely on it."""

HEAD_PAD = 12

BUFFER_ENTRY = 8
"""Bytes."""

_OFFSET = struct.Struct("<I")
_TO_LAYOUT = struct.Struct("<i")
_LITTLE = {dtype: np.dtype(dtype).newbyteorder("<") for dtype in "?bBhHiIlLqQefd"}


class SteadyBuilder(flatbuffers.Builder):  # type: ignore[misc]
    """Writes each part of a model in as many bytes wherever it comes to lie, so that a file's size is a sum.

    What needs more than 4-byte alignment goes first, in blocks of its own: the data of buffers, then the zero
    points, equal ones once. All that follows begins and ends at a multiple of 4.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._zero_points: dict[bytes, int] = {}
        # An entry that nothing points at brings the layout that all others share, and the first data so begins at
        # an offset from which it takes what every other takes.
        self.head -= HEAD_PAD
        self.write_buffer(self.Offset())

    @property
    def layouts(self) -> list[tuple[int, ...]]:
        """The layout of each kind of table so far: the offsets of its fields."""
        return list(self.vtables)

    def write_data(self, data: np.ndarray) -> int:
        """Write a buffer with its data, uint8, aligned, and return its place."""
        self.StartVector(1, len(data), BUFFER_ALIGNMENT)
        self.head -= len(data)
        np.frombuffer(self.Bytes, np.uint8)[self.head : self.head + len(data)] = data
        return self.write_buffer(int(self.EndVector()))

    def write_buffer(self, data: int) -> int:
        """Write the entry of a buffer whose data is written, and return its place."""
        schema.BufferStart(self)
        schema.BufferAddData(self, data)
        return int(schema.BufferEnd(self))

    def write_zero_points(self, vectors: Iterable[bytes]) -> None:
        """Write distinct vectors of zero points, as little-endian int64, in an order that depends on nothing else."""
        for data in sorted(vectors, key=lambda data: (len(data), data)):
            self._zero_points[data] = self._vector(np.frombuffer(data, dtype="<i8"))

    # What follows is flatbuffers' own, with its names, but for the checks that generated code passes anyway.

    def Prep(self, size: int, additionalBytes: int) -> None:  # noqa: N802, N803
        """Make room, aligned."""
        self.minalign: int = max(size, self.minalign)
        short = -(len(self.Bytes) - self.head + additionalBytes) & (size - 1)
        while self.head < short + size + additionalBytes:
            before = len(self.Bytes)
            self.GrowByteBuffer()
            self.head += len(self.Bytes) - before
        self.head -= short

    def Place(self, x: Any, flags: Any) -> None:  # noqa: N802
        """Write a number."""
        self.head -= flags.bytewidth
        flags.packer_type.pack_into(self.Bytes, self.head, x)

    def PrependSlot(self, flags: Any, o: int, x: Any, d: Any) -> None:  # noqa: N802
        """Write a field that is not the default."""
        if x != d or (self.forceDefaults and d is not None):
            self.Prep(flags.bytewidth, 0)
            self.head -= flags.bytewidth
            flags.packer_type.pack_into(self.Bytes, self.head, x)
            self.current_vtable[o] = len(self.Bytes) - self.head

    def PrependUint32Slot(self, o: int, x: int, d: int) -> None:  # noqa: N802
        """Write a number; the first of a table, which is an op's index of its type, also where it is the default.

        An op so takes as many bytes whichever op types there are beside its own.
        """
        super().PrependUint32Slot(o, x, None if o == 0 else d)

    def PrependUOffsetTRelative(self, off: int) -> None:  # noqa: N802
        """Write where a part lies."""
        self.Prep(4, 0)
        self.head -= 4
        _OFFSET.pack_into(self.Bytes, self.head, len(self.Bytes) - self.head - off)

    def PrependUOffsetTRelativeSlot(self, o: int, x: int, d: int) -> None:  # noqa: N802
        """Write where a field lies."""
        if x != d or self.forceDefaults:
            self.PrependUOffsetTRelative(x)
            self.current_vtable[o] = len(self.Bytes) - self.head

    def StartObject(self, numfields: int) -> None:  # noqa: N802
        """Begin a table."""
        self.current_vtable = [0] * numfields
        self.objectEnd = len(self.Bytes) - self.head

    def EndObject(self) -> int:  # noqa: N802
        """Finish a table; its layout is written once for all that have it."""
        self.Prep(4, 0)
        self.head -= 4
        end = len(self.Bytes) - self.head
        fields = self.current_vtable
        while fields and not fields[-1]:
            fields.pop()
        lie = [end - field if field else 0 for field in fields]
        key = (*lie[::-1], end - self.objectEnd)
        vtable = self.vtables.get(key)
        if vtable is None:
            count = len(lie) + 2
            self.Prep(2, 2 * count - 2)
            self.head -= 2 * count
            struct.pack_into(f"<{count}H", self.Bytes, self.head, 2 * count, end - self.objectEnd, *lie)
            vtable = self.vtables[key] = len(self.Bytes) - self.head
        _TO_LAYOUT.pack_into(self.Bytes, len(self.Bytes) - end, vtable - end)
        self.Prep(4, 0)
        return int(end)

    def CreateString(self, s: Any, encoding: str = "utf-8", errors: str = "strict") -> int:  # noqa: N802
        """Write a text."""
        text = s.encode(encoding, errors) if isinstance(s, str) else s
        self.Prep(4, len(text) + 1)
        self.head -= len(text) + 1
        self.Bytes[self.head : self.head + len(text)] = text
        return self._counted(len(text))

    def CreateNumpyVector(self, x: np.ndarray) -> int:  # noqa: N802
        """Write a vector, or find it written."""
        written = self._zero_points.get(x.tobytes()) if x.dtype == np.int64 else None
        return self._vector(x) if written is None else written

    def _vector(self, x: np.ndarray) -> int:
        content = x.astype(_LITTLE[x.dtype.char], copy=False).tobytes()
        self.Prep(4, len(content))
        self.Prep(x.dtype.itemsize, len(content))
        self.head -= len(content)
        self.Bytes[self.head : self.head + len(content)] = content
        return self._counted(x.size)

    def _counted(self, count: int) -> int:
        """Write the count of a vector's entries before it."""
        self.head -= 4
        _OFFSET.pack_into(self.Bytes, self.head, count)
        return int(len(self.Bytes) - self.head)
