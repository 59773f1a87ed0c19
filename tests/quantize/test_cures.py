"""The cheapest cure of a node, by hand; what real models are told is in ``tests/real/test_diagnosis.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from reviewing import Reviewed

from autoselect.domain.findings import ErrorParts
from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.layers import Node
from autoselect.quantize.diagnosing.cures import Model, cures, decibels
from autoselect.scoring.target_file import read_target

NONE, ALL = math.nan, dict[str, str | None](int16=None, hybrid=None)
BASE = dict[str, str | None](integer=None, float=None)
"""The forms that every op of these models has; no compiler was asked about them."""


def cure(
    parts: tuple[float, float, float, float],
    op_type: str = "CONV_2D",
    forms: Mapping[str, str | None] = ALL,
    target: str = "integer-only",
    *,
    int16: bool = True,
) -> tuple[str, str]:
    """Of a model of one node, whose parts are those of :class:`ErrorParts`."""
    tensor = Tensor(name="x", dtype="float32", shape=(1, 8), is_constant=False, size_bytes=32)
    op = Op(op_type=op_type, kind=OpKind.FLOAT, inputs=(0,), constants=(), outputs=(1,), macs=1000)
    node = Node(index=0, name="n", op_type=op_type)
    weights, shift, activations, narrowed = parts
    model = Model(
        nodes=(node,),
        graph=Graph(tensors=(tensor, replace(tensor, name="n")), ops=(op,), inputs=(0,), outputs=(1,)),
        target=read_target(target),
        forms={0: {**BASE, **forms}},
        int16=int16,
    )
    measured = ErrorParts(weights=weights, shift=shift, activations=activations, narrowed=narrowed)
    found = cures(model, {"n": measured})["n"]
    return found.name, found.reason


@pytest.mark.parametrize(
    ("parts", "op_type", "wanted"),
    [
        pytest.param((9e-5, 9e-5, 9e-4, 9e-4), "CONV_2D", "none", id="each part is small"),
        pytest.param((NONE, NONE, 0.0, 0.0), "RESHAPE", "none", id="it only moves values"),
        pytest.param((1e-3, 6e-4, 1e-4, 1e-4), "CONV_2D", "bias", id="the weights' error is a shift"),
        pytest.param((1e-3, 4e-4, 1e-4, 1e-4), "CONV_2D", "rounding", id="the weights' error is noise"),
        pytest.param((1e-3, 9e-4, 1e-4, 1e-4), "BATCH_MATMUL", "float", id="weights that no repair knows"),
        pytest.param((1e-3, 9e-4, 9e-2, 9e-4), "CONV_2D", "range", id="activations, and far values"),
        pytest.param((1e-3, 9e-4, 9e-2, 2e-3), "CONV_2D", "16 bit", id="a narrower range is not enough"),
        pytest.param((NONE, NONE, 1e-2, 9e-4), "SOFTMAX", "16 bit", id="a scale that nobody chooses"),
    ],
)
def test_the_cheapest_cure(parts: tuple[float, float, float, float], op_type: str, wanted: str) -> None:
    assert cure(parts, op_type)[0] == wanted


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        pytest.param((NONE, NONE, 1e-5, 1e-5), "activations 50.0 dB", id="no weights"),
        pytest.param((1e-3, 4e-4, 0.0, 0.0), "weights 30.0 dB, activations exact", id="both"),
    ],
)
def test_the_reason_names_the_parts_that_there_are(parts: tuple[float, float, float, float], reason: str) -> None:
    assert cure(parts)[1] == reason


COARSE = (NONE, NONE, 1e-2, 1e-2)


@pytest.mark.parametrize(
    ("op_type", "forms", "target", "wanted", "words"),
    [
        ("CONV_2D", ALL, "integer-only", "16 bit", "20.0 dB"),
        ("SQRT", {}, "integer-only", "float", "it has no 16-bit form"),
        ("CONV_2D", {"hybrid": None}, "integer-only", "hybrid", "it has no 16-bit form"),
        ("CONV_2D", ALL, "litert-cpu", "hybrid", "16 bits cost this target more"),
        ("CONV_2D", ALL, "ethos-u55-128", "16 bit", ""),
        ("PACK", ALL, "tflm", "float", "the target refuses it with 16 bits"),
        ("HARD_SWISH", ALL, "tflm", "16 bit", ""),
    ],
)
def test_the_form_that_costs_the_target_least(
    op_type: str, forms: Mapping[str, str | None], target: str, wanted: str, words: str
) -> None:
    name, reason = cure(COARSE, op_type, forms, target)
    assert name == wanted
    assert words in reason


def test_16_bits_that_were_left_out_are_no_fault_of_the_node(reviewed: Reviewed) -> None:
    reviewed("a cure without 16 bits", cure(COARSE, forms={"hybrid": None}, int16=False))


LEFT, TAKEN = "the compiler has no such op", ""
ON_A_CHIP = {
    "it takes every form": ({"int16": TAKEN, "hybrid": TAKEN, "float": TAKEN}, "16 bit", ""),
    "it leaves every form": ({"int16": LEFT, "hybrid": LEFT, "float": LEFT}, "hybrid", "16 bits cost this target more"),
    "it takes 16 bits alone": ({"int16": TAKEN, "hybrid": LEFT, "float": LEFT}, "16 bit", ""),
    "it takes float alone": ({"int16": LEFT, "hybrid": LEFT, "float": TAKEN}, "float", "16 bits cost this target more"),
    "there is no 16-bit form": ({"float": TAKEN}, "float", "it has no 16-bit form"),
}


@pytest.mark.parametrize(("forms", "wanted", "words"), ON_A_CHIP.values(), ids=ON_A_CHIP)
def test_where_a_compiler_decides_what_it_said_of_a_form_counts(
    forms: Mapping[str, str | None], wanted: str, words: str
) -> None:
    name, reason = cure(COARSE, forms=forms, target="qualcomm-sm8750")
    assert name == wanted
    assert words in reason


def test_decibels() -> None:
    assert decibels(1e-3) == pytest.approx(30.0)
    assert decibels(0.0) == math.inf
    assert math.isnan(decibels(math.nan))
