"""Reads whole builds into a blueprint, and keeps the pieces of files that it stands for.

Knows which forms an op has and what each part takes in a file; refuses to know recipes.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import IN_INTEGERS, Op, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import IoType
from autoselect.errors import BuildError, ModelError
from autoselect.quantize.building.blueprint import Blueprint, Choice, Conversion, Cost, Part
from autoselect.quantize.building.int16 import why_not
from autoselect.quantize.building.slots import Slots
from autoselect.quantize.building.wholes import Wholes
from autoselect.quantize.repairing.built import Built
from autoselect.tflite import editing, reader
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp


def find_nodes(wholes: Wholes) -> tuple[Node, ...]:
    """Find every node, in graph order.

    Raises:
        ModelError: If full-integer quantization turns no op into an integer op.
    """
    float_graph = reader.read_graph(wholes.in_float.model)
    integer_graph = reader.read_graph(wholes.integer.model)
    twins = {index: integer_graph.ops[place] for index, place in wholes.integer.places.items()}
    nodes = tuple(
        Node(
            index=index,
            name=wholes.names.nodes[index],
            op_type=op.op_type,
            macs=twins[index].macs,
        )
        for index, op in enumerate(float_graph.ops)
        if index in twins and is_node(op, twins[index])
    )
    if not nodes:
        raise ModelError(
            "Full-integer quantization turns no op of this model into an integer op, so there is nothing to search. "
            + _why_none(wholes.in_float.model)
        )
    return nodes


def _why_none(model: fb.Model) -> str:
    """What may be wrong with a model of which no op becomes an integer op."""
    floats = [t for t in model.subgraphs[0].tensors if t.type == schema.TensorType.FLOAT32 and fb.is_constant(model, t)]
    largest = np.finfo(np.float32).max  # TensorFlow's converter writes it for infinity.
    wrong = [fb.tensor_name(t) for t in floats if not (np.abs(fb.constant_values(model, t)) < largest).all()]
    if wrong:
        return f"Not all values of these weights are finite numbers: {', '.join(wrong[:5])}. Mend the float model."
    return "Check that its ops have int8 kernels, and that samples have the scale that the model was trained with."


class Book:
    """Tells items that several parts share, which get a bit, from those that only one part needs."""

    def __init__(self) -> None:
        self._owners: dict[Hashable, set[Hashable]] = {}
        self._bits: dict[Hashable, tuple[int, int]] = {}
        self._packed: dict[Hashable, float] = {}

    def add_packed(self, item: Hashable, packed_bytes: float) -> None:
        """Note what a constant takes after packing."""
        self._packed[item] = packed_bytes

    def add(self, owner: Hashable, footprint: fp.Footprint) -> None:
        """Note what a part needs; two parts of one owner are never in one file."""
        for item in footprint.items:
            self._owners.setdefault(item, set()).add(owner)

    def cost(self, owner: Hashable, footprint: fp.Footprint) -> Cost:
        """The footprint with what is always there, or this part's alone, counted in."""
        own, mask, packed = footprint.own, 0, 0.0
        for item, size in footprint.items.items():
            owners = self._owners[item]
            if owners == {owner} or owner == "frame":
                own += size
                packed += self._packed.get(item, 0.0)
            elif "frame" not in owners:
                mask |= 1 << self._bits.setdefault(item, (len(self._bits), size))[0]
        return Cost(own, mask, packed)

    def item_bytes(self) -> tuple[int, ...]:
        """Bytes of each item with a bit."""
        return tuple(size for _, size in self._bits.values())

    def item_packed(self) -> tuple[float, ...]:
        """What each of them takes after packing, as far as it is a constant."""
        return tuple(self._packed.get(item, 0.0) for item in self._bits)


def packed_bytes(values: np.ndarray) -> float:
    """About what a constant takes after packing: the entropy of its levels.

    Of numbers of several bytes it is that of the first bytes, of the second ones and so on. The entropy of a sample is
    too small by half a bit's natural logarithm for each further level that occurs (Miller 1955).

    Returns:
        Bytes; at most as many as it has.
    """
    planes = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(values.size, values.dtype.itemsize)
    total = 0.0
    for plane in planes.T if values.size else ():
        counts = np.bincount(plane)
        counts = counts[counts > 0]
        shares = counts / counts.sum()
        bits = -float((shares * np.log2(shares)).sum()) * plane.size + (len(counts) - 1) / (2.0 * math.log(2.0))
        total += min(bits / 8.0, plane.size)
    return total


@cache
def conversion_footprint(op_type: str) -> fp.Footprint:
    """What one takes in a file, its tensors aside."""
    shell: fb.Model = schema.ModelT()
    shell.operatorCodes = [editing.conversion_code(op_type, [])]
    return fp.op_footprint(shell, editing.conversion_op(0, 0, 0))


def sorted_chain(chain: Iterable[Conversion], own: int) -> list[Conversion]:
    """Each behind the one whose result it converts."""
    left, made, ordered = list(chain), {own}, []
    while left:
        ready = [c for c in left if c.reads in made]
        if not ready:
            raise BuildError("The quantizer converts a tensor in a circle.")
        ordered += ready
        made |= {c.writes for c in ready}
        left = [c for c in left if c not in ready]
    return ordered


@dataclass(frozen=True, slots=True)
class Piece:
    """One op of a whole build, ready to be put into a file.

    Attributes:
        op: The op; to be copied.
        code: Its op type with its version.
        inputs: For each operand the slot (``~value`` for any form), or a constant behind all slots; None for none.
        intermediates: Constants likewise.
    """

    op: fb.Operator
    code: fb.OperatorCode
    inputs: tuple[int | None, ...]
    intermediates: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """The pieces of files that a blueprint stands for.

    Attributes:
        frame: A model with what every candidate has; its main subgraph is the float model's.
        pieces: By source and position, as :class:`autoselect.quantize.building.blueprint.Part` has them.
        tensors: For each slot a tensor like it.
        value_of: For each slot the value that it is a form of.
        names: For each slot its name where an op writes it, and where it is converted.
        constants: Tensors with their buffers; the first comes behind the last slot.
    """

    frame: fb.Model
    pieces: Mapping[tuple[str, int], Piece]
    tensors: Sequence[fb.Tensor]
    value_of: Sequence[int]
    names: tuple[Sequence[str], Sequence[str]]
    constants: Sequence[tuple[fb.Tensor, fb.Buffer]]


def is_node(float_op: Op, integer_op: Op) -> bool:
    """Whether an op is computed with float numbers in the float model and with integers in the integer build."""
    is_float = float_op.kind in (OpKind.FLOAT, OpKind.HYBRID)
    return is_float and integer_op.kind in IN_INTEGERS and float_op.op_type not in fb.CONTROL_FLOW


def read_parts(wholes: Wholes, nodes: Sequence[Node], io_type: IoType) -> tuple[Blueprint, Stock]:
    """Read what candidates are put together from.

    Raises:
        BuildError: If ops of different builds would wait for each other.
    """
    return _Reader(wholes, nodes, io_type).read()


@dataclass(frozen=True, slots=True)
class _Draft:
    """A part before the shared items are known."""

    owner: Hashable
    footprint: fp.Footprint
    part: Part


class _Reader:
    def __init__(self, wholes: Wholes, nodes: Sequence[Node], io_type: IoType) -> None:
        self._wholes, self._nodes = wholes, nodes
        self._sources = {"float": wholes.in_float, "hybrid": wholes.hybrid, "integer": wholes.integer}
        if wholes.int16 is not None:
            self._sources["int16"] = wholes.int16
        self._slots = Slots(wholes, io_type)
        self._book = Book()
        self._pieces: dict[tuple[str, int], Piece] = {}
        self._constants: list[tuple[fb.Tensor, fb.Buffer]] = []
        self._constant_at: dict[Hashable, int] = {}
        self._constant_footprints: dict[int, fp.Footprint] = {}
        self._graphs = {name: reader.read_graph(whole.model) for name, whole in self._sources.items()}
        self._no_int16: dict[int, str] = {}

    def read(self) -> tuple[Blueprint, Stock]:
        slots = self._slots
        own_names, converted_names = slots.names()
        frame_model = self._wholes.in_float.model
        frame = _frame(frame_model)
        self._book.add("frame", frame)
        drafts = self._drafts()
        own = [self._tensor(slot, own_names[slot]) for slot in range(len(slots.tensors))]
        for slot, footprint in enumerate(own):
            self._book.add(("own", slots.value_of[slot]), footprint)
        converted = [self._converted(slot, converted_names[slot]) for slot in range(len(slots.tensors))]
        for slot, footprint in enumerate(converted):
            self._book.add(("converted", slot), footprint)
        costs = [self._book.cost(("converted", slot), footprint) for slot, footprint in enumerate(converted)]
        order = _order(drafts, slots)
        indices = [drafts[i][0] for i in order]
        place_of = {index: place for place, index in enumerate(indices)}
        choices = tuple(self._choice(*drafts[i][1:]) for i in order)
        blueprint = Blueprint(
            nodes=tuple(node.index for node in self._nodes),
            choices=choices,
            indices=tuple(indices),
            place_of=tuple(place_of[node.index] for node in self._nodes),
            tensors=tuple(
                replace(reader.read_tensor(frame_model, tensor), name=name, is_constant=False)
                for tensor, name in zip(slots.tensors, own_names, strict=True)
            ),
            value_of=tuple(slots.value_of),
            inputs=tuple(slots.inputs),
            given=tuple(slots.given),
            outputs=tuple(slots.outputs),
            own_costs=tuple(
                self._book.cost(("own", slots.value_of[slot]), footprint) for slot, footprint in enumerate(own)
            ),
            conversions=self._conversions(costs),
            frame=self._book.cost("frame", frame),
            item_bytes=self._book.item_bytes(),
            item_packed=self._book.item_packed(),
            no_int16={i: self._no_int16[n.index] for i, n in enumerate(self._nodes) if n.index in self._no_int16},
        )
        stock = Stock(
            frame=frame_model,
            pieces=self._pieces,
            tensors=slots.tensors,
            value_of=slots.value_of,
            names=(own_names, converted_names),
            constants=self._constants,
        )
        return blueprint, stock

    # ------------------------------------------------------------------------------------------------ ops

    def _drafts(self) -> list[tuple[int, dict[str, _Draft], tuple[int, ...]]]:
        """Every op: its index (-1 for a helper), its forms, the values that it writes."""
        node_at = {node.index for node in self._nodes}
        twins = self._wholes.integer.places
        drafts = []
        for index, op in enumerate(self._graphs["float"].ops):
            forms: dict[str, _Draft] = {}
            is_twin = index in twins and op.op_type not in fb.CONTROL_FLOW and bool(op.outputs)
            if is_twin:
                forms["integer"] = self._draft(index, "integer", twins[index])
            if not is_twin or index in node_at:
                forms["float"] = self._draft(index, "float", index)
            if index in node_at and index not in self._wholes.hybrid.kept_float:
                forms["hybrid"] = self._draft(index, "hybrid", index)
            if index in node_at:
                self._add_int16(index, op.op_type, forms)
            raw = self._wholes.in_float.model.subgraphs[0].operators[index]
            values = tuple(self._slots.value_of[self._slots.of_float[int(t)]] for t in raw.outputs)
            drafts.append((index, forms, values))
        helpers = {"integer": self._slots.helpers, "int16": self._slots.int16_helpers}
        for source, place in ((source, place) for source, places in helpers.items() for place in places):
            draft = self._draft(("helper", source, place), source, place)
            drafts.append((-1, {"integer": draft}, tuple(self._slots.value_of[s] for s in draft.part.writes)))
        return drafts

    def _add_int16(self, index: int, op_type: str, forms: dict[str, _Draft]) -> None:
        """The form with 16-bit activations, or why there is none."""
        whole = self._wholes.int16
        reason = self._wholes.no_int16 if whole is None else why_not(whole, index, op_type, self._slots.of_int16)
        if reason:
            self._no_int16[index] = reason
        elif whole is not None:
            forms["int16"] = self._draft(index, "int16", whole.places[index])
            for slot in forms["int16"].part.writes:
                self._slots.values[self._slots.value_of[slot]].own.add(slot)

    def _draft(self, owner: Hashable, source: str, position: int) -> _Draft:
        whole = self._sources[source]
        slots = self._slots
        of = {"integer": slots.of_integer, "int16": slots.of_int16}.get(source, slots.of_float)
        model, op = whole.model, whole.model.subgraphs[0].operators[position]
        op_type = fb.op_type(model, op)
        parts = [fp.op_footprint(model, op)]
        rows: list[list[int | None]] = [[], []]  # Operands, intermediates.
        for row, tensors in zip(
            rows, (op.inputs, op.intermediates if op.intermediates is not None else ()), strict=True
        ):
            for tensor in map(int, tensors):
                if tensor in of:
                    row.append(~self._slots.value_of[of[tensor]] if op_type in reader.ANY_FORM else of[tensor])
                elif tensor < 0:
                    row.append(None)
                else:
                    constant = self._constant(whole, tensor, source)
                    row.append(constant)
                    parts.append(self._constant_footprints[constant])
        footprint = fp.total(parts)
        reads = tuple(s for s in rows[0] if s is not None and s < len(self._slots.tensors))
        writes = tuple(of[int(t)] for t in op.outputs)
        record = replace(self._graphs[source].ops[position], inputs=reads, constants=(), outputs=writes)
        self._pieces[source, position] = Piece(
            op, model.operatorCodes[op.opcodeIndex], tuple(rows[0]), tuple(s for s in rows[1] if s is not None)
        )
        self._book.add(owner, footprint)
        return _Draft(owner, footprint, Part(source, position, reads, writes, Cost(0, 0), record))

    def _constant(self, whole: Built, tensor: int, source: str) -> int:
        """Number of a constant, behind those of the slots; equal ones of all builds are one."""
        made = whole.model.subgraphs[0].tensors[tensor]
        key: Hashable = (source, tensor)
        if fb.is_constant(whole.model, made) and not made.isVariable:
            key = (editing.constant_key(made), fp.data_digest(whole.model, made.buffer))
        if key not in self._constant_at:
            self._constant_at[key] = len(self._slots.tensors) + len(self._constants)
            self._constants.append((made, whole.model.buffers[made.buffer]))
            self._constant_footprints[self._constant_at[key]] = _constant_footprint(whole.model, made, key)
            if fb.is_constant(whole.model, made):
                digest = fp.data_digest(whole.model, made.buffer)
                self._book.add_packed(("data", digest), packed_bytes(fb.constant_values(whole.model, made)))
        return self._constant_at[key]

    def _choice(self, forms: Mapping[str, _Draft], values: tuple[int, ...]) -> Choice:
        cost = self._book.cost
        parts = {name: replace(d.part, cost=cost(d.owner, d.footprint)) for name, d in forms.items()}
        first = parts.get("integer", parts.get("float"))
        assert first is not None
        is_node = "float" in parts and "integer" in parts
        return Choice(
            integer=first,
            left_out=parts["float"] if is_node else None,
            hybrid=parts.get("hybrid"),
            int16=parts.get("int16"),
            is_root=not values,
            values=values,
        )

    # -------------------------------------------------------------------------------------------- tensors

    def _tensor(self, slot: int, name: str) -> fp.Footprint:
        made = copy(self._slots.tensors[slot])
        made.name = name.encode()
        return fp.tensor_footprint(self._wholes.in_float.model, made, is_constant=made.buffer != 0)

    def _converted(self, slot: int, name: str) -> fp.Footprint:
        op_type = "DEQUANTIZE" if fb.scales(self._slots.tensors[slot]) == () else "QUANTIZE"
        return self._tensor(slot, name) + conversion_footprint(op_type)

    def _conversions(self, costs: Sequence[Cost]) -> dict[int, tuple[Conversion, ...]]:
        """For each slot that may be computed, how the others come from it."""
        conversions = {}
        for value in self._slots.values:
            for own in sorted(value.own):
                others = [slot for slot in value.slots.values() if slot != own]
                chain = [self._conversion(self._slots.parent(own, slot), slot, costs[slot]) for slot in others]
                if chain:
                    conversions[own] = tuple(sorted_chain(chain, own))
        return conversions

    def _conversion(self, source: int, result: int, cost: Cost) -> Conversion:
        tensors = self._slots.tensors
        from_float, to_float = (fb.scales(tensors[slot]) == () for slot in (source, result))
        is_wide = any(tensors[slot].type == schema.TensorType.INT16 for slot in (source, result))
        in_integers = OpKind.INT16 if is_wide else OpKind.INTEGER
        record = Op(
            op_type="DEQUANTIZE" if to_float else "QUANTIZE",
            kind=OpKind.BOUNDARY if from_float or to_float else in_integers,
            inputs=(source,),
            constants=(),
            outputs=(result,),
            macs=0,
        )
        return Conversion(source, result, cost, record)


def _order(drafts: Sequence[tuple[int, Mapping[str, _Draft], tuple[int, ...]]], slots: Slots) -> list[int]:
    """An order of ops in which every form of each comes after what it reads, near to the float model's."""
    writer = {value: i for i, (_, _, values) in enumerate(drafts) for value in values}
    order: list[int] = []
    state = [0] * len(drafts)
    for first in range(len(drafts)):
        stack = [first]
        while stack:
            i = stack[-1]
            if state[i] == 2:
                stack.pop()
                continue
            reads = {s for draft in drafts[i][1].values() for s in draft.part.reads}
            before = sorted({writer[v] for v in (~s if s < 0 else slots.value_of[s] for s in reads) if v in writer})
            waiting = [j for j in before if state[j] != 2]
            if state[i] == 1 and any(state[j] == 1 for j in waiting):
                raise BuildError("Ops of the float and of the integer build would wait for each other.")
            state[i] = 1
            if waiting:
                stack += reversed(waiting)
            else:
                state[i] = 2
                order.append(i)
                stack.pop()
    return order


def _frame(model: fb.Model) -> fp.Footprint:
    """What every candidate has, with the op types of the subgraphs beside the main one. None has an empty list."""
    shell = copy(model)
    shell.metadata, shell.signatureDefs = model.metadata or None, model.signatureDefs or None
    codes = [fp.op_code_footprint(model, op) for graph in model.subgraphs[1:] for op in graph.operators or []]
    return fp.total([fp.frame(shell), *codes])


def _constant_footprint(model: fb.Model, tensor: fb.Tensor, key: Hashable) -> fp.Footprint:
    """A constant, which is there once for all that need it."""
    is_constant = fb.is_constant(model, tensor) and not tensor.isVariable
    if not is_constant:
        tensor = copy(tensor)
        tensor.buffer = 0
    part = fp.tensor_footprint(model, tensor, is_constant=is_constant)
    return fp.Footprint(items={**part.items, ("constant", key): part.own})
