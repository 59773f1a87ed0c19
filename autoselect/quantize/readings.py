"""Built models with the float model's ops and tensors found in them; refuses to know what is made of that.

Knows the float model's ops and tensors by their indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import Op
from autoselect.domain.recipe import Fallback
from autoselect.errors import BuildError
from autoselect.quantize.build import Assembly
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp
from autoselect.tflite import reader

FLOAT32, UINT8 = schema.TensorType.FLOAT32, schema.TensorType.UINT8


class Reading:
    """A built model with the float model's tensors found in it.

    Attributes:
        origin: For each activation of the built model, the float model's tensor that it is a form of.
        parents: For each converted tensor the tensor that it is converted from.
        conversions: By name an op of each kind that there is.

    Raises:
        BuildError: If the quantizer made several ops of one, or added others than conversions.
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
        while not is_integer(self.raw.tensors[tensor]):
            if tensor not in self.parents:
                return None
            tensor = self.parents[tensor]
        return tensor


@dataclass(frozen=True, slots=True)
class Readings:
    """What a predictor is read from.

    Attributes:
        integer: With nothing denylisted.
        left_out: With every node denylisted, by fallback.
        partly: With some nodes denylisted.
    """

    integer: Reading
    left_out: Mapping[Fallback, Reading]
    partly: list[Reading]

    def converters(self) -> dict[str, fp.Footprint]:
        """By name what a conversion needs, of each kind that one of the builds has."""
        return {
            name: fp.op_footprint(found.model, op)
            for found in (self.integer, *self.partly, *self.left_out.values())
            for name, op in found.conversions.items()
        }


def rescaled(integer: Reading, nodes: Sequence[int]) -> list[list[int]]:
    """Nodes that read a tensor in another scale than its own, in groups in which none writes for another."""
    scales = scales_of(integer)
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


def scales_of(reading: Reading) -> dict[int, list[int]]:
    """For each float tensor its integer forms in the integer build: its own scale first, then those made of it.

    Raises:
        BuildError: If one is made of another than the first.
    """
    found: dict[int, list[int]] = {}
    order = sorted(
        reading.origin, key=lambda t: t in reading.parents and reading.integer_form(reading.parents[t]) is not None
    )
    for tensor in order:
        if not is_integer(reading.raw.tensors[tensor]):
            continue
        forms = found.setdefault(reading.origin[tensor], [])
        parent = reading.parents.get(tensor)
        if forms and parent != forms[0]:
            raise BuildError("The quantizer converts a tensor in a way that cannot be predicted.")
        forms.append(tensor)
    return found


def is_integer(tensor: Any) -> bool:
    """Whether a tensor of a built model holds quantized integers."""
    quantization = tensor.quantization
    has_scale = quantization is not None and quantization.scale is not None
    return has_scale and tensor.type in (schema.TensorType.INT8, schema.TensorType.INT16)
