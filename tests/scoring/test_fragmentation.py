from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.errors import UsageError
from autoselect.scoring.fragmentation import Fragmentation, PenaltyWeights, fragmentation
from autoselect.scoring.target_file import read_target

BUNDLED = PenaltyWeights(float_macs=40, float_ops=40, crossings=10, crossing_bytes=10, segments=5)
ELEMENTS = 4
"""Elements of every activation, unless a test says otherwise."""


def chain(kinds: str, macs: list[int] | None = None, sizes: list[int] | None = None) -> Graph:
    """A chain of ops with float inputs and outputs: ``i`` integer, ``w`` of 16 bits, ``f`` float, ``h`` hybrid.

    QUANTIZE and DEQUANTIZE are put wherever integer meets float, also at the model's ends, as TensorFlow does, and
    QUANTIZE wherever 8 bits meet 16.
    ``macs`` and ``sizes`` (elements of the output) are by op.
    """
    macs, sizes = macs or [0] * len(kinds), sizes or [ELEMENTS] * len(kinds)
    tensors: list[Tensor] = []
    ops: list[Op] = []

    def tensor(dtype: str, size: int) -> int:
        wide = {"float32": 4, "int8": 1, "int16": 2}[dtype]
        name = f"t{len(tensors)}"
        tensors.append(Tensor(name=name, dtype=dtype, shape=(1, size), is_constant=False, size_bytes=wide * size))
        return len(tensors) - 1

    def op(op_type: str, kind: OpKind, source: int, target: int, op_macs: int = 0) -> int:
        ops.append(Op(op_type=op_type, kind=kind, inputs=(source,), constants=(), outputs=(target,), macs=op_macs))
        return target

    def as_dtype(source: int, dtype: str) -> int:
        if tensors[source].dtype == dtype:
            return source
        name = "DEQUANTIZE" if dtype == "float32" else "QUANTIZE"
        kind = OpKind.BOUNDARY if "float32" in (dtype, tensors[source].dtype) else OpKind.INT16
        return op(name, kind, source, tensor(dtype, tensors[source].shape[1]))

    current = tensor("float32", ELEMENTS)
    for letter, op_macs, size in zip(kinds, macs, sizes, strict=True):
        kind = {"i": OpKind.INTEGER, "w": OpKind.INT16, "f": OpKind.FLOAT, "h": OpKind.HYBRID}[letter]
        dtype = {"i": "int8", "w": "int16"}.get(letter, "float32")
        source = as_dtype(current, dtype)
        current = op("OP", kind, source, tensor(dtype, size), op_macs)
    result = as_dtype(current, "float32")
    return Graph(tensors=tuple(tensors), ops=tuple(ops), inputs=(0,), outputs=(result,))


def measure(kinds: str, macs: list[int] | None = None, sizes: list[int] | None = None) -> Fragmentation:
    return fragmentation(chain(kinds, macs, sizes), BUNDLED)


def test_16_bit_ops_are_integers_and_cost_points_of_their_own() -> None:
    plain = chain("iiii", macs=[10, 20, 30, 40])
    ops = tuple(replace(op, kind=OpKind.INT16) if op.macs in (20, 40) else op for op in plain.ops)
    found = fragmentation(replace(plain, ops=ops), BUNDLED)
    assert (found.segments, found.float_ops, found.float_macs_share) == (1, 0, 0.0)
    assert found.penalty == pytest.approx(4.0 * 0.6 + 4.0 * 2 / 4)
    assert fragmentation(plain, BUNDLED).penalty == 0.0


def test_the_bundled_weights_are_those_written_here() -> None:
    assert read_target().shares == BUNDLED


def test_two_islands_by_hand() -> None:
    """Five ops, two of them float: quantized, float, quantized, float, quantized.

    MACs in float 30 of 100; crossings: into and out of each float op, 4 of 5 ops; the crossing tensors hold
    8, 4, 2 and 4 elements; all activations 8 + 4 + 2 + 4 + 2 = 20; three segments, two beyond the first.
    """
    found = measure("ififi", macs=[50, 10, 10, 20, 10], sizes=[8, 4, 2, 4, 2])
    assert (found.segments, found.float_ops, found.crossing_tensors, found.crossing_bytes) == (3, 2, 4, 18)
    assert found.float_macs_share == pytest.approx(0.3)
    assert found.penalty == pytest.approx(40 * 0.3 + 40 * 2 / 5 + 10 * 4 / 5 + 10 * 18 / 20 + 5 * 2 / 5)


ALONE = {
    "all integer": ("iiii", 0.0, 1),
    "one integer op": ("i", 0.0, 1),
    "all float": ("ffff", 80.0, 0),
    "all hybrid": ("hhhh", 80.0, 0),
    "float and hybrid": ("fhfh", 80.0, 0),
}


@pytest.mark.parametrize("macs", [[0, 0, 0, 0], [7, 0, 3, 1]], ids=["without MACs", "with MACs"])
@pytest.mark.parametrize(("kinds", "penalty", "segments"), ALONE.values(), ids=ALONE)
def test_pure_models(kinds: str, penalty: float, segments: int, macs: list[int]) -> None:
    """QUANTIZE at the model's input and DEQUANTIZE at its output are free."""
    found = measure(kinds, macs[: len(kinds)])
    assert (found.penalty, found.segments) == (penalty, segments)
    assert found.crossing_tensors == found.crossing_bytes == 0


@pytest.mark.parametrize(
    ("kinds", "crossings"),
    [
        pytest.param("fiii", 1, id="float first: only the way into integers is inside"),
        pytest.param("iiif", 1, id="float last: only the way out of integers is inside"),
        pytest.param("iffi", 2, id="float in the middle: out and in"),
        pytest.param("fiif", 2, id="float at both ends"),
    ],
)
def test_only_what_is_inside_crosses(kinds: str, crossings: int) -> None:
    found = measure(kinds)
    assert (found.crossing_tensors, found.crossing_bytes) == (crossings, crossings * ELEMENTS)


def test_a_conversion_between_integer_types_is_an_integer_op() -> None:
    graph = chain("ii")
    rescale = replace(graph.ops[1], op_type="QUANTIZE")
    found = fragmentation(replace(graph, ops=(graph.ops[0], rescale, *graph.ops[2:])), BUNDLED)
    assert (found.penalty, found.segments, found.crossing_tensors) == (0, 1, 0)


def test_ops_on_shapes_count_for_nothing() -> None:
    graph = chain("if", macs=[3, 1])
    shape = Tensor(name="shape", dtype="int32", shape=(1, 400), is_constant=False, size_bytes=1600)
    place = len(graph.tensors)
    neutral = Op(op_type="SHAPE", kind=OpKind.NEUTRAL, inputs=(0,), constants=(), outputs=(place,), macs=0)
    more = replace(graph, tensors=(*graph.tensors, shape), ops=(neutral, *graph.ops))
    assert fragmentation(more, BUNDLED).penalty == fragmentation(graph, BUNDLED).penalty


# ------------------------------------------------------------------- laws: nothing is free, nothing is negative


def mixed(minimum: int) -> st.SearchStrategy[str]:
    return st.text("iwfh", min_size=minimum, max_size=9)


@given(kinds=mixed(1), macs=st.lists(st.integers(0, 9), min_size=9, max_size=9))
def test_zero_means_all_integer(kinds: str, macs: list[int]) -> None:
    found = measure(kinds, macs[: len(kinds)])
    assert found.penalty >= 0
    assert (found.penalty == 0) == (set(kinds) == {"i"})
    assert 0 <= found.float_macs_share <= 1


@given(left=mixed(0), right=mixed(0), grown=st.sampled_from(["iff", "ihf", "iih"]))
def test_a_further_float_op_costs_more_while_the_rest_is_equal(left: str, right: str, grown: str) -> None:
    """An island that grows by one op, or whose only op turns hybrid, cuts the model as it did before."""
    before, after = measure(left + "iif" + right), measure(left + grown + right)
    assert (after.crossing_tensors, after.segments) == (before.crossing_tensors, before.segments)
    if grown == "iih":
        assert after.penalty == before.penalty
    else:
        assert after.float_ops == before.float_ops + 1
        assert after.penalty > before.penalty


@given(left=mixed(0), right=mixed(0), macs=st.lists(st.integers(0, 9), min_size=19, max_size=19))
def test_16_bits_cost_more_than_8_but_between_others(left: str, right: str, macs: list[int]) -> None:
    """Conversions between 8 and 16 bits come and go with them, and must not thin out what float ops cost."""
    assume("w" not in (left[-1:], right[:1]))
    before, after = (left + kind + right for kind in "iw")
    assert measure(after, macs[: len(after)]).penalty > measure(before, macs[: len(before)]).penalty


@pytest.mark.parametrize(
    ("less", "more"),
    [
        pytest.param(measure("iifiii"), measure("iiffii"), id="one more float op, equal crossings and segments"),
        pytest.param(
            measure("iffi", macs=[5, 1, 1, 5]), measure("iffi", macs=[5, 2, 1, 5]), id="one more MAC in float"
        ),
        pytest.param(measure("iffiii"), measure("ififii"), id="the same float ops in two islands"),
        pytest.param(measure("ffiiii"), measure("iffiii"), id="one more crossing and one more segment"),
        pytest.param(measure("ifi", sizes=[4, 4, 4]), measure("ifi", sizes=[5, 4, 4]), id="one more crossing byte"),
        pytest.param(measure("fiif"), measure("ifif"), id="one more segment"),
    ],
)
def test_each_further_bit_costs_more(less: Fragmentation, more: Fragmentation) -> None:
    assert more.penalty > less.penalty


@pytest.mark.parametrize("weight", ["float_macs", "float_ops", "crossings", "crossing_bytes", "segments"])
def test_each_weight_counts_by_its_own(weight: str) -> None:
    """Doubling one weight adds exactly its own share, as computed by hand for the two islands."""
    graph = chain("ififi", [50, 10, 10, 20, 10], [8, 4, 2, 4, 2])
    shares = {"float_macs": 0.3, "float_ops": 0.4, "crossings": 0.8, "crossing_bytes": 0.9, "segments": 0.4}
    doubled = replace(BUNDLED, **{weight: 2 * getattr(BUNDLED, weight)})
    added = fragmentation(graph, doubled).penalty - fragmentation(graph, BUNDLED).penalty
    assert added == pytest.approx(getattr(BUNDLED, weight) * shares[weight])


# ------------------------------------------------------------------------------------- the file of weights

WEIGHTS = {"float_macs": "1", "float_ops": "2", "crossings": "3", "crossing_bytes": "4", "segments": "5.5"}


PROFILE = """
schema_version = 1
name = "own"
why = "A test."
unit = "points"
segments = "none"
crossing = { fixed = 0.0, per_byte = 0.0 }
host = { name = "host", int8 = { ops = "all", per_mac = 0.0, per_element = 0.0 } }
"""


def written(path: Path, **changes: str | None) -> str:
    lines = [f"{key} = {value}" for key, value in (WEIGHTS | changes).items() if value is not None]
    path.write_text(PROFILE + "[penalty]\n" + "\n".join(lines))
    return str(path)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    expected = PenaltyWeights(float_macs=1, float_ops=2, crossings=3, crossing_bytes=4, segments=5.5)
    assert read_target(written(tmp_path / "own.toml")).shares == expected


WRONG = {
    "negative": ({"segments": "-1"}, r"penalty\.segments: .*greater than 0"),
    "zero": ({"crossings": "0"}, r"penalty\.crossings: .*greater than 0"),
    "missing": ({"float_ops": None}, r"penalty\.float_ops: .*required"),
    "unknown": ({"cycles": "1"}, r"penalty\.cycles: "),
    "text": ({"float_macs": "'much'"}, r"penalty\.float_macs: .*number"),
}


@pytest.mark.parametrize(("changes", "words"), WRONG.values(), ids=WRONG)
def test_wrong_weights_are_named(tmp_path: Path, changes: dict[str, str | None], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_target(written(tmp_path / "own.toml", **changes))
    assert caught.value.exit_code == 2


def test_a_file_that_is_no_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("name = 'x'\n")
    with pytest.raises(UsageError, match=r"schema_version: .*required"):
        read_target(str(tmp_path / "own.toml"))
    with pytest.raises(UsageError, match="integer-only"):
        read_target("integer-onli")
