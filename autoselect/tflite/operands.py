"""What op types have: the one table of where weights and bias are, and whose scales are fixed. Knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """Positions among the inputs of an op; the weights are at 1.

    Attributes:
        activation: Of what it computes from.
        bias: Of its bias, which it may do without.
        axis: Of the output channels in the weights.
    """

    activation: int
    bias: int
    axis: int


WEIGHTED: Mapping[str, Operands] = {
    "CONV_2D": Operands(activation=0, bias=2, axis=0),
    "DEPTHWISE_CONV_2D": Operands(activation=0, bias=2, axis=3),
    "FULLY_CONNECTED": Operands(activation=0, bias=2, axis=0),
    "TRANSPOSE_CONV": Operands(activation=2, bias=3, axis=0),
}
"""By op type. A fused recurrent op has gates with several, and BATCH_MATMUL no bias."""

CONVOLUTIONS = frozenset(WEIGHTED) - {"FULLY_CONNECTED"}
"""Op types whose integer kernels take weights around a zero point of 0 alone."""

WEIGHTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(WEIGHTED, (1,)),
    "CONV_3D": (1,),
    "BATCH_MATMUL": (1,),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (1, 2, 3, 4, 5, 6, 7, 8, 16),
    "EMBEDDING_LOOKUP": (1,),
    "GATHER": (0,),
}
"""Positions of the weights among an op's inputs, by op type; of the LSTM the input, recurrent and projection matrices.

Constants of these op types have 8 bits in every form but float. Those of others have 16 beside 16-bit activations.
"""

FIXED_SCALE_OPS = frozenset({"L2_NORMALIZATION", "LOGISTIC", "LOG_SOFTMAX", "SOFTMAX", "TANH"})
"""Op types whose int8 output has a scale that TensorFlow's 8-bit quantization specification fixes, whatever calibration
saw."""
