"""Types of the objects that :func:`autoselect.tflite.flatbuffer.parse` gives: the generated schema module has none.

Only the fields that are used. A field that the schema leaves optional may be None where its type says so; the others
are taken as present, as TensorFlow's converter writes them.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Indices = np.ndarray | list[int]


def names_of_codes(enumeration: type) -> dict[int, str]:
    """Names of the codes of a generated enumeration, which is a plain class.

    Python 3.13 gives each class the number of its first line, which is no code.
    """
    return {code: name for name, code in vars(enumeration).items() if isinstance(code, int) and name[0] != "_"}


class Quantization(Protocol):
    """Scales and zero points of a tensor, and the ends of its range as it was calibrated."""

    min: np.ndarray | list[float] | None
    max: np.ndarray | list[float] | None
    scale: np.ndarray | None
    zeroPoint: np.ndarray | None
    quantizedDimension: int


class Tensor(Protocol):
    """A tensor; its values, if the file has any, are in its buffer."""

    name: bytes | None
    type: int
    shape: Indices | None
    shapeSignature: Indices | None
    buffer: int
    quantization: Quantization | None
    isVariable: bool
    sparsity: Any
    hasRank: bool


class Buffer(Protocol):
    """Data of a constant."""

    data: np.ndarray | None
    offset: int
    size: int
    place: int | None  # in the file, while that is written


class OperatorCode(Protocol):
    """An op type with its version."""

    builtinCode: int
    deprecatedBuiltinCode: int
    customCode: bytes | None
    version: int


class Operator(Protocol):
    """An op; its options are of a class of their own for nearly each op type."""

    opcodeIndex: int
    inputs: Indices
    outputs: Indices
    intermediates: Indices | None
    builtinOptionsType: int
    builtinOptions: Any
    builtinOptions2: Any
    customOptions: np.ndarray | None
    largeCustomOptionsOffset: int
    largeCustomOptionsSize: int


class SubGraph(Protocol):
    """A graph of ops; the first of a model is the main one."""

    name: bytes | None
    tensors: list[Tensor]
    operators: list[Operator]
    inputs: Indices
    outputs: Indices


class TensorMap(Protocol):
    """The key of an input or output."""

    name: bytes
    tensorIndex: int


class SignatureDef(Protocol):
    """Keys of a subgraph's inputs and outputs."""

    signatureKey: bytes
    subgraphIndex: int
    inputs: list[TensorMap] | None
    outputs: list[TensorMap] | None


class Metadata(Protocol):
    """Data, most often with a name."""

    name: bytes | None
    buffer: int


class Model(Protocol):
    """A whole file."""

    description: bytes | None
    operatorCodes: list[OperatorCode]
    subgraphs: list[SubGraph]
    buffers: list[Buffer]
    metadata: list[Metadata] | None
    metadataBuffer: Indices | None
    signatureDefs: list[SignatureDef] | None

    def Pack(self, builder: Any) -> int: ...  # noqa: N802, D102 - name of the generated API
