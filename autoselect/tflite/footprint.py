"""How many bytes each part of a model takes in a file: the size of ``flatbuffer.serialise``'s file as a sum of parts.

A part has bytes of its own and *shared items*, which a file holds once however many parts need them: the layouts of
tables (vtables), vectors of zero points, the data of constants. The size of a file is that of its frame, of its parts
and of the union of their items, see :func:`file_size`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.steady_builder import BUFFER_ALIGNMENT, BUFFER_ENTRY, HEAD_PAD, SteadyBuilder

_SLOT = 4
"""Bytes of one entry in a vector of tables."""
_ROOT_AND_IDENTIFIER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a part of a model takes.

    Attributes:
        own: Bytes that it takes each time.
        items: Bytes of each shared item that it needs, by the item's identity.
    """

    own: int = 0
    items: Mapping[Hashable, int] = field(default_factory=dict)

    def __add__(self, other: Footprint) -> Footprint:
        """Both parts, in one file."""
        return Footprint(own=self.own + other.own, items={**self.items, **other.items})


def total(parts: Iterable[Footprint]) -> Footprint:
    """All parts, in one file."""
    items: dict[Hashable, int] = {}
    own = 0
    for part in parts:
        own += part.own
        items.update(part.items)
    return Footprint(own=own, items=items)


def file_size(part_bytes: int) -> int:
    """Bytes of a file whose frame, parts and shared items take so many."""
    return _round_up(HEAD_PAD + BUFFER_ENTRY + part_bytes + _ROOT_AND_IDENTIFIER, BUFFER_ALIGNMENT)


def frame(model: fb.Model) -> Footprint:
    """What is left of a model without the tensors and ops of its main subgraph."""
    shell = copy(model)
    shell.subgraphs = [copy(graph) for graph in model.subgraphs]
    shell.subgraphs[0].tensors, shell.subgraphs[0].operators = [], []
    shell.buffers, shell.operatorCodes = [], []
    entries = {0, *(int(entry.buffer) for entry in model.metadata or [])}
    entries |= {int(tensor.buffer) for graph in model.subgraphs[1:] for tensor in graph.tensors}
    return total([_packed(shell, shell), *(_buffer(model, index) for index in sorted(entries))])


def tensor_footprint(model: fb.Model, tensor: fb.Tensor, *, is_constant: bool) -> Footprint:
    """A tensor of the main subgraph with its buffer, which a constant shares with those of equal bytes."""
    part = _packed(tensor, _holder(tensor)) + Footprint(own=_SLOT)
    if tensor.buffer == 0:
        return part
    buffer = _buffer(model, tensor.buffer)
    if not is_constant:
        return part + buffer
    shared: dict[Hashable, int] = {**buffer.items, ("data", data_digest(model, tensor.buffer)): buffer.own}
    return part + Footprint(items=shared)


def data_digest(model: fb.Model, buffer: int) -> str:
    """SHA-256 of a buffer's data, hex."""
    return hashlib.sha256(fb.buffer_bytes(model.buffers[buffer])).hexdigest()


def op_footprint(model: fb.Model, op: fb.Operator) -> Footprint:
    """An op of the main subgraph with its op type; the tensors are parts of their own."""
    return _packed(op, _holder()) + Footprint(own=_SLOT) + op_code_footprint(model, op)


def op_code_footprint(model: fb.Model, op: fb.Operator) -> Footprint:
    """The op type of an op, which is there once for all that have it."""
    code = copy(model.operatorCodes[op.opcodeIndex])
    packed = _packed(code, _holder(code=code))
    return Footprint(items={**packed.items, ("code", code.builtinCode, code.customCode): packed.own + _SLOT})


def _buffer(model: fb.Model, index: int) -> Footprint:
    """A buffer's entry and its data."""
    size = len(fb.buffer_bytes(model.buffers[index]))
    if size:
        return Footprint(own=_SLOT + _round_up(BUFFER_ENTRY + 4 + size, BUFFER_ALIGNMENT))
    entry = copy(model.buffers[index])
    entry.__class__, entry.place = fb.PlacedBuffer, None
    return _packed(entry, _holder()) + Footprint(own=_SLOT)


def _packed(part: Any, model: fb.Model) -> Footprint:
    """What a part takes in a model that holds it; remembered, as most parts of a model are of a few forms."""
    fb.ready_to_pack(model)
    return _pack(_Packing(form=(_form(part), frozenset(fb.zero_points(model))), part=part, model=model))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packing:
    """A part to be packed; those of equal form take equally many bytes."""

    form: Hashable
    part: Any = field(compare=False)
    model: fb.Model = field(compare=False)


def _form(value: Any, usual: Any = None) -> Hashable:
    """What the bytes of a part follow from: which fields it has beside the ``usual`` ones, and how long those are."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes() if value.dtype == np.int64 else value.size
    if isinstance(value, list):
        return "list", len(value), tuple(_form(part) for part in value if hasattr(part, "__dict__"))
    if isinstance(value, (str, bytes)):
        return "text", len(value)
    if hasattr(value, "__dict__"):
        table: Any = type(value)
        usually = vars(_new(table))
        return table, tuple(_form(own, usually.get(name)) for name, own in vars(value).items())
    return value is None, bool(value == usual)


@cache
def _new(table: type) -> Any:
    """A table of the schema as it is made: a number that is the same there is not written."""
    return table()


@lru_cache(maxsize=4096)
def _pack(packing: _Packing) -> Footprint:
    """Pack a part twice: the second time everything that can be shared is there, and only its own bytes are new."""
    part, model = packing.part, packing.model
    builder = SteadyBuilder(1 << 12)
    builder.write_zero_points(fb.zero_points(model))
    part.Pack(builder)
    before = builder.Offset()
    part.Pack(builder)
    items: dict[Hashable, int] = {("layout", key): _round_up(2 * (len(key) + 1), 4) for key in builder.layouts}
    items.update({("zero points", data): len(data) + 8 for data in fb.zero_points(model)})
    return Footprint(own=builder.Offset() - before, items=items)


def _holder(tensor: fb.Tensor | None = None, code: fb.OperatorCode | None = None) -> fb.Model:
    """A model that holds nothing but the part."""
    shell: fb.Model = schema.ModelT()
    graph: fb.SubGraph = schema.SubGraphT()
    graph.tensors = [] if tensor is None else [tensor]
    shell.subgraphs, shell.operatorCodes = [graph], [] if code is None else [code]
    return shell


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step
