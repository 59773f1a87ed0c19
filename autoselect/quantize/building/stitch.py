"""Writes what a blueprint plans as a model: ops of several whole builds stitched together at their tensors.

Refuses to know why an op was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

import numpy as np

from autoselect.quantize.building.blueprint import Conversion, Part, Plan
from autoselect.quantize.building.parts import Piece, Stock
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.editing import conversion_code, conversion_op, twin


def stitch(plan: Plan, stock: Stock, *, signatures: bool = True) -> fb.Model:
    """Put a candidate together.

    Args:
        plan: What of.
        stock: What is at hand.
        signatures: Whether it has those of the float model; its inputs and outputs must then be that one's.

    Returns:
        An editable model that shares nothing with the stock that an edit in place could reach. Equal constants are one
        tensor; buffers of the frame that nothing uses are still there.
    """
    return _Stitcher(plan, stock).model(signatures=signatures)


class _Stitcher:
    def __init__(self, plan: Plan, stock: Stock) -> None:
        self._plan, self._stock = plan, stock
        frame = stock.frame
        self._model = twin(frame)
        self._model.buffers = [twin(buffer) for buffer in frame.buffers]
        self._model.operatorCodes = [twin(code) for code in frame.operatorCodes]
        self._model.metadata = [twin(entry) for entry in frame.metadata or []] or None
        self._tensors: list[fb.Tensor] = []
        self._at: dict[int, int] = {}
        self._buffers: dict[int, int] = {}
        self._alike: dict[tuple[int, bytes], list[int]] = {}
        self._codes: dict[tuple[int, bytes], int] = {
            (code.builtinCode, code.customCode or b""): place for place, code in enumerate(frame.operatorCodes)
        }

    def model(self, *, signatures: bool) -> fb.Model:
        plan, stock = self._plan, self._stock
        main = twin(stock.frame.subgraphs[0])
        self._model.subgraphs = [main, *map(deepcopy, stock.frame.subgraphs[1:])]
        main.inputs = self._places(plan.graph.inputs)
        main.operators = [self._op(step) for step in plan.steps]
        main.outputs = self._places(plan.graph.outputs)
        main.tensors = self._tensors
        self._model.signatureDefs = self._signatures() if signatures else None
        return self._model

    def _places(self, slots: Iterable[int | None]) -> np.ndarray:
        return np.array([self._place(slot) for slot in slots], dtype=np.int32)

    def _place(self, slot: int | None) -> int:
        """Index of the tensor of a slot or constant."""
        if slot is None:
            return -1
        if slot < 0:
            slot = self._plan.own[~slot]
        if slot not in self._at:
            self._at[slot] = len(self._tensors)
            self._tensors.append(self._tensor(slot))
        return self._at[slot]

    def _tensor(self, slot: int) -> fb.Tensor:
        stock = self._stock
        behind = slot - len(stock.tensors)
        if behind >= 0:
            made, buffer = stock.constants[behind]
            tensor = twin(made)
            tensor.buffer = 0 if tensor.isVariable else self._buffer(buffer)
            return tensor
        tensor = twin(stock.tensors[slot])
        tensor.buffer = self._buffer(stock.frame.buffers[tensor.buffer])
        is_own = slot == self._plan.own[stock.value_of[slot]]
        tensor.name = stock.names[0 if is_own else 1][slot].encode()
        return tensor

    def _buffer(self, buffer: fb.Buffer) -> int:
        """Index of a buffer; those of equal data are one."""
        if buffer.data is None or len(buffer.data) == 0:
            return 0
        if id(buffer) not in self._buffers:
            data = fb.data_of(buffer)
            # All of the data is compared with few others, and hashed never: that takes as long as writing the file.
            # The first bytes tell most buffers apart.
            alike = self._alike.setdefault((len(data), data[:64].tobytes()), [])
            places = (i for i in alike if np.array_equal(fb.data_of(self._model.buffers[i]), data))
            self._buffers[id(buffer)] = place = next(places, len(self._model.buffers))
            if place == len(self._model.buffers):
                alike.append(place)
                self._model.buffers.append(twin(buffer))
        return self._buffers[id(buffer)]

    def _op(self, step: Part | Conversion) -> fb.Operator:
        if isinstance(step, Conversion):
            ends = [self._stock.tensors[slot] for slot in (step.reads, step.writes)]
            code = self._code(conversion_code(step.record.op_type, ends))
            op = conversion_op(code, self._place(step.reads), self._place(step.writes))
            op.inputs, op.outputs = np.array(op.inputs, np.int32), np.array(op.outputs, np.int32)
            return op
        piece: Piece = self._stock.pieces[step.source, step.position]
        op = twin(piece.op)
        op.opcodeIndex = self._code(piece.code)
        op.inputs = self._places(piece.inputs)
        op.outputs = self._places(step.writes)
        op.intermediates = self._places(piece.intermediates) if piece.intermediates else None
        return op

    def _code(self, wanted: fb.OperatorCode) -> int:
        """Index of an op type, of the highest version that an op of it has."""
        key = (wanted.builtinCode, wanted.customCode or b"")
        if key not in self._codes:
            self._codes[key] = len(self._model.operatorCodes)
            self._model.operatorCodes.append(twin(wanted))
        code = self._model.operatorCodes[self._codes[key]]
        code.version = max(code.version, wanted.version)
        return self._codes[key]

    def _signatures(self) -> list[fb.SignatureDef] | None:
        """The float model's, with the candidate's inputs and outputs."""
        frame, main = self._stock.frame, self._model.subgraphs[0]
        float_graph = frame.subgraphs[0]
        inputs = dict(zip(map(int, float_graph.inputs), map(int, main.inputs), strict=True))
        outputs = dict(zip(map(int, float_graph.outputs), map(int, main.outputs), strict=True))
        signatures = []
        for signature in map(deepcopy, frame.signatureDefs or []):
            if (signature.subgraphIndex or 0) == 0:
                for entries, place in ((signature.inputs, inputs), (signature.outputs, outputs)):
                    for entry in entries or []:
                        entry.tensorIndex = place[int(entry.tensorIndex)]
            signatures.append(signature)
        return signatures or None
