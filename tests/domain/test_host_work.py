from __future__ import annotations

from dataclasses import replace

import pytest
from reviewing import Reviewed
from test_target_rules import ALONE, LEADING, NPU, chain

from autoselect.domain.graph import Op, OpKind, Tensor
from autoselect.domain.host_work import host_works, left_against_table
from autoselect.domain.targets import LitertPlugin, Target, together
from autoselect.scoring.target_file import read_target


def test_where_the_first_op_ends_the_segment_it_is_named(reviewed: Reviewed) -> None:
    [work] = host_works(chain("iiii", "AXAB"), LEADING)
    # The host takes 110 for each of three ops, the NPU 2 for one, and a crossing 55.
    assert (work.ops, work.all_ops, work.named, work.op_type) == (3, 4, "first", "X")
    assert work.share == pytest.approx(330 / (330 + 2 + 55))
    assert work.is_most
    reviewed("most ops are left to the host", work.told_of("the recommended model"))


def test_a_conversion_of_the_models_own_input_is_not_to_blame() -> None:
    graph = chain("iii", "AXA")
    first = Tensor(name="x", dtype="float32", shape=(1, 10), is_constant=False, size_bytes=40)
    convert = Op(
        op_type="QUANTIZE", kind=OpKind.BOUNDARY, inputs=(len(graph.tensors),), constants=(), outputs=(0,), macs=0
    )
    fed = replace(graph, tensors=(*graph.tensors, first), ops=(convert, *graph.ops), inputs=(len(graph.tensors),))
    [work] = host_works(fed, LEADING)
    assert (work.ops, work.named, work.op_type) == (2, "first", "X")
    assert work.share == pytest.approx(220 / (220 + 2 + 55 + 30))  # The conversion takes 30.


def test_elsewhere_the_dearest_op_is_named() -> None:
    [work] = host_works(chain("ifii", "XAAA"), NPU)
    assert (work.named, work.op_type) == ("dearest", "A")
    [work] = host_works(chain("iii", "AXA"), replace(NPU, crossing_fixed=500.0))
    assert not work.is_most


BY_COMPILER = replace(NPU, compiler=LitertPlugin(manufacturer="Qualcomm", soc_model="SM8750"))


@pytest.mark.parametrize("target", [ALONE, replace(NPU, shares=read_target("integer-only").shares), BY_COMPILER])
def test_nothing_is_said_of_what_is_no_chip_with_a_table(target: Target) -> None:
    assert host_works(chain("ifi"), target) == []


def test_each_of_several_chips_is_told_of() -> None:
    other = replace(NPU, name="other", accelerator=None, segments="none")
    [work] = host_works(chain("iii", "AXA"), together([NPU, other]))
    assert work.chip == "npu"


def test_ops_that_a_compiler_leaves_against_the_table_are_told(reviewed: Reviewed) -> None:
    graph, model = chain("iiii", "AXAB"), "the recommended model"  # The table gives X to the host.
    assert [work.ops for work in host_works(graph, NPU)] == [1]
    made = {"segments": 3, "predicted_segments": 2, "host_ops": {"A": 1, "X": 1}}
    [message] = left_against_table(graph, made, NPU, model)
    reviewed("a compiler leaves ops that the profile gives to the accelerator", message)
    assert left_against_table(graph, {}, NPU, model) == []
    assert left_against_table(graph, {**made, "host_ops": {"X": 1}}, NPU, model) == []
    assert left_against_table(graph, made, read_target("qualcomm-sm8750"), model) == []
    assert left_against_table(graph, made, together([NPU, replace(NPU, name="other")]), model) == []
