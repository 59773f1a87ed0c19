"""Numbers every value of a model in each of its forms: the slots; finds which tensor of a whole build is which slot.

Knows tensors and the conversions between them; refuses to know ops, costs and candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.recipe import IoType
from autoselect.domain.tensors import free_name
from autoselect.quantize.building.int16 import is_wide
from autoselect.quantize.building.wholes import Wholes, form_of
from autoselect.quantize.repairing.built import Built
from autoselect.rewrites.names import NameMap
from autoselect.tflite import flatbuffer as fb


@dataclass(slots=True)
class Value:
    """What one output of an op, or one input of the model, holds.

    Attributes:
        name: The float model's.
        slots: By form.
        parents: By slot of the integer build, the slot that it is converted from there.
        int16_parents: Likewise of the 16-bit build.
        own: The slots that ops write; of a model input the one that comes in.
        in_integer: The one of them that the integer build computes.
    """

    name: str
    slots: dict[tuple[object, ...], int] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    int16_parents: dict[int, int] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)
    in_integer: int | None = None


class Slots:
    """All slots.

    Attributes:
        values: In order: the model's inputs, constants that are outputs, what the float model's ops write, then what
            only other builds compute.
        tensors: For each slot a tensor like it; one with a buffer of the float model for a constant.
        value_of: For each slot its value.
        of_float: For each activation of the float model its slot.
        of_integer: For each activation of the integer build its slot.
        of_int16: For each activation of the 16-bit build, where there is one, its slot.
        helpers: Places of the integer build's ops that are neither twins nor conversions. What writes nothing is none:
            such an op has no name, and is the float model's.
        int16_helpers: Likewise of the 16-bit build; only those that compute with 16-bit integers.
        inputs: Slots.
        given: Slots that no op writes.
        outputs: Slots.
    """

    def __init__(self, wholes: Wholes, io_type: IoType) -> None:
        """Find them."""
        self._float, self._integer = wholes.in_float, wholes.integer
        self.values: list[Value] = []
        self.tensors: list[fb.Tensor] = []
        self.value_of: list[int] = []
        self.of_float: dict[int, int] = {}
        self.of_integer: dict[int, int] = {}
        self.helpers: list[int] = []
        self._read_float(wholes.names)
        self._read_integer()
        constants = self._constant_outputs
        self.inputs, self.outputs = self._ends(io_type)
        self.given = [*dict.fromkeys([*self.inputs, *constants])]
        # Last, so that what is without 16 bits has the numbers and names that it has without this build.
        self.of_int16: dict[int, int] = {}
        self.int16_helpers: list[int] = []
        if wholes.int16 is not None:
            self._read_int16(wholes.int16)

    def _read_float(self, key: NameMap) -> None:
        model = self._float.model
        graph = model.subgraphs[0]
        for tensor, name in zip(map(int, graph.inputs), key.inputs, strict=True):
            self.of_float[tensor] = self._new_value(name, graph.tensors[tensor])
        self._constant_outputs = []
        rows = key.unique_outputs()
        written = {int(t) for op in graph.operators for t in op.outputs}
        for tensor, name in zip(map(int, graph.outputs), key.outputs, strict=True):
            if tensor not in written and tensor not in self.of_float:
                self.of_float[tensor] = self._new_value(
                    name, graph.tensors[tensor], is_constant=fb.is_constant(model, graph.tensors[tensor])
                )
                self._constant_outputs.append(self.of_float[tensor])
        # Without a signature callers know outputs by their names, even by those that several have.
        ends = {} if model.signatureDefs else dict(zip(map(int, graph.outputs), key.outputs, strict=True))
        for op, row in zip(graph.operators, rows, strict=True):
            for tensor, name in zip(map(int, op.outputs), row, strict=True):
                self.of_float[tensor] = self._new_value(ends.get(tensor, name), graph.tensors[tensor])

    def _read_integer(self) -> None:
        model, graph = self._integer.model, self._integer.model.subgraphs[0]
        float_graph = self._float.model.subgraphs[0]
        written = {int(t) for op in graph.operators for t in op.outputs}
        for tensor, twin in zip(map(int, graph.inputs), map(int, float_graph.inputs), strict=True):
            self._note(tensor, self.value_of[self.of_float[twin]], own=True)
        # The quantizer makes one tensor of equal constants, so that outputs are told by their place.
        self._unwritten_outputs = {
            place: self._note(tensor, self.value_of[self.of_float[twin]], own=True)
            for place, (tensor, twin) in enumerate(
                zip(map(int, graph.outputs), map(int, float_graph.outputs), strict=True)
            )
            if tensor not in written
        }
        twins = self._twins(self._integer)
        for place, op in enumerate(graph.operators):
            if place in twins:
                for tensor, value in twins[place]:
                    self._note(tensor, value, own=True)
            elif fb.op_type(model, op) in fb.CONVERSIONS and int(op.inputs[0]) in self.of_integer:
                self._convert(int(op.inputs[0]), int(op.outputs[0]))
            elif len(op.outputs):
                self.helpers.append(place)
                for tensor in map(int, op.outputs):
                    name = fb.tensor_name(graph.tensors[tensor])
                    self.of_integer[tensor] = self._new_value(name, graph.tensors[tensor])

    def _read_int16(self, whole: Built) -> None:
        graph, float_graph = whole.model.subgraphs[0], self._float.model.subgraphs[0]
        for tensor, twin in zip(map(int, graph.inputs), map(int, float_graph.inputs), strict=True):
            self.of_int16[tensor] = self.of_float[twin]
        twins = self._twins(whole)
        for place, op in enumerate(graph.operators):
            if place in twins:
                for tensor, value in twins[place]:
                    self.of_int16[tensor] = self.slot(value, graph.tensors[tensor])
            elif fb.op_type(whole.model, op) in fb.CONVERSIONS and int(op.inputs[0]) in self.of_int16:
                source, result = self.of_int16[int(op.inputs[0])], int(op.outputs[0])
                value, wide_slots = self.value_of[source], set(self.of_int16.values())
                slot = self.of_int16[result] = self.slot(value, graph.tensors[result])
                if slot not in wide_slots:  # Else it is converted to what it was already, as litert-quantizer does.
                    self.values[value].int16_parents.setdefault(slot, source)
            elif len(op.outputs) and is_wide(whole.model, op, self.of_int16):
                self.int16_helpers.append(place)
                for tensor in map(int, op.outputs):
                    name = fb.tensor_name(graph.tensors[tensor])
                    self.of_int16[tensor] = self._new_value(name, graph.tensors[tensor])

    def _twins(self, whole: Built) -> dict[int, list[tuple[int, int]]]:
        """Outputs, with their values, of the ops of a whole build that the float model has, too; by the op's place."""
        ours, theirs = whole.model.subgraphs[0].operators, self._float.model.subgraphs[0].operators
        return {
            place: [
                (int(tensor), self.value_of[self.of_float[int(twin)]])
                for tensor, twin in zip(ours[place].outputs, theirs[index].outputs, strict=True)
            ]
            for index, place in whole.places.items()
        }

    def _convert(self, source: int, result: int) -> None:
        parent = self.of_integer[source]
        value = self.values[self.value_of[parent]]
        slot = self._note(result, self.value_of[parent], own=False)
        if not fb.scales(self.tensors[parent]) and self.tensors[slot].type == schema.TensorType.INT8:
            before = value.parents.get(parent, parent)  # From integers to integers not by way of float.
            parent = before if self.tensors[before].type == schema.TensorType.INT8 else parent
        if slot not in (value.in_integer, parent):
            value.parents.setdefault(slot, parent)

    def _note(self, tensor: int, value: int, *, own: bool) -> int:
        """The slot of a tensor of the integer build."""
        made = self._integer.model.subgraphs[0].tensors[tensor]
        slot = self.slot(value, made)
        self.of_integer[tensor] = slot
        if own:
            self.values[value].own.add(slot)
            self.values[value].in_integer = slot
        return slot

    def _new_value(self, name: str, tensor: fb.Tensor, *, is_constant: bool = False) -> int:
        self.values.append(Value(name=name))
        slot = self.slot(len(self.values) - 1, tensor, is_constant=is_constant)
        self.values[-1].own.add(slot)
        return slot

    def slot(self, value: int, tensor: fb.Tensor, *, is_constant: bool = False) -> int:
        """The slot of a value in the form of a tensor, a new one if there is none."""
        form = form_of(tensor)
        slots = self.values[value].slots
        if form not in slots:
            slots[form] = len(self.tensors)
            self.tensors.append(copy(tensor))
            self.tensors[-1].buffer = tensor.buffer if is_constant else 0
            self.value_of.append(value)
        return slots[form]

    def _ends(self, io_type: IoType) -> tuple[list[int], list[int]]:
        """The model's inputs and outputs: float, or integers wherever the integer build computes with integers there.

        The integer build itself may have either.
        """
        graph = self._integer.model.subgraphs[0]
        inputs, outputs = ([self.of_integer[int(t)] for t in row] for row in (graph.inputs, graph.outputs))
        outputs = [self._unwritten_outputs.get(place, slot) for place, slot in enumerate(outputs)]
        if io_type == "float32":
            return self._float_ends(inputs, outputs)
        return self._integer_ends(inputs, outputs, is_unsigned=io_type == "uint8")

    def _float_ends(self, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[list[int], list[int]]:
        for slot in inputs:
            value = self.values[self.value_of[slot]]
            if slot != (plain := value.slots.get((), slot)):
                first = self._signed(value, slot)
                value.parents = {s: p for s, p in value.parents.items() if s != first} | {first: plain}
                value.own = {plain}
        return [self._plain(slot) for slot in inputs], [self._plain(slot) for slot in outputs]

    def _plain(self, slot: int) -> int:
        return self.values[self.value_of[slot]].slots.get((), slot)

    def _signed(self, value: Value, slot: int) -> int:
        """The slot itself, or, of an unsigned one that the build only shifts, the signed one that its ops read."""
        twins = (s for s, p in value.parents.items() if p == slot and self._shifts(p, s))
        return next(twins, slot)

    def _shifts(self, unsigned: int, signed: int) -> bool:
        types = [self.tensors[slot].type for slot in (unsigned, signed)]
        same_scale = fb.scales(self.tensors[unsigned]) == fb.scales(self.tensors[signed])
        return types == [schema.TensorType.UINT8, schema.TensorType.INT8] and same_scale

    def _integer_ends(
        self, inputs: Sequence[int], outputs: Sequence[int], *, is_unsigned: bool
    ) -> tuple[list[int], list[int]]:
        taken, made = list(inputs), list(outputs)
        for place, slot in enumerate(inputs):
            value = self.values[self.value_of[slot]]
            integers = [s for form, s in value.slots.items() if form]
            if not integers or () not in value.slots:  # A caller gives integers anyway.
                continue
            chosen = self._signed(value, slot if slot in integers else integers[0])
            taken[place] = self._end(chosen, is_unsigned=is_unsigned)
            value.own = {taken[place]}
            gone, plain = (chosen, taken[place]), value.slots.get(())
            value.parents = {s: p for s, p in value.parents.items() if s not in gone and p != plain}
            if taken[place] != chosen:
                value.parents[chosen] = taken[place]
        given = {self.value_of[slot]: slot for slot in taken}
        for place, slot in enumerate(outputs):
            if (end := given.get(self.value_of[slot])) is not None:  # The model hands on an input as it came.
                made[place] = end
                continue
            value = self.values[self.value_of[slot]]
            is_float = slot == value.slots.get(())
            source = value.parents.get(slot) if is_float or self._is_shifted(value, slot) else slot
            if source is not None:
                made[place] = self._end(source, is_unsigned=is_unsigned)
                if made[place] != source:
                    value.parents[made[place]] = source
        return taken, made

    def _is_shifted(self, value: Value, slot: int) -> bool:
        """Whether an output is the unsigned twin of what an op computes."""
        return slot in value.parents and self._shifts(slot, value.parents[slot])

    def _end(self, slot: int, *, is_unsigned: bool) -> int:
        """The slot itself, or its unsigned twin."""
        tensor = self.tensors[slot]
        if not is_unsigned or tensor.type != schema.TensorType.INT8:
            return slot
        twin = copy(tensor)
        twin.type = schema.TensorType.UINT8
        twin.quantization = copy(fb.parameters(tensor))
        twin.quantization.zeroPoint = np.asarray(fb.zero_points_of(tensor)) + 128
        return self.slot(self.value_of[slot], twin)

    def parent(self, own: int, slot: int) -> int:
        """What a slot is converted from where ``own`` is computed.

        That is what an integer build converts it from, where that build computes the value so; else ``own`` itself.
        """
        value = self.values[self.value_of[own]]
        for parents in (value.parents, value.int16_parents):
            path = [slot]
            while path[-1] in parents and path[-1] != own:
                path.append(parents[path[-1]])
            if path[-1] == own and len(path) > 1:
                return path[1]
        return self._between(own, slot)

    def _between(self, own: int, slot: int) -> int:
        """The slot itself; between 16 bits and unsigned 8 bits, where LiteRT has no kernel, the signed one."""
        types = {self.tensors[index].type for index in (own, slot)}
        if types == {schema.TensorType.INT16, schema.TensorType.UINT8}:
            parents = self.values[self.value_of[own]].parents
            signed = (s for pair in parents.items() if self._shifts(*pair[::-1]) or self._shifts(*pair) for s in pair)
            return next((s for s in signed if self.tensors[s].type == schema.TensorType.INT8), own)
        return own

    def names(self) -> tuple[list[str], list[str]]:
        """For each slot its name where an op writes it, and where it is converted.

        An input and an output of the model have their own names exactly, and a value the float model's where an op
        writes it. What else there is of it has its dtype behind the name.
        """
        ends = {*self.inputs, *self.outputs}
        taken = {value.name for value in self.values}
        own, converted = [""] * len(self.tensors), [""] * len(self.tensors)
        for value in self.values:
            slots = list(value.slots.values())
            is_end = any(slot in ends for slot in slots)
            for slot in slots:
                other = free_name(f"{value.name}_{fb.TENSOR_DTYPES[self.tensors[slot].type]}", taken)
                own[slot] = value.name if slot in ends or not is_end else other
                converted[slot] = value.name if slot in ends else other
        return own, converted
