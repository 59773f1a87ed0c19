"""The float model's activations as the integer build has them: who writes each, and who reads it in which scale."""

from __future__ import annotations

from dataclasses import dataclass

from autoselect.domain.graph import Tensor
from autoselect.quantize.names import NameMap
from autoselect.quantize.predict import Bound, Edge
from autoselect.quantize.readings import FLOAT32, UINT8, Readings, is_integer, scales_of
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader


@dataclass(frozen=True, slots=True)
class Source:
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


class Wiring:
    """Which tensors there are, and who writes and reads them.

    Attributes:
        count: How many ops the float model has.
        sources: Its activations, in order: its inputs, then what its ops write.
        edges: What each of its ops reads; tensors by their number in the float model.
        wire_index: Place of each activation among ``sources``.
        tensors: Of the predicted graphs, as far as they are found.
    """

    def __init__(self, names: NameMap, float_model: fb.Model, readings: Readings) -> None:
        self._names, self._integer, self._partly = names, readings.integer, readings.partly
        self._raw, self._float_graph = float_model.subgraphs[0], reader.read_graph(float_model)
        self._scales = scales_of(self._integer)
        self._model_outputs = self._ends()
        self.count = len(self._raw.operators)
        self.tensors: list[Tensor] = []
        self.sources = self._sources()
        self.edges = {i: self._edges(i) for i in range(self.count)}
        self.wire_index = {tensor: i for i, tensor in enumerate(self.sources)}

    def scale(self, tensor: int) -> int:
        """Which of its scales a tensor of the integer build has."""
        return self._integer.scale(tensor, self._scales)

    def add(self, tensor: Tensor) -> int:
        """Number of one more tensor in the predicted graphs."""
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def readers(self, tensor: int) -> tuple[tuple[int, int], ...]:
        """For each scale masks of its readers in integers and in float; none for a tensor that is never converted."""
        masks = [[0, 0] for _ in self.sources[tensor].scales]
        if not masks:
            return ()
        for i, edges in self.edges.items():
            for edge in edges:
                if edge.tensor == tensor:
                    masks[edge.integer_scale][0] |= 1 << i
                    masks[edge.float_scale][1] |= 1 << i
        for j, output in enumerate(map(int, self._integer.raw.outputs)):
            if self._integer.origin.get(output) == tensor:
                masks[self.scale(output)][0] |= 1 << self.output_bit(j)
                masks[self.scale(output)][1] |= 1 << self.output_bit(j)
        return tuple((as_integer, as_float) for as_integer, as_float in masks)

    def output_bit(self, position: int) -> int:
        """Bit of a model output."""
        return self.count + len(self._raw.inputs) + position

    def integer_ends(self) -> list[int]:
        """Bits of the model inputs and outputs that are integers."""
        raw = self._integer.raw
        inputs = [self.count + j for j, t in enumerate(raw.inputs) if raw.tensors[t].type != FLOAT32]
        outputs = [self.output_bit(j) for j, t in enumerate(raw.outputs) if raw.tensors[t].type != FLOAT32]
        return inputs + outputs

    def bound(self, index: int) -> Bound:
        """What a bound node depends on; ``index`` is that of its op."""
        tensors = {(edge.tensor, edge.float_scale) for edge in self.edges[index]}
        bits = {self.sources[tensor].bit for tensor, _ in tensors}
        others = 0
        for tensor, scale in tensors:
            readers = self.readers(tensor)
            others |= readers[scale][1] if readers else 0
        return Bound(index, sum(1 << bit for bit in bits if bit < self.count), others & ~(1 << index))

    def wires_after(self) -> tuple[tuple[int, ...], ...]:
        """Places among ``sources`` of the model's inputs, then for each op of those that it writes."""
        rows: list[list[int]] = [[] for _ in range(self.count + 1)]
        for i, source in enumerate(self.sources.values()):
            rows[source.bit + 1 if source.bit < self.count else 0].append(i)
        return tuple(map(tuple, rows))

    def _ends(self) -> dict[int, list[tuple[int, bool, bool]]]:
        """For each float tensor that is an output: the scale, whether integer, whether uint8; in order of outputs."""
        found: dict[int, list[tuple[int, bool, bool]]] = {}
        for output in map(int, self._integer.raw.outputs):
            if output in self._integer.origin:
                tensor = self._integer.origin[output]
                dtype = self._integer.raw.tensors[output].type
                end = (self.scale(output), dtype != FLOAT32, dtype == UINT8)
                found.setdefault(tensor, []).append(end)
        return found

    def _sources(self) -> dict[int, Source]:
        """The float model's activations: its inputs, then in order of its ops."""
        sources = {}
        output_names = self._names.unique_outputs()
        for j, tensor in enumerate(map(int, self._raw.inputs)):
            sources[tensor] = self._source(
                tensor, self.count + j, self._names.inputs[j], int(self._integer.raw.inputs[j])
            )
        for i, op in enumerate(self._raw.operators):
            results = () if self._integer.op(i) is None else self._integer.record(i).outputs
            for tensor, own, name in zip(map(int, op.outputs), results, output_names[i], strict=False):
                sources[tensor] = self._source(tensor, i, name, own)
        return sources

    def _source(self, tensor: int, bit: int, name: str, own: int) -> Source:
        scales = tuple(self._scales.get(tensor, ()))
        graph = self._integer.graph
        if scales:
            twin = self._float_graph.tensors[tensor]
            ids = tuple((self.add(graph.tensors[form]), self.add(twin)) for form in scales)
        else:
            place = self.add(graph.tensors[own])
            ids = ((place, place),)
        is_unsigned = self._integer.raw.tensors[own].type == UINT8
        unsigned = self.add(graph.tensors[own]) if is_unsigned else None
        ends = tuple((scale, integer) for scale, integer, uint8 in self._model_outputs.get(tensor, ()) if not uint8)
        return Source(bit, name, scales, own, ids, ends, unsigned)

    def _edges(self, index: int) -> tuple[Edge, ...]:
        """What an op reads; tensors by their number in the float model."""
        if self._integer.op(index) is None:
            return ()
        inputs = [t for t in self._integer.record(index).inputs if t in self._integer.origin]
        edges = []
        for position, tensor in enumerate(inputs):
            scale = self.scale(tensor)
            seen = scale if scale == 0 else self._float_scale(index, position, scale)
            edges.append(Edge(self._integer.origin[tensor], scale, seen))
        return tuple(edges)

    def _float_scale(self, index: int, position: int, default: int) -> int:
        """Which scale of an integer tensor an op reads when it is float, as seen in a build where it is."""
        for reading in self._partly:
            inputs = [t for t in reading.record(index).inputs if t in reading.origin]
            tensor = inputs[position]
            form = reading.integer_form(tensor)
            if form is not None and not is_integer(reading.raw.tensors[tensor]):
                forms = self._scales[reading.origin[tensor]]
                keys = [fb.constant_key(self._integer.raw.tensors[t])[-1] for t in forms]
                return keys.index(fb.constant_key(reading.raw.tensors[form])[-1])
        return default
