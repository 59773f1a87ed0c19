"""Reads from a few builds what a :class:`autoselect.quantize.predict.Predictor` needs to know.

Knows the float model's ops and tensors by their indices, and finds them again in built models.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import Op, OpKind, Tensor
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Fallback, IoType, Recipe
from autoselect.errors import BuildError
from autoselect.quantize.build import Assembly, Builder, CalibratedModel, kind_at
from autoselect.quantize.names import NameMap
from autoselect.quantize.predict import Bound, Cost, Edge, Form, OpState, Predictor, Wire
from autoselect.quantize.repairs import RepairKit
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp
from autoselect.tflite import reader

_FLOAT32, _UINT8 = schema.TensorType.FLOAT32, schema.TensorType.UINT8


def probe(
    calibrated: CalibratedModel,
    nodes: Sequence[Node],
    *,
    per_channel: bool = True,
    io_type: IoType = "float32",
    repairs: tuple[str, ...] = (),
    kit: RepairKit | None = None,
) -> Predictor:
    """Read a predictor from a few builds.

    Three builds denylist nothing, every node as float, every node as DRQ. One more, or a few, denylist the ops that
    read a tensor in another scale than its own; and one every second node, where the interface is of integers.

    Args:
        calibrated: The calibrated model.
        nodes: Its nodes, in graph order.
        per_channel: As in the recipes to predict.
        io_type: As in the recipes to predict.
        repairs: As in the recipes to predict. Their biases are those that a node has whatever others are, but for
            ``bias-sequential``, which takes as many bytes as ``bias`` and is probed as that.
        kit: For what the repairs need to have measured.

    Raises:
        BuildError: If the quantizer refuses, or takes ops apart in a way that cannot be predicted.
    """
    builder, float_model = Builder(calibrated, tuple(nodes), kit), fb.parse(calibrated.content)
    alike = tuple("bias" if name == "bias-sequential" else name for name in repairs)
    recipe = Recipe(per_channel=per_channel, io_type=io_type, fallback="float", repairs=alike)

    def read(denied: Sequence[int], fallback: Fallback = "float") -> _Reading:
        return _Reading(builder.assemble(denied, replace(recipe, fallback=fallback)), float_model)

    indices = [node.index for node in nodes]
    integer = read([])
    readings = _Readings(
        integer=integer,
        left_out={fallback: read(indices, fallback) for fallback in get_args(Fallback)},
        partly=[read(denied) for denied in _rescaled(integer, indices)],
    )
    if io_type != "float32":
        readings.partly.append(read(indices[::2]))
    return _Plan(calibrated.names, float_model, readings, nodes).predictor()


class _Reading:
    """A built model with the float model's tensors found in it.

    Attributes:
        origin: For each activation of the built model, the float model's tensor that it is a form of.
        parents: For each converted tensor the tensor that it is converted from.
        conversions: By name an op of each kind that there is.
    """

    def __init__(self, assembly: Assembly, float_model: fb.Model) -> None:
        self.model, self.places = assembly.model, assembly.places
        self.raw = self.model.subgraphs[0]
        self.graph = reader.read_graph(self.model)
        self.origin: dict[int, int] = {}
        self.parents: dict[int, int] = {}
        self.conversions: dict[str, Any] = {}
        float_graph = float_model.subgraphs[0]
        self.origin.update(zip(map(int, self.raw.inputs), map(int, float_graph.inputs), strict=True))
        index_at = {place: index for index, at in self.places.items() for place in at}
        if any(len(at) != 1 for at in self.places.values()):
            raise BuildError("The quantizer makes several ops of one, which cannot be predicted.")
        for place, op in enumerate(self.raw.operators):
            if place in index_at:
                sources = float_graph.operators[index_at[place]].outputs
                self.origin.update(zip(map(int, op.outputs), map(int, sources), strict=True))
            else:
                self._convert(op)

    def _convert(self, op: Any) -> None:
        name, source, result = fb.op_type(self.model, op), int(op.inputs[0]), int(op.outputs[0])
        if name not in fb.CONVERSIONS or source not in self.origin:
            raise BuildError(f"The quantizer adds an op of type {name}, which cannot be predicted.")
        self.origin[result], self.parents[result] = self.origin[source], source
        self.conversions[name] = op

    def op(self, index: int) -> Any | None:
        """The op of the built model that the float model's op at ``index`` became."""
        at = self.places.get(index)
        return self.raw.operators[at[0]] if at else None

    def record(self, index: int) -> Op:
        """The same, as an op of the graph."""
        return self.graph.ops[self.places[index][0]]

    def results(self, index: int) -> list[int]:
        """The float model's tensors that an op writes."""
        return [self.origin[t] for t in self.record(index).outputs]

    def scale(self, tensor: int, scales: Mapping[int, Sequence[int]]) -> int:
        """Which scale an activation has, of those that its tensor has in the integer build; 0 for a float one."""
        form = self.integer_form(tensor) if tensor in self.origin else None
        return 0 if form is None else scales[self.origin[tensor]].index(form)

    def integer_form(self, tensor: int) -> int | None:
        """The nearest integer tensor that ``tensor`` is or is converted from; None where there is none."""
        while not _is_integer(self.raw.tensors[tensor]):
            if tensor not in self.parents:
                return None
            tensor = self.parents[tensor]
        return tensor


@dataclass(frozen=True, slots=True)
class _Readings:
    """With nothing denylisted, with all by fallback, with some nodes."""

    integer: _Reading
    left_out: Mapping[Fallback, _Reading]
    partly: list[_Reading]


def _rescaled(integer: _Reading, nodes: Sequence[int]) -> list[list[int]]:
    """Nodes that read a tensor in another scale than its own, in groups in which none writes for another."""
    scales = _scales(integer)
    writers: dict[int, set[int]] = {}
    for index in nodes:
        tensors = {integer.origin[t] for t in integer.record(index).inputs if integer.scale(t, scales)}
        if tensors:
            writers[index] = {i for i in nodes if tensors & set(integer.results(i))}
    groups: list[list[int]] = []
    for index, needed in writers.items():
        fitting = (g for g in groups if not needed & set(g) and not any(index in writers[i] for i in g))
        group = next(fitting, None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    return groups


def _is_integer(tensor: Any) -> bool:
    quantization = tensor.quantization
    has_scale = quantization is not None and quantization.scale is not None
    return has_scale and tensor.type in (schema.TensorType.INT8, schema.TensorType.INT16)


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor of the float model as the integer build has it.

    Attributes:
        bit: Of the op or model input that writes it.
        name: That of the float model.
        scales: Its integer forms in the integer build, its own scale first; none where nothing converts it.
        own: The tensor that is written, in the integer build.
        ids: For each scale the numbers of the integer and of the float tensor in the predicted graph.
        ends: The model outputs that it is: the scale, and whether as an integer.
        unsigned: Number, in the predicted graph, of the uint8 input that it is a form of; None where there is none.
    """

    bit: int
    name: str
    scales: tuple[int, ...]
    own: int
    ids: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, bool], ...]
    unsigned: int | None


class _Plan:
    """Puts the readings together."""

    def __init__(
        self,
        names: NameMap,
        float_model: fb.Model,
        readings: _Readings,
        nodes: Sequence[Node],
    ) -> None:
        self.names, self.nodes = names, nodes
        self.integer, self.left_out, self.partly = readings.integer, readings.left_out, readings.partly
        self.output_names = names.unique_outputs()
        self.raw = float_model.subgraphs[0]
        self.float_graph = reader.read_graph(float_model)
        self.count, self.input_count = len(self.raw.operators), len(self.raw.inputs)
        self.converters = {
            name: fp.op_footprint(found.model, op)
            for found in (self.integer, *self.partly, *self.left_out.values())
            for name, op in found.conversions.items()
        }
        self.measured: dict[tuple[int, int, bool, str], fp.Footprint] = {}
        self.fixed = frozenset((*names.inputs, *names.outputs))
        self.tensors: list[Tensor] = []
        self.book = _Book()
        self.scales = _scales(self.integer)
        self.ends = self._ends()
        self.sources = self._sources()
        self.edges = {i: self._edges(i) for i in range(self.count)}
        self.wire_index = {tensor: i for i, tensor in enumerate(self.sources)}

    def predictor(self) -> Predictor:
        """Everything, with shared items counted."""
        frame, after, inputs, outputs = self._interface()
        self.book.add("frame", frame)
        op_states = [self._op_states(i) for i in range(self.count)]
        forms = [self._forms(tensor, source) for tensor, source in self.sources.items()]
        integer_ends = sum(1 << bit for bit in self._integer_ends())
        unreachable = sum(1 << n.index for n in self.nodes if n.unreachable_reason)
        return Predictor(
            nodes=tuple(n.index for n in self.nodes),
            ops=tuple(
                (self.book.op_state(found[0]), {fallback: self.book.op_state(s) for fallback, s in found[1].items()})
                for found in op_states
            ),
            integer=sum(1 << n.index for n in self.nodes) | integer_ends,
            always=unreachable | integer_ends,
            bound=tuple(self._bound(n.index) for n in self.nodes if n.bound_reason),
            wires=tuple(
                Wire(source.bit, self._readers(tensor), self.book.forms(found), source.ids)
                for (tensor, source), found in zip(self.sources.items(), forms, strict=True)
            ),
            wires_after=self._wires_after(),
            after=after,
            tensors=tuple(self.tensors),
            inputs=inputs,
            outputs=outputs,
            frame=self.book.cost("frame", frame),
            item_bytes=self.book.item_bytes(),
        )

    # ------------------------------------------------------------------------------- tensors and who reads them

    def _ends(self) -> dict[int, list[tuple[int, bool, bool]]]:
        """For each float tensor that is an output: the scale, whether integer, whether uint8; in order of outputs."""
        found: dict[int, list[tuple[int, bool, bool]]] = {}
        for output in map(int, self.integer.raw.outputs):
            if output in self.integer.origin:
                tensor = self.integer.origin[output]
                dtype = self.integer.raw.tensors[output].type
                end = (self._scale(output), dtype != _FLOAT32, dtype == _UINT8)
                found.setdefault(tensor, []).append(end)
        return found

    def _scale(self, tensor: int) -> int:
        """Which of its scales a tensor of the integer build has."""
        return self.integer.scale(tensor, self.scales)

    def _sources(self) -> dict[int, _Source]:
        """The float model's activations: its inputs, then in order of its ops."""
        sources = {}
        for j, tensor in enumerate(map(int, self.raw.inputs)):
            sources[tensor] = self._source(
                tensor, self.count + j, self.names.inputs[j], int(self.integer.raw.inputs[j])
            )
        for i, op in enumerate(self.raw.operators):
            results = () if self.integer.op(i) is None else self.integer.record(i).outputs
            for tensor, own, name in zip(map(int, op.outputs), results, self.output_names[i], strict=False):
                sources[tensor] = self._source(tensor, i, name, own)
        return sources

    def _source(self, tensor: int, bit: int, name: str, own: int) -> _Source:
        scales = tuple(self.scales.get(tensor, ()))
        graph = self.integer.graph
        if scales:
            twin = self.float_graph.tensors[tensor]
            ids = tuple((self._new(graph.tensors[form]), self._new(twin)) for form in scales)
        else:
            place = self._new(graph.tensors[own])
            ids = ((place, place),)
        is_unsigned = self.integer.raw.tensors[own].type == _UINT8
        unsigned = self._new(graph.tensors[own]) if is_unsigned else None
        ends = tuple((scale, integer) for scale, integer, uint8 in self.ends.get(tensor, ()) if not uint8)
        return _Source(bit, name, scales, own, ids, ends, unsigned)

    def _new(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _edges(self, index: int) -> tuple[Edge, ...]:
        """What an op reads; tensors by their number in the float model."""
        if self.integer.op(index) is None:
            return ()
        inputs = [t for t in self.integer.record(index).inputs if t in self.integer.origin]
        edges = []
        for position, tensor in enumerate(inputs):
            scale = self._scale(tensor)
            seen = scale if scale == 0 else self._float_scale(index, position, scale)
            edges.append(Edge(self.integer.origin[tensor], scale, seen))
        return tuple(edges)

    def _float_scale(self, index: int, position: int, default: int) -> int:
        """Which scale of an integer tensor an op reads when it is float, as seen in a build where it is."""
        for reading in self.partly:
            inputs = [t for t in reading.record(index).inputs if t in reading.origin]
            tensor = inputs[position]
            form = reading.integer_form(tensor)
            if form is not None and not _is_integer(reading.raw.tensors[tensor]):
                forms = self.scales[reading.origin[tensor]]
                keys = [fb.constant_key(self.integer.raw.tensors[t])[-1] for t in forms]
                return keys.index(fb.constant_key(reading.raw.tensors[form])[-1])
        return default

    def _readers(self, tensor: int) -> tuple[tuple[int, int], ...]:
        """For each scale masks of its readers in integers and in float; none for a tensor that is never converted."""
        masks = [[0, 0] for _ in self.sources[tensor].scales]
        if not masks:
            return ()
        for i, edges in self.edges.items():
            for edge in edges:
                if edge.tensor == tensor:
                    masks[edge.integer_scale][0] |= 1 << i
                    masks[edge.float_scale][1] |= 1 << i
        for j, output in enumerate(map(int, self.integer.raw.outputs)):
            if self.integer.origin.get(output) == tensor:
                masks[self._scale(output)][0] |= 1 << self._output_bit(j)
                masks[self._scale(output)][1] |= 1 << self._output_bit(j)
        return tuple((as_integer, as_float) for as_integer, as_float in masks)

    def _output_bit(self, position: int) -> int:
        return self.count + self.input_count + position

    def _integer_ends(self) -> list[int]:
        raw = self.integer.raw
        inputs = [self.count + j for j, t in enumerate(raw.inputs) if raw.tensors[t].type != _FLOAT32]
        outputs = [self._output_bit(j) for j, t in enumerate(raw.outputs) if raw.tensors[t].type != _FLOAT32]
        return inputs + outputs

    def _bound(self, index: int) -> Bound:
        tensors = {(edge.tensor, edge.float_scale) for edge in self.edges[index]}
        bits = {self.sources[tensor].bit for tensor, _ in tensors}
        others = 0
        for tensor, scale in tensors:
            readers = self._readers(tensor)
            others |= readers[scale][1] if readers else 0
        return Bound(index, sum(1 << bit for bit in bits if bit < self.count), others & ~(1 << index))

    def _wires_after(self) -> tuple[tuple[int, ...], ...]:
        rows: list[list[int]] = [[] for _ in range(self.count + 1)]
        for i, source in enumerate(self.sources.values()):
            rows[source.bit + 1 if source.bit < self.count else 0].append(i)
        return tuple(map(tuple, rows))

    # ----------------------------------------------------------------------------------------- the interface

    def _interface(self) -> tuple[fp.Footprint, tuple[Op, ...], tuple[int, ...], Any]:
        """What every candidate has: the frame, conversions to uint8, inputs and outputs."""
        reading, parts = self.integer, [fp.frame(self.integer.model)]
        after, inputs = [], []
        for tensor in map(int, reading.raw.inputs):
            source = self.sources[reading.origin[tensor]]
            first = 0 if reading.raw.tensors[tensor].type != _FLOAT32 else 1
            inputs.append(source.ids[0][first] if source.unsigned is None else source.unsigned)
        outputs: list[tuple[Edge | None, int]] = []
        for j, tensor in enumerate(map(int, reading.raw.outputs)):
            if tensor not in reading.origin:
                outputs.append((None, self._new(reading.graph.tensors[tensor])))
                continue
            found = reading.origin[tensor]
            edge = Edge(self.wire_index[found], self._scale(tensor), self._scale(tensor))
            if reading.raw.tensors[tensor].type == _UINT8:
                place = self._new(reading.graph.tensors[tensor])
                after.append(
                    _conversion(self.sources[found].ids[edge.integer_scale][0], place, OpKind.INTEGER, "QUANTIZE")
                )
                parts += self._unsigned(tensor)
                outputs.append((None, place))
            else:
                outputs.append((edge, self._output_bit(j)))
        return fp.total(parts), tuple(after), tuple(inputs), tuple(outputs)

    def _unsigned(self, tensor: int) -> list[fp.Footprint]:
        reading = self.integer
        return [
            fp.tensor_footprint(reading.model, reading.raw.tensors[tensor], is_constant=False),
            self.converters["QUANTIZE"],
        ]

    # --------------------------------------------------------------------------------------------------- ops

    def _op_states(self, index: int) -> tuple[_OpDraft, dict[Fallback, _OpDraft]]:
        left_out = {fallback: self._op_state(index, found, False) for fallback, found in self.left_out.items()}
        return self._op_state(index, self.integer, True), left_out

    def _op_state(self, index: int, reading: _Reading, integer: bool) -> _OpDraft:
        op = reading.op(index)
        if (op is None) != (self.integer.op(index) is None):
            raise BuildError(f"The quantizer folds op {index} in some builds only, which cannot be predicted.")
        if op is None:
            return _OpDraft(index, fp.Footprint(), "folded", None, ())
        rows = (op.inputs, op.intermediates)
        used = {int(t) for row in rows if row is not None for t in row if t >= 0 and int(t) not in reading.origin}
        parts = [_constant(reading, t) for t in sorted(used)]
        footprint = fp.total([fp.op_footprint(reading.model, op), *parts])
        edges = tuple(replace(edge, tensor=self.wire_index[edge.tensor]) for edge in self.edges[index])
        form = 0 if integer else 1
        record = replace(
            reading.record(index),
            inputs=tuple(
                self.sources[edge.tensor].ids[edge.integer_scale if integer else 0][form] for edge in self.edges[index]
            ),
            constants=(),
            outputs=tuple(self.sources[int(tensor)].ids[0][form] for tensor in self.raw.operators[index].outputs),
        )
        draft = _OpDraft(
            index,
            footprint,
            kind_at(reading.graph, reading.places[index]),
            record,
            edges if not integer and any(edge.float_scale for edge in edges) else (),
        )
        self.book.add(index, footprint)
        return draft

    # ----------------------------------------------------------------------------------- tensors in all forms

    def _forms(self, tensor: int, source: _Source) -> dict[int, _FormDraft]:
        """Every form of a tensor, by key."""
        found = {}
        uses = ((0, 0), (0, 1), (1, 0), (1, 1))
        for written, reads in product((0, 1), product(uses, repeat=len(source.scales))):
            key = written
            for by_integer, by_float in reads:
                key = key << 2 | by_integer << 1 | by_float
            draft = self._form(tensor, source, bool(written), reads)
            self.book.add(("wire", tensor), draft.footprint)
            found[key] = draft
        return found

    def _form(self, tensor: int, source: _Source, written: bool, reads: Sequence[tuple[int, int]]) -> _FormDraft:
        own = self._own_name(source, written)
        if not source.scales:
            return _FormDraft(tensor, self._unconverted(tensor, source, written), ())
        unsigned = source.unsigned is not None
        parts, conversions = [], []
        if unsigned:
            parts.append(
                fp.tensor_footprint(self.integer.model, self.integer.raw.tensors[source.own], is_constant=False)
            )
        else:
            parts.append(self._tensor(tensor, source, 0, written, own))

        def convert(scale: int, integer: bool, start: tuple[int, str]) -> tuple[int, str]:
            """Add a conversion and what it writes; returns the number and the name of that."""
            is_end = (scale, integer) in source.ends and (integer or written)
            dtype = self._dtype(source, scale) if integer else "float32"
            name = source.name if is_end else f"{start[1]}_{dtype}"
            parts.append(self._tensor(tensor, source, scale, integer, name))
            op_type = "QUANTIZE" if integer else "DEQUANTIZE"
            parts.append(self.converters[op_type])
            crosses = not integer or (scale == 0 and not unsigned)
            result = source.ids[scale][0 if integer else 1]
            kind = OpKind.BOUNDARY if crosses else OpKind.INTEGER
            conversions.append(_conversion(start[0], result, kind, op_type))
            return result, name

        start = first = (source.ids[0][0 if written else 1] if source.unsigned is None else source.unsigned, own)
        rescaled = any(by_integer or (by_float and written) for by_integer, by_float in reads[1:])
        if (not written or unsigned) and (reads[0][0] or rescaled):
            first = convert(0, True, start)
        for scale, (by_integer, by_float) in enumerate(reads):
            found = first if scale else start
            if scale and (by_integer or (by_float and written)):
                found = convert(scale, True, first)
            if written and by_float:
                convert(scale, False, found)
        return _FormDraft(tensor, fp.total(parts), tuple(conversions))

    def _unconverted(self, tensor: int, source: _Source, written: bool) -> fp.Footprint:
        """A tensor that every recipe has in one form, as the op that writes it leaves it."""
        reading, own = self.integer, source.own
        if not written:
            reading = self.left_out["float"]
            own = next(t for t, origin in reading.origin.items() if origin == tensor)
        return fp.tensor_footprint(reading.model, reading.raw.tensors[own], is_constant=False)

    def _own_name(self, source: _Source, written: bool) -> str:
        """Name of what the tensor's own op writes: the float model's, if the interface leaves it that."""
        if source.bit >= self.count or source.name not in self.fixed:
            return source.name
        if any((scale == 0 and integer == written) or not (written or integer) for scale, integer in source.ends):
            return source.name
        return f"{source.name}_{self._dtype(source, 0) if written else 'float32'}"

    def _dtype(self, source: _Source, scale: int) -> str:
        return fb.TENSOR_DTYPES[self.integer.raw.tensors[source.scales[scale]].type]

    def _tensor(self, tensor: int, source: _Source, scale: int, integer: bool, name: str) -> fp.Footprint:
        """One form of a tensor, under a name."""
        key = (tensor, scale, integer, name)
        if key not in self.measured:
            example = _named(self.integer.raw.tensors[source.scales[scale]], name)
            if not integer:
                example.type, example.quantization = _FLOAT32, schema.QuantizationParametersT()
            self.measured[key] = fp.tensor_footprint(self.integer.model, example, is_constant=False)
        return self.measured[key]


def _scales(reading: _Reading) -> dict[int, list[int]]:
    """For each float tensor its integer forms in the integer build: its own scale first, then those made of it."""
    found: dict[int, list[int]] = {}
    order = sorted(
        reading.origin, key=lambda t: t in reading.parents and reading.integer_form(reading.parents[t]) is not None
    )
    for tensor in order:
        if not _is_integer(reading.raw.tensors[tensor]):
            continue
        forms = found.setdefault(reading.origin[tensor], [])
        parent = reading.parents.get(tensor)
        if forms and parent != forms[0]:
            raise BuildError("The quantizer converts a tensor in a way that cannot be predicted.")
        forms.append(tensor)
    return found


def _named(tensor: Any, name: str) -> Any:
    tensor = copy(tensor)
    tensor.name = name.encode()
    return tensor


def _conversion(source: int, result: int, kind: OpKind, op_type: str) -> Op:
    return Op(op_type=op_type, kind=kind, inputs=(source,), constants=(), outputs=(result,), macs=0)


def _constant(reading: _Reading, index: int) -> fp.Footprint:
    """A constant, which is there once for all that need it; or a variable, which is its op's own."""
    tensor = reading.raw.tensors[index]
    if tensor.isVariable or tensor.buffer == 0:
        return fp.tensor_footprint(reading.model, tensor, is_constant=False)
    part = fp.tensor_footprint(reading.model, tensor, is_constant=True)
    data = fb.buffer_bytes(reading.model.buffers[tensor.buffer])
    return fp.Footprint(items={**part.items, ("constant", fb.constant_key(tensor), data): part.own})


@dataclass(frozen=True, slots=True)
class _OpDraft:
    owner: Hashable
    footprint: fp.Footprint
    kind: str
    record: Op | None
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class _FormDraft:
    tensor: int
    footprint: fp.Footprint
    conversions: tuple[Op, ...]


class _Book:
    """Tells items that several parts share, which get a bit, from those that only one part needs."""

    def __init__(self) -> None:
        self._owners: dict[Hashable, set[Hashable]] = {}
        self._bits: dict[Hashable, tuple[int, int]] = {}

    def add(self, owner: Hashable, footprint: fp.Footprint) -> None:
        """Note what a part needs; two parts of one owner are never in one file."""
        for item in footprint.items:
            self._owners.setdefault(item, set()).add(owner)

    def cost(self, owner: Hashable, footprint: fp.Footprint) -> Cost:
        """The footprint with what is always there, or this part's alone, counted in."""
        own, mask = footprint.own, 0
        for item, size in footprint.items.items():
            owners = self._owners[item]
            if owners == {owner} or owner == "frame":
                own += size
            elif "frame" not in owners:
                mask |= 1 << self._bits.setdefault(item, (len(self._bits), size))[0]
        return Cost(own, mask)

    def op_state(self, draft: _OpDraft) -> OpState:
        return OpState(self.cost(draft.owner, draft.footprint), draft.kind, draft.record, draft.edges)

    def forms(self, drafts: Mapping[int, _FormDraft]) -> dict[int, Form]:
        return {
            key: Form(self.cost(("wire", draft.tensor), draft.footprint), draft.conversions)
            for key, draft in drafts.items()
        }

    def item_bytes(self) -> tuple[int, ...]:
        """Bytes of each item with a bit."""
        return tuple(size for _, size in self._bits.values())
