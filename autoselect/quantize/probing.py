"""Reads from a few builds what a :class:`autoselect.quantize.predict.Predictor` needs to know.

Knows which builds to make and how what is read from them joins: :mod:`autoselect.quantize.readings` reads one build,
:mod:`autoselect.quantize.wiring` finds who reads what, :mod:`autoselect.quantize.tensor_forms` what each tensor needs,
and :mod:`autoselect.quantize.shared_items` what parts share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from autoselect.domain.graph import Op, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Fallback, IoType, Recipe
from autoselect.errors import BuildError
from autoselect.quantize.build import Builder, CalibratedModel, kind_at
from autoselect.quantize.names import NameMap
from autoselect.quantize.predict import Edge, Predictor, Wire
from autoselect.quantize.readings import FLOAT32, UINT8, Reading, Readings, rescaled
from autoselect.quantize.repairs import RepairKit
from autoselect.quantize.shared_items import Book, FormDraft, OpDraft
from autoselect.quantize.tensor_forms import TensorForms, conversion
from autoselect.quantize.wiring import Source, Wiring
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp


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

    def read(denied: Sequence[int], fallback: Fallback = "float") -> Reading:
        return Reading(builder.assemble(denied, replace(recipe, fallback=fallback)), float_model)

    indices = [node.index for node in nodes]
    integer = read([])
    readings = Readings(
        integer=integer,
        left_out={fallback: read(indices, fallback) for fallback in get_args(Fallback)},
        partly=[read(denied) for denied in rescaled(integer, indices)],
    )
    if io_type != "float32":
        readings.partly.append(read(indices[::2]))
    return _Plan(calibrated.names, float_model, readings, nodes).predictor()


class _Plan:
    """Puts the readings together."""

    def __init__(self, names: NameMap, float_model: fb.Model, readings: Readings, nodes: Sequence[Node]) -> None:
        self.nodes, self.raw = nodes, float_model.subgraphs[0]
        self.integer, self.left_out = readings.integer, readings.left_out
        self.converters = readings.converters()
        self.wiring = Wiring(names, float_model, readings)
        self.tensor_forms = TensorForms(names, readings, self.converters, self.wiring.count)
        self.book = Book()

    def predictor(self) -> Predictor:
        """Everything, with shared items counted."""
        frame, after, inputs, outputs = self._interface()
        self.book.add("frame", frame)
        op_states = [self._op_states(i) for i in range(self.wiring.count)]
        forms = [self._form_drafts(tensor, source) for tensor, source in self.wiring.sources.items()]
        integer_ends = sum(1 << bit for bit in self.wiring.integer_ends())
        unreachable = sum(1 << n.index for n in self.nodes if n.unreachable_reason)
        return Predictor(
            nodes=tuple(n.index for n in self.nodes),
            ops=tuple(
                (self.book.op_state(found[0]), {fallback: self.book.op_state(s) for fallback, s in found[1].items()})
                for found in op_states
            ),
            integer=sum(1 << n.index for n in self.nodes) | integer_ends,
            always=unreachable | integer_ends,
            bound=tuple(self.wiring.bound(n.index) for n in self.nodes if n.bound_reason),
            wires=tuple(
                Wire(source.bit, self.wiring.readers(tensor), self.book.forms(found), source.ids)
                for (tensor, source), found in zip(self.wiring.sources.items(), forms, strict=True)
            ),
            wires_after=self.wiring.wires_after(),
            after=after,
            tensors=tuple(self.wiring.tensors),
            inputs=inputs,
            outputs=outputs,
            frame=self.book.cost("frame", frame),
            item_bytes=self.book.item_bytes(),
        )

    def _interface(self) -> tuple[fp.Footprint, tuple[Op, ...], tuple[int, ...], Any]:
        """What every candidate has: the frame, conversions to uint8, inputs and outputs."""
        reading, parts = self.integer, [fp.frame(self.integer.model)]
        after, inputs = [], []
        for tensor in map(int, reading.raw.inputs):
            source = self.wiring.sources[reading.origin[tensor]]
            first = 0 if reading.raw.tensors[tensor].type != FLOAT32 else 1
            inputs.append(source.ids[0][first] if source.unsigned is None else source.unsigned)
        outputs: list[tuple[Edge | None, int]] = []
        for j, tensor in enumerate(map(int, reading.raw.outputs)):
            if tensor not in reading.origin:
                outputs.append((None, self.wiring.add(reading.graph.tensors[tensor])))
                continue
            found = reading.origin[tensor]
            edge = Edge(self.wiring.wire_index[found], self.wiring.scale(tensor), self.wiring.scale(tensor))
            if reading.raw.tensors[tensor].type == UINT8:
                place = self.wiring.add(reading.graph.tensors[tensor])
                after.append(
                    conversion(self.wiring.sources[found].ids[edge.integer_scale][0], place, OpKind.INTEGER, "QUANTIZE")
                )
                parts += self._unsigned(tensor)
                outputs.append((None, place))
            else:
                outputs.append((edge, self.wiring.output_bit(j)))
        return fp.total(parts), tuple(after), tuple(inputs), tuple(outputs)

    def _unsigned(self, tensor: int) -> list[fp.Footprint]:
        reading = self.integer
        return [
            fp.tensor_footprint(reading.model, reading.raw.tensors[tensor], is_constant=False),
            self.converters["QUANTIZE"],
        ]

    def _op_states(self, index: int) -> tuple[OpDraft, dict[Fallback, OpDraft]]:
        left_out = {fallback: self._op_state(index, found, False) for fallback, found in self.left_out.items()}
        return self._op_state(index, self.integer, True), left_out

    def _op_state(self, index: int, reading: Reading, integer: bool) -> OpDraft:
        op = reading.op(index)
        if (op is None) != (self.integer.op(index) is None):
            raise BuildError(f"The quantizer folds op {index} in some builds only, which cannot be predicted.")
        if op is None:
            return OpDraft(index, fp.Footprint(), "folded", None, ())
        rows = (op.inputs, op.intermediates)
        used = {int(t) for row in rows if row is not None for t in row if t >= 0 and int(t) not in reading.origin}
        parts = [_constant(reading, t) for t in sorted(used)]
        footprint = fp.total([fp.op_footprint(reading.model, op), *parts])
        edges = tuple(replace(edge, tensor=self.wiring.wire_index[edge.tensor]) for edge in self.wiring.edges[index])
        form = 0 if integer else 1
        record = replace(
            reading.record(index),
            inputs=tuple(
                self.wiring.sources[edge.tensor].ids[edge.integer_scale if integer else 0][form]
                for edge in self.wiring.edges[index]
            ),
            constants=(),
            outputs=tuple(
                self.wiring.sources[int(tensor)].ids[0][form] for tensor in self.raw.operators[index].outputs
            ),
        )
        draft = OpDraft(
            index,
            footprint,
            kind_at(reading.graph, reading.places[index]),
            record,
            edges if not integer and any(edge.float_scale for edge in edges) else (),
        )
        self.book.add(index, footprint)
        return draft

    def _form_drafts(self, tensor: int, source: Source) -> dict[int, FormDraft]:
        drafts = self.tensor_forms.drafts(tensor, source)
        for draft in drafts.values():
            self.book.add(("wire", tensor), draft.footprint)
        return drafts


def _constant(reading: Reading, index: int) -> fp.Footprint:
    """A constant, which is there once for all that need it; or a variable, which is its op's own."""
    tensor = reading.raw.tensors[index]
    if tensor.isVariable or tensor.buffer == 0:
        return fp.tensor_footprint(reading.model, tensor, is_constant=False)
    part = fp.tensor_footprint(reading.model, tensor, is_constant=True)
    data = fb.buffer_bytes(reading.model.buffers[tensor.buffer])
    return fp.Footprint(items={**part.items, ("constant", fb.constant_key(tensor), data): part.own})
