"""What each form of a float model's tensor needs in a file, and the conversions that make it.

Knows names, which conversions lengthen; refuses to know which recipes have which form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import product
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.graph import Op, OpKind
from autoselect.quantize.names import NameMap
from autoselect.quantize.readings import FLOAT32, Readings
from autoselect.quantize.shared_items import FormDraft
from autoselect.quantize.wiring import Source
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import footprint as fp


class TensorForms:
    """Drafts every form of a tensor.

    Args:
        names: Of the float model.
        readings: The builds.
        converters: What a conversion needs, by its name.
        count: How many ops the float model has.
    """

    def __init__(self, names: NameMap, readings: Readings, converters: Mapping[str, fp.Footprint], count: int) -> None:
        self._integer, self._left_out = readings.integer, readings.left_out
        self._converters, self._count = converters, count
        self._measured: dict[tuple[int, int, bool, str], fp.Footprint] = {}
        self._fixed = frozenset((*names.inputs, *names.outputs))

    def drafts(self, tensor: int, source: Source) -> dict[int, FormDraft]:
        """Every form of a tensor, by key; see :func:`autoselect.quantize.predict.form_key`."""
        found = {}
        uses = ((0, 0), (0, 1), (1, 0), (1, 1))
        for written, reads in product((0, 1), product(uses, repeat=len(source.scales))):
            key = written
            for by_integer, by_float in reads:
                key = key << 2 | by_integer << 1 | by_float
            found[key] = self._form(tensor, source, bool(written), reads)
        return found

    def _form(self, tensor: int, source: Source, written: bool, reads: Sequence[tuple[int, int]]) -> FormDraft:
        own = self._own_name(source, written)
        if not source.scales:
            return FormDraft(tensor, self._unconverted(tensor, source, written), ())
        unsigned = source.unsigned is not None
        parts, conversions = [], []
        if unsigned:
            parts.append(
                fp.tensor_footprint(self._integer.model, self._integer.raw.tensors[source.own], is_constant=False)
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
            parts.append(self._converters[op_type])
            crosses = not integer or (scale == 0 and not unsigned)
            result = source.ids[scale][0 if integer else 1]
            kind = OpKind.BOUNDARY if crosses else OpKind.INTEGER
            conversions.append(conversion(start[0], result, kind, op_type))
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
        return FormDraft(tensor, fp.total(parts), tuple(conversions))

    def _unconverted(self, tensor: int, source: Source, written: bool) -> fp.Footprint:
        """A tensor that every recipe has in one form, as the op that writes it leaves it."""
        reading, own = self._integer, source.own
        if not written:
            reading = self._left_out["float"]
            own = next(t for t, origin in reading.origin.items() if origin == tensor)
        return fp.tensor_footprint(reading.model, reading.raw.tensors[own], is_constant=False)

    def _own_name(self, source: Source, written: bool) -> str:
        """Name of what the tensor's own op writes: the float model's, if the interface leaves it that."""
        if source.bit >= self._count or source.name not in self._fixed:
            return source.name
        if any((scale == 0 and integer == written) or not (written or integer) for scale, integer in source.ends):
            return source.name
        return f"{source.name}_{self._dtype(source, 0) if written else 'float32'}"

    def _dtype(self, source: Source, scale: int) -> str:
        return fb.TENSOR_DTYPES[self._integer.raw.tensors[source.scales[scale]].type]

    def _tensor(self, tensor: int, source: Source, scale: int, integer: bool, name: str) -> fp.Footprint:
        """One form of a tensor, under a name."""
        key = (tensor, scale, integer, name)
        if key not in self._measured:
            example = _named(self._integer.raw.tensors[source.scales[scale]], name)
            if not integer:
                example.type, example.quantization = FLOAT32, schema.QuantizationParametersT()
            self._measured[key] = fp.tensor_footprint(self._integer.model, example, is_constant=False)
        return self._measured[key]


def conversion(source: int, result: int, kind: OpKind, op_type: str) -> Op:
    """An op of the predicted graph that makes one form of a tensor of another."""
    return Op(op_type=op_type, kind=kind, inputs=(source,), constants=(), outputs=(result,), macs=0)


def _named(tensor: Any, name: str) -> Any:
    tensor = copy(tensor)
    tensor.name = name.encode()
    return tensor
