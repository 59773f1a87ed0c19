"""What the bundled targets make of 16-bit nodes: which they refuse, and that no such node is free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.states import COMPOSED
from autoselect.domain.verdicts import pins
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target

TARGETS = [
    "edgetpu",
    "ethos-u55-128",
    "ethos-u65-256",
    "ethos-u85-256",
    "integer-only",
    "litert-cpu",
    "tflm",
]


def chain(op_type: str, kind: OpKind, macs: int = 0) -> Graph:
    """Three ops, of which the middle one is of a kind."""
    tensors = tuple(Tensor(name=f"t{i}", dtype="int8", shape=(1, 8), is_constant=False, size_bytes=8) for i in range(4))
    kinds = (OpKind.INTEGER, kind, OpKind.INTEGER)
    ops = tuple(
        Op(op_type=op_type, kind=k, inputs=(i,), constants=(), outputs=(i + 1,), macs=macs) for i, k in enumerate(kinds)
    )
    return Graph(tensors=tensors, ops=ops, inputs=(0,), outputs=(3,))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("op_type", "macs"), [("CONV_2D", 1000), ("FULLY_CONNECTED", 1000), ("MUL", 0)])
def test_16_bits_are_no_free_lunch(target: str, op_type: str, macs: int) -> None:
    profile = read_target(target)
    wide, narrow = (on_target(chain(op_type, k, macs), profile) for k in (OpKind.INT16, OpKind.INTEGER))
    # TensorFlow Lite Micro's kernels without multiply-accumulates are loops of the same length in both.
    assert wide.penalty > narrow.penalty or (target == "tflm" and macs == 0)
    assert wide.float_ops == 0


REFUSED = {"HARD_SWISH", "RESIZE_BILINEAR", "GATHER", "DIV", "DEPTH_TO_SPACE", "PACK"}


@pytest.mark.parametrize(
    ("target", "refused"),
    [
        ("tflm", REFUSED - {"HARD_SWISH"}),  # It is made of others where it has 16 bits.
        ("ethos-u55-128", {"GATHER", "DIV", "DEPTH_TO_SPACE"}),
        ("integer-only", set()),
        ("litert-cpu", set()),
    ],
)
def test_a_target_says_which_nodes_have_no_16_bit_kernel(target: str, refused: set[str]) -> None:
    kinds = sorted({*REFUSED, *COMPOSED, "CONV_2D", "MUL", "SOFTMAX"})
    ops = tuple(replace(chain(name, OpKind.FLOAT).ops[1], kind=OpKind.FLOAT) for name in kinds)
    found = pins(replace(chain("MUL", OpKind.FLOAT), ops=ops), range(len(ops)), read_target(target), hybrid=False)
    assert {kinds[i] for i in found.not_int16} == refused
