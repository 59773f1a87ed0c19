"""Predicts a candidate without building it: its size, what becomes of each node, and its graph.

Knows how integer and float ops join in a built model; refuses to know builds, which
:mod:`autoselect.quantize.probing` reads, and accuracy. The rules, as tried on built models:

* A node is integer unless it is denylisted. A *bound* one (:class:`autoselect.domain.layers.Node`), which makes a
  tensor smaller and keeps its scale, stays integer all the same where it reads integers that no other float op reads:
  the quantizer moves the DEQUANTIZE behind it.
* What an op is made of (its weights, biases, options) depends on its own state alone: scales come from calibration.
* A tensor exists in the form that its op writes, and once more for all readers of the other form: one QUANTIZE or
  DEQUANTIZE. Integer readers that need another scale than the tensor's own share one QUANTIZE more for each scale.
* A float op reads what a float op wrote directly. Which scale it reads of what an integer op wrote is seen in a build:
  that which it would need as integer op, or the tensor's own.
* The model's outputs are readers, and its inputs writers, of a fixed form: that of the interface.

Sizes add up because :mod:`autoselect.tflite.flatbuffer` writes files that way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from autoselect.domain.graph import Graph, Op, Tensor
from autoselect.domain.recipe import Fallback
from autoselect.tflite import footprint as fp


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a build would give.

    Attributes:
        size_bytes: Size of the file.
        kinds: What becomes of each node, in graph order: ``integer``, ``hybrid``, ``float`` or ``folded``.
        graph: The built graph without its constants. It lists the tensors of all recipes, and its op order may differ
            from the built one's where that does not matter.
    """

    size_bytes: int
    kinds: tuple[str, ...]
    graph: Graph


@dataclass(frozen=True, slots=True)
class Cost:
    """A footprint, its shared items as a bit mask."""

    own: int
    items: int


@dataclass(frozen=True, slots=True)
class Form:
    """A tensor in one recipe: what all its forms and their conversions take, and the conversions in order."""

    cost: Cost
    conversions: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """What is read: the tensor, and which of its scales as integers and as floats; scale 0 is the tensor's own."""

    tensor: int
    integer_scale: int
    float_scale: int


@dataclass(frozen=True, slots=True)
class Wire:
    """A tensor of the float model.

    Attributes:
        writer: Bit of the op or model input that writes it.
        readers: For each of its scales two masks of the ops and model outputs: those that read it so when they are
            integer, and when they are float.
        forms: By key, see :func:`form_key`.
        ids: For each scale the numbers of the integer and of the float tensor in the predicted graph.
    """

    writer: int
    readers: tuple[tuple[int, int], ...]
    forms: Mapping[int, Form]
    ids: tuple[tuple[int, int], ...]

    def read(self, edge: Edge, state: int, *, integer: bool) -> int:
        """Number of the tensor that an integer or a float reader reads."""
        if integer:
            return self.ids[edge.integer_scale][0]
        return self.ids[edge.float_scale if state >> self.writer & 1 else 0][1]


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound node: its bit, a mask of the ops that write what it reads, and one of the others that read the same."""

    op: int
    writers: int
    others: int


@dataclass(frozen=True, slots=True)
class OpState:
    """One op of the float model, as integer op or left out; without a record it is folded away.

    Attributes:
        cost: Of the op and its constants.
        kind: What became of it.
        record: The op with its inputs and outputs in the predicted graph.
        edges: What it reads, where that depends on what others are; else empty.
    """

    cost: Cost
    kind: str
    record: Op | None
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """Predicts the candidates of one calibrated model, one granularity and one interface.

    It holds plain values only, so it can be pickled. In bit masks, and as writers, the float model's ops come first,
    then its inputs, then its outputs.

    Attributes:
        nodes: Op index of each node.
        ops: For each op of the float model its integer state, and by fallback what it is when left out.
        integer: Mask of what is integer with nothing denylisted.
        always: Mask of what is integer whatever is denylisted.
        bound: The bound nodes, in graph order.
        wires: The float model's activations.
        wires_after: First the wires of the model's inputs, then for each op those that it writes, as indices.
        after: Ops at its outputs that are there in every recipe.
        tensors: Of the predicted graphs.
        inputs: Of the predicted graphs.
        outputs: For each model output what it reads and whether as an integer; or, with None, a fixed tensor.
        frame: What all candidates have.
        item_bytes: For each bit of a cost's items the bytes.
    """

    nodes: tuple[int, ...]
    ops: tuple[tuple[OpState, Mapping[str, OpState]], ...]
    integer: int
    always: int
    bound: tuple[Bound, ...]
    wires: tuple[Wire, ...]
    wires_after: tuple[tuple[int, ...], ...]
    after: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[tuple[Edge | None, int], ...]
    frame: Cost
    item_bytes: tuple[int, ...]

    def predict(
        self, denied: Collection[int], fallback: Fallback = "drq", in_float: Collection[int] = ()
    ) -> Prediction:
        """Predict one candidate.

        Args:
            denied: Positions among the nodes, in graph order, of those that the recipe denylists.
            fallback: As in the recipe.
            in_float: Positions of those that stay float whatever the fallback.
        """
        state = self._state(denied)
        floats = {self.nodes[position] for position in in_float}
        states = [
            pair[0] if state >> i & 1 else pair[1]["float" if i in floats else fallback]
            for i, pair in enumerate(self.ops)
        ]
        own, items = self.frame.own, self.frame.items
        ops: list[Op] = []
        for i, wires in enumerate(self.wires_after, start=-1):
            if i >= 0 and (record := states[i].record) is not None:
                own += states[i].cost.own
                items |= states[i].cost.items
                ops.append(self._reroute(i, states[i], state) if states[i].edges else record)
            for wire in wires:
                form = self.wires[wire].forms[form_key(self.wires[wire], state)]
                own += form.cost.own
                items |= form.cost.items
                ops.extend(form.conversions)
        return Prediction(
            size_bytes=fp.file_size(own + self._weigh(items)),
            kinds=tuple(states[i].kind for i in self.nodes),
            graph=Graph(
                tensors=self.tensors,
                ops=(*ops, *self.after),
                inputs=self.inputs,
                outputs=tuple(self._output(edge, place, state) for edge, place in self.outputs),
            ),
        )

    def _state(self, denied: Collection[int]) -> int:
        """Mask of what is integer."""
        mask = 0
        for position in denied:
            mask |= 1 << self.nodes[position]
        state = self.integer & ~mask | self.always
        kept = 0
        for node in self.bound:
            if mask >> node.op & 1 and state & node.writers == node.writers:
                # What reads a kept op's output in integers reads it through the DEQUANTIZE behind it.
                in_float = node.others if kept & node.writers else node.others & ~state
                if not in_float:
                    kept |= 1 << node.op
                    state |= kept
        return state

    def _reroute(self, index: int, op: OpState, state: int) -> Op:
        integer = bool(state >> index & 1)
        assert op.record is not None
        inputs = tuple(self.wires[e.tensor].read(e, state, integer=integer) for e in op.edges)
        return replace(op.record, inputs=inputs)

    def _output(self, edge: Edge | None, place: int, state: int) -> int:
        if edge is None:
            return place
        return self.wires[edge.tensor].read(edge, state, integer=bool(state >> place & 1))

    def _weigh(self, items: int) -> int:
        weight = 0
        while items:
            low = items & -items
            weight += self.item_bytes[low.bit_length() - 1]
            items ^= low
        return weight


def form_key(wire: Wire, state: int) -> int:
    """Whether the tensor is written in integers, then for each scale two bits: read by integer, by float ops."""
    key = state >> wire.writer & 1
    for as_integer, as_float in wire.readers:
        key = key << 2 | (2 if state & as_integer else 0) | (1 if ~state & as_float else 0)
    return key
