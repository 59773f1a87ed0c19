from __future__ import annotations

from dataclasses import replace

import pytest
from reviewing import Reviewed

from autoselect.domain.graph import Graph, Op, OpKind, Tensor, peak_activation_bytes
from autoselect.domain.target_islands import islands, without
from autoselect.domain.targets import Kernels, Place, Precision, Processor, Rule, Target, Vela
from autoselect.domain.verdicts import host_lacks, judge, pins
from autoselect.scoring.target_file import read_target

ELEMENTS = 10
_KINDS = {"i": OpKind.INTEGER, "f": OpKind.FLOAT, "h": OpKind.HYBRID}


def chain(kinds: str, names: str | None = None, macs: int = 100) -> Graph:
    """A chain with an int8 interface: ``i`` integer, ``f`` float, ``h`` hybrid, with the conversions between them.

    ``names`` gives the op types, one letter each; ``A`` where it is left out.
    """
    tensors: list[Tensor] = []
    ops: list[Op] = []

    def tensor(dtype: str) -> int:
        size = ELEMENTS * (4 if dtype == "float32" else 1)
        tensors.append(
            Tensor(name=f"t{len(tensors)}", dtype=dtype, shape=(1, ELEMENTS), is_constant=False, size_bytes=size)
        )
        return len(tensors) - 1

    def op(op_type: str, kind: OpKind, source: int, dtype: str, count: int) -> int:
        result = tensor(dtype)
        ops.append(Op(op_type=op_type, kind=kind, inputs=(source,), constants=(), outputs=(result,), macs=count))
        return result

    def as_dtype(source: int, dtype: str) -> int:
        if tensors[source].dtype == dtype:
            return source
        return op("QUANTIZE" if dtype == "int8" else "DEQUANTIZE", OpKind.BOUNDARY, source, dtype, 0)

    current = tensor("int8")
    for kind, name in zip(kinds, names or "A" * len(kinds), strict=True):
        dtype = "int8" if kind == "i" else "float32"
        current = op(name, _KINDS[kind], as_dtype(current, dtype), dtype, macs)
    result = as_dtype(current, "int8")
    return Graph(tensors=tuple(tensors), ops=tuple(ops), inputs=(0,), outputs=(result,))


def kernels(ops: str | None, per_mac: float, per_element: float) -> Kernels:
    return Kernels(ops=None if ops is None else frozenset(ops), per_mac=per_mac, per_element=per_element)


NPU = Target(
    name="npu",
    why="",
    unit="cycles",
    accelerator=Processor(name="the NPU", kernels={Precision.INT8: kernels("AB", 0.01, 0.1)}, max_rank=4),
    host=Processor(
        name="the CPU",
        kernels={
            Precision.INT8: kernels(None, 1.0, 1.0),
            Precision.FLOAT: kernels(None, 4.0, 2.0),
            Precision.CONVERSION: kernels(None, 0.0, 3.0),
        },
    ),
    segments="any",
    crossing_fixed=50.0,
    crossing_per_byte=0.5,
    io_type="int8",
    per_channel=True,
)
LEADING = replace(NPU, segments="leading")
ALONE = replace(NPU, accelerator=None, segments="none")
# An op on the NPU costs 0.01 x 100 + 0.1 x 10 = 2, on the CPU 110 in int8 and 420 in float, a conversion 30; the
# crossing of ten bytes costs 55.


@pytest.mark.parametrize(
    ("kinds", "names", "target", "segments", "cost"),
    [
        pytest.param("iii", None, NPU, 1, 6.0, id="all on the accelerator"),
        pytest.param("ifi", None, NPU, 2, 2 * 2 + 420 + 2 * 30 + 2 * 55, id="a float op between two"),
        pytest.param("iii", "AXA", NPU, 2, 2 * 2 + 110 + 2 * 55, id="an integer op that it lacks"),
        pytest.param("iffi", None, NPU, 2, 2 * 2 + 2 * 420 + 2 * 30 + 2 * 55, id="one island of two"),
        pytest.param("ifi", None, LEADING, 1, 2 + 420 + 60 + 110 + 55, id="leading: what follows runs on the host"),
        pytest.param("fii", None, LEADING, 0, 420 + 30 + 2 * 110 + 30, id="leading: nothing before the first float op"),
        pytest.param("iif", None, LEADING, 1, 2 * 2 + 420 + 2 * 30 + 55, id="leading: a float op placed last"),
        pytest.param("ifi", None, ALONE, 0, 2 * 110 + 420 + 2 * 30, id="one processor"),
    ],
)
def test_segments_and_cost_by_hand(kinds: str, names: str | None, target: Target, segments: int, cost: float) -> None:
    found = judge(chain(kinds, names), target)
    # The conversion of the model's own interface hands nothing over that counts as a crossing.
    assert found.segments == segments
    assert found.cost == pytest.approx(cost)
    assert found.refused() == ()


@pytest.mark.parametrize(("rows", "cost"), [(1, 20.0), (10, 2.0), (20, 1.0), (100, 1.0)])
def test_an_op_waits_for_its_weights_unless_its_products_take_longer(rows: int, cost: float) -> None:
    """Each of 100 products costs 0.01, each weight 0.2: one that 20 rows share is there in time."""
    graph = chain("i", "A", macs=100)
    graph = replace(graph, tensors=tuple(replace(t, shape=(rows, 10)) for t in graph.tensors))
    waiting = replace(kernels("A", 0.01, 0.0), per_weight_of={"A": 0.2})
    found = judge(graph, replace(NPU, accelerator=Processor(name="the NPU", kernels={Precision.INT8: waiting})))
    assert found.accelerator_cost == pytest.approx(cost)


def test_leading_charges_an_early_float_op_more_than_a_late_one() -> None:
    early, late = judge(chain("fiiii"), LEADING), judge(chain("iiiif"), LEADING)
    assert early.cost > late.cost
    assert judge(chain("ifiii"), LEADING).cost > judge(chain("iiifi"), LEADING).cost


REASONS = {
    "no kernel of the type": ("i", "X", Place.HOST, "the NPU has no int8 X"),
    "no such precision": ("f", "A", Place.HOST, "the NPU runs no float ops"),
    "runs nowhere": ("h", "A", Place.NOWHERE, "the CPU runs no hybrid ops"),
    "on the accelerator": ("i", "B", Place.ACCELERATOR, ""),
}


@pytest.mark.parametrize(("kind", "name", "place", "reason"), REASONS.values(), ids=REASONS)
def test_an_op_is_told_its_place_and_why(kind: str, name: str, place: Place, reason: str) -> None:
    graph = chain(kind, name)
    at = [op.op_type for op in graph.ops].index(name)
    found = judge(graph, NPU).placements[at]
    assert (found.place, found.reason) == (place, reason)
    assert found.refused_by == ("runtime" if place is Place.NOWHERE else None)


def test_a_hard_rule_comes_before_the_kernels() -> None:
    rule = Rule(ops=frozenset("A"), precisions=frozenset({Precision.FLOAT}), by="compiler", why="dislikes A")
    found = judge(chain("ifi"), replace(NPU, rules=(rule,)))
    assert found.refused() == found.refused("compiler") == (2,)
    assert found.refused("runtime") == ()
    assert found.placements[2].reason == "dislikes A"
    assert judge(chain("ifi", "ABA"), replace(NPU, rules=(rule,))).refused() == ()


def test_too_many_dimensions_leave_the_accelerator(reviewed: Reviewed) -> None:
    graph = chain("i")
    wide = replace(graph, tensors=tuple(replace(t, shape=(1, 1, 1, 1, ELEMENTS)) for t in graph.tensors))
    (found,) = judge(wide, NPU).placements
    assert found.place is Place.HOST
    reviewed("too many dimensions", found.reason)


@pytest.mark.parametrize(
    ("name", "is_padded", "is_velas", "place"),
    [
        ("CONV_2D", True, True, Place.HOST),
        ("CONV_2D", False, True, Place.ACCELERATOR),
        ("CONV_2D", False, False, Place.HOST),
        ("DEPTHWISE_CONV_2D", False, True, Place.HOST),
    ],
)
def test_a_long_stride_leaves_the_accelerator(
    reviewed: Reviewed, name: str, is_padded: bool, is_velas: bool, place: Place
) -> None:
    graph = chain("i")
    op = replace(graph.ops[0], op_type=name, stride=4, is_padded=is_padded)
    npu = Processor(
        name="the NPU",
        kernels={Precision.INT8: kernels(None, 0.01, 0.1)},
        max_stride=3,
        any_stride=Vela.ANY_STRIDE if is_velas else frozenset(),
    )
    (found,) = judge(replace(graph, ops=(op,)), replace(NPU, accelerator=npu)).placements
    assert found.place == place
    if place is Place.HOST:
        reviewed("too long a stride", found.reason)
    else:
        assert "stride" not in found.reason


def test_the_gain_of_an_island_is_what_the_model_costs_more_for_it() -> None:
    graph = chain("ifiiffi")
    found = islands(graph, NPU, lambda other: judge(other, NPU).cost)
    assert [[graph.ops[i].op_type for i in island.ops] for island in found] == [
        ["DEQUANTIZE", "A", "QUANTIZE"],
        ["DEQUANTIZE", "A", "A", "QUANTIZE"],
    ]
    # Without it: its ops cost 2 each on the NPU; its arithmetic, conversions and crossings are gone.
    assert found[0].gain == pytest.approx(420 + 60 + 110 - 2)
    assert found[1].gain == pytest.approx(840 + 60 + 110 - 4)


@pytest.mark.parametrize("kinds", ["fii", "iif", "f"])
@pytest.mark.parametrize("target", [NPU, LEADING], ids=["any", "leading"])
def test_an_island_at_an_end_takes_the_conversion_of_the_interface_with_it(kinds: str, target: Target) -> None:
    graph = chain(kinds)
    (island,) = islands(graph, target, lambda other: judge(other, target).cost)
    assert island.gain == pytest.approx(judge(graph, target).cost - judge(chain("i" * len(kinds)), target).cost)


@pytest.mark.parametrize("kinds", ["ifi", "ffi", "iff", "iffif"])
@pytest.mark.parametrize("at", range(5))
def test_an_island_beside_an_integer_op_of_the_host_still_hands_its_values_over(kinds: str, at: int) -> None:
    names = "".join("X" if place == at else "A" for place in range(len(kinds)))
    graph, integer = chain(kinds, names), chain("i" * len(kinds), names)
    strays = {i for i, op in enumerate(graph.ops) if op.kind is not OpKind.INTEGER}
    assert judge(without(graph, strays), NPU).cost == pytest.approx(judge(integer, NPU).cost)


def test_a_conversion_of_the_interface_stays_while_others_read_it() -> None:
    graph = chain("fi")
    shared = replace(graph, ops=(*graph.ops, replace(graph.ops[1], outputs=graph.ops[-1].outputs)))
    alone, both = (islands(one, NPU, lambda other: judge(other, NPU).cost)[0].gain for one in (graph, shared))
    assert alone != both


def test_on_a_leading_target_the_first_island_is_charged_for_what_follows() -> None:
    graph = chain("ifiiiii")
    (island,) = islands(graph, LEADING, lambda other: judge(other, LEADING).cost)
    assert island.gain == pytest.approx(judge(graph, LEADING).cost - judge(chain("iiiiiii"), LEADING).cost)


def test_an_integer_op_without_a_kernel_is_an_island_that_gives_nothing_back() -> None:
    graph = chain("iii", "AXA")
    (island,) = islands(graph, NPU, lambda other: judge(other, NPU).cost)
    assert (island.ops, island.gain) == ((1,), 0.0)


def test_without_every_island_a_model_costs_what_the_integer_one_costs() -> None:
    graph = chain("ififfi")
    everything = [i for i, op in enumerate(graph.ops) if op.kind is not OpKind.INTEGER]
    assert judge(without(graph, everything), NPU).accelerator_cost == judge(chain("iiiiii"), NPU).cost


def test_pins_say_what_a_target_decides(reviewed: Reviewed) -> None:
    graph = chain("ffff", "ABXC")
    rules = (
        Rule(ops=frozenset("A"), precisions=frozenset({Precision.FLOAT}), by="compiler", why="not A"),
        Rule(ops=frozenset("B"), precisions=frozenset({Precision.INT8}), by="runtime", why="not B"),
        Rule(ops=frozenset("X"), precisions=frozenset(Precision), by="runtime", why="no X"),
    )
    at = {op.op_type: i for i, op in enumerate(graph.ops)}
    found = pins(graph, at.values(), replace(NPU, rules=rules), hybrid=False)
    assert found.keep_int == {at["A"]: "not A"}
    assert found.keep_float == {at["B"]: "not B"}
    assert found.impossible == {at["X"]: "no X"}
    assert found.not_int16.pop(at["X"]) == "no X"
    assert found.not_int16.keys() == {at[name] for name in "ABC"}
    reviewed("a processor without 16 bits", set(found.not_int16.values()))
    # What cannot be an integer op is stuck in float.
    assert set(pins(graph, [], replace(NPU, rules=rules), hybrid=False).impossible) == {at["A"], at["X"]}


def test_the_peak_is_what_is_alive_at_once() -> None:
    # int8 chain: input and output of one op, ten bytes each.
    assert peak_activation_bytes(chain("iii")) == 20
    # The float op reads 40 bytes and writes 40.
    assert peak_activation_bytes(chain("ifi")) == 80
    graph = chain("iii")
    kept = replace(graph, outputs=(*graph.outputs, graph.ops[0].outputs[0]))
    assert peak_activation_bytes(kept) == 30


def test_a_schedule_cuts_where_a_delegate_would_wait() -> None:
    """A float op feeds a long branch and a short one: the short one's conversion is scheduled after the long branch.

    A delegate runs both branches in one piece; a schedule, the addition's last input first, has the conversion between.
    """
    int8 = Tensor(name="", dtype="int8", shape=(1, 10), is_constant=False, size_bytes=10)
    wide = replace(int8, dtype="float32", size_bytes=40)

    def op(op_type: str, kind: OpKind, inputs: tuple[int, ...], output: int) -> Op:
        return Op(op_type=op_type, kind=kind, inputs=inputs, constants=(), outputs=(output,), macs=0)

    ops = (
        op("A", OpKind.INTEGER, (0,), 1),
        op("DEQUANTIZE", OpKind.BOUNDARY, (1,), 2),
        op("A", OpKind.FLOAT, (2,), 3),
        op("QUANTIZE", OpKind.BOUNDARY, (3,), 4),
        op("QUANTIZE", OpKind.BOUNDARY, (3,), 5),
        op("A", OpKind.INTEGER, (5,), 6),
        op("B", OpKind.INTEGER, (4, 6), 7),
    )
    graph = Graph(tensors=(int8, int8, wide, wide, int8, int8, int8, int8), ops=ops, inputs=(0,), outputs=(7,))
    assert judge(graph, NPU).segments == 2
    assert judge(graph, replace(NPU, segments="scheduled")).segments == 3
    assert judge(chain("ififfi"), replace(NPU, segments="scheduled")).segments == 3


def _with_index_op(op_type: str, dtype: str = "int32") -> Graph:
    graph = chain("f")
    value = Tensor(name="index", dtype=dtype, shape=(1, ELEMENTS), is_constant=False, size_bytes=4 * ELEMENTS)
    result = Op(op_type=op_type, kind=OpKind.NEUTRAL, inputs=(0,), constants=(), outputs=(len(graph.tensors),), macs=0)
    return replace(graph, tensors=(*graph.tensors, value), ops=(*graph.ops, result))


_COMPARING = Kernels(ops=frozenset({"LESS", "ADD"}), per_mac=1.0, per_element=1.0)
MICRO = replace(NPU, host=replace(NPU.host, kernels={**NPU.host.kernels, **dict.fromkeys(Precision, _COMPARING)}))
ANY_CONVERSION = {**MICRO.host.kernels, Precision.CONVERSION: kernels(None, 0.0, 1.0)}
CONVERTS_ALL = replace(MICRO, host=replace(MICRO.host, kernels=ANY_CONVERSION))


@pytest.mark.parametrize(
    ("op_type", "dtype", "target", "place"),
    [
        ("LESS", "int32", MICRO, Place.EITHER),
        ("A", "int32", MICRO, Place.EITHER),  # The NPU may take it: its compiler tells.
        ("SELECT", "int32", MICRO, Place.NOWHERE),
        ("LOGICAL_AND", "bool", MICRO, Place.EITHER),  # Lists of kernels for values do not name it.
        ("SELECT", "int32", NPU, Place.EITHER),
        ("SELECT", "int32", CONVERTS_ALL, Place.NOWHERE),
        ("QUANTIZE", "int8", CONVERTS_ALL, Place.EITHER),
        ("SELECT", "float32", MICRO, Place.EITHER),  # It is gone from the model, and counts nowhere.
    ],
)
def test_an_op_on_indices_that_the_host_lacks_is_refused(
    op_type: str, dtype: str, target: Target, place: Place
) -> None:
    graph = _with_index_op(op_type, dtype)
    last = len(graph.ops) - 1
    verdict = judge(graph, target)
    impossible = pins(graph, [], target, hybrid=False).impossible
    assert verdict.placements[last].place is place
    assert (last in verdict.refused("runtime")) == (place is Place.NOWHERE)
    assert (last in impossible) == (place is Place.NOWHERE)
    lacks = host_lacks(graph, [last], target) is not None
    assert lacks == (place is Place.NOWHERE or op_type == "A")


def test_float_ops_that_nothing_runs_cost_what_the_dearest_other_ops_do() -> None:
    """The float model is what other costs are compared with, also for a chip without a float unit."""
    kinds = {Precision.INT8: kernels(None, 1.0, 1.0), Precision.INT16: kernels(None, 2.0, 5.0)}
    host = Processor(name="the CPU", kernels={**kinds, Precision.CONVERSION: kernels(None, 900.0, 900.0)})
    found = judge(chain("f"), replace(ALONE, host=host))
    assert found.placements[1].place is Place.NOWHERE
    assert found.placements[1].cost == 2.0 * 100 + 5.0 * ELEMENTS


@pytest.mark.parametrize(("per_channel", "scales", "refused"), [(True, 16, ()), (False, 1, ()), (False, 16, (0,))])
def test_a_chip_of_one_scale_a_tensor_refuses_several(per_channel: bool, scales: int, refused: tuple[int, ...]) -> None:
    plain = chain("i")
    weights = Tensor(name="w", dtype="int8", shape=(16, 9), is_constant=True, size_bytes=144, scales=scales)
    op = replace(plain.ops[0], constants=(len(plain.tensors),))
    graph = replace(plain, tensors=(*plain.tensors, weights), ops=(op,))
    assert judge(graph, replace(NPU, per_channel=per_channel)).refused("compiler") == refused


def test_a_change_of_sign_at_the_interface_cuts_as_little_as_a_conversion_from_float() -> None:
    """Cameras give bytes without a sign; the accelerator lacks QUANTIZE, and takes what comes first alone."""
    plain = chain("ii", "AB")
    picture = Tensor(name="picture", dtype="uint8", shape=(1, ELEMENTS), is_constant=False, size_bytes=ELEMENTS)
    place = len(plain.tensors)
    signed = Op(op_type="QUANTIZE", kind=OpKind.INTEGER, inputs=(place,), constants=(), outputs=(0,), macs=0)
    graph = replace(plain, tensors=(*plain.tensors, picture), ops=(signed, *plain.ops), inputs=(place,))
    found, without = judge(graph, LEADING), judge(plain, LEADING)
    assert (found.segments, found.crossings) == (without.segments, without.crossings) == (1, ())
    assert found.cost == without.cost + 1.0 * ELEMENTS


def test_a_target_that_rejects_all_ops_of_a_precision_does_not_run_it() -> None:
    rule = Rule(ops=None, precisions=frozenset({Precision.FLOAT}), by="runtime", why="none here")
    hybrid = replace(NPU.host, kernels={**NPU.host.kernels, Precision.HYBRID: kernels(None, 4.0, 2.0)})
    both = replace(NPU, host=hybrid)
    assert both.runs_hybrid
    assert replace(both, rules=(rule,)).runs_hybrid
    assert not replace(both, rules=(replace(rule, precisions=frozenset({Precision.HYBRID})),)).runs_hybrid


def test_a_rule_that_rejects_16_bits_of_all_ops_leaves_none_to_favour() -> None:
    wide = replace(NPU, accelerator=Processor(name="n", kernels={p: kernels(None, 1.0, 1.0) for p in Precision}))
    rule = Rule(ops=None, precisions=frozenset({Precision.INT16}), by="compiler", why="none here")
    assert wide.favours_int16
    assert not replace(wide, rules=(rule,)).favours_int16


CHEAPER = {
    "integers cost less": (kernels(None, 4.0, 2.0), False),
    "multiplications cost less in float": (kernels(None, 0.5, 2.0), True),
    "elements cost less in float": (kernels(None, 4.0, 0.5), True),
    "one op costs less in float": (replace(kernels(None, 4.0, 2.0), per_mac_of={"CONV_2D": 0.5}), True),
    "one op waits for weights in float": (replace(kernels(None, 4.0, 2.0), per_weight_of={"CONV_2D": 0.5}), False),
}


@pytest.mark.parametrize(("floats", "expected"), CHEAPER.values(), ids=CHEAPER)
def test_where_anything_is_cheaper_outside_of_integers(floats: Kernels, expected: bool) -> None:
    host = Processor(name="h", kernels={Precision.INT8: kernels(None, 1.0, 1.0), Precision.FLOAT: floats})
    assert replace(ALONE, host=host).is_cheaper_outside is expected
    assert not any(read_target(name).is_cheaper_outside for name in ("integer-only", "litert-cpu", "tflm", "edgetpu"))
