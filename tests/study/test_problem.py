from __future__ import annotations

from collections.abc import Mapping

import pytest
from fakes import table
from hypothesis import given
from hypothesis import strategies as st
from synthetic import chain_of

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.layers import LayerTable, Node
from autoselect.domain.objectives import Constraints
from autoselect.domain.repair_sets import Repairs
from autoselect.domain.search_space import BoundSpace, Cut, Dimension, Toggle
from autoselect.study.proposing import problem as problem_module
from autoselect.study.proposing.mask import Mask, Units, bits
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.setup.problem import _unused_counts, neighbours_of, units_in


def problem_of(groups: list[str], links: list[tuple[int, int]], pinned: str = "") -> Problem:
    """Units of one-letter nodes; links join units."""
    neighbours: list[set[int]] = [set() for _ in groups]
    for i, j in links:
        neighbours[i].add(j)
        neighbours[j].add(i)
    units = [
        Unit(nodes=frozenset(letters), op_type="ADD", position=i, sensitivity=0.1) for i, letters in enumerate(groups)
    ]
    return Problem(
        units,
        [frozenset(n) for n in neighbours],
        lambda nodes, _further, _repairs: Forecast(100 + len(nodes), float(len(nodes)), nodes),
        space=BoundSpace(dimensions=(), keep_float=frozenset(pinned)),
    )


@given(st.integers(0, 31).map(Mask))
def test_masks_and_nodes_say_the_same(mask: Mask) -> None:
    problem = problem_of(["a", "bc", "d", "efg", "h"], [], pinned="x")
    nodes = problem.nodes_of(mask)
    assert nodes == {"x"} | {c for i in bits(mask.left_out) for c in ["a", "bc", "d", "efg", "h"][i]}
    assert problem.mask_of(nodes) == mask


HALVES = {
    "nothing": ("", 0),
    "half of two is no more than half": ("b", 0),
    "two of three": ("cd", 0b100),
    "one of three": ("e", 0),
    "nodes of no unit": ("xyz", 0),
    "all": ("abcdef", 0b111),
}


@pytest.mark.parametrize(("nodes", "left_out"), HALVES.values(), ids=HALVES)
def test_an_unit_is_left_out_where_more_than_half_of_it_is(nodes: str, left_out: Units) -> None:
    assert problem_of(["f", "ab", "cde"], []).mask_of(nodes) == Mask(left_out)


DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]
"""0 forks into 1 and 2, which join in 3, and 4 follows."""
ISLANDS = {
    "nothing left out": (0b00000, []),
    "everything": (0b11111, [0b11111]),
    "both branches without the fork": (0b00110, [0b00010, 0b00100]),
    "both branches with the join": (0b01110, [0b01110]),
    "both ends": (0b10001, [0b00001, 0b10000]),
    "a branch from the fork, and the tail": (0b10011, [0b00011, 0b10000]),
    "around the diamond": (0b01111, [0b01111]),
}


@pytest.mark.parametrize(("units", "islands"), ISLANDS.values(), ids=ISLANDS)
def test_islands_by_hand(units: Units, islands: list[Units]) -> None:
    assert problem_of(list("abcde"), DIAMOND).islands(units) == islands


def test_a_forecast_is_worked_out_once() -> None:
    asked = []

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        asked.append(nodes)
        return Forecast(len(nodes), 0.5, nodes)

    problem = Problem([], [], forecast, space=BoundSpace(dimensions=(), keep_float=frozenset("x")))
    assert problem.forecast(Mask()) is problem.forecast(Mask())
    assert (problem.forecast(Mask()).size_bytes, asked) == (1, [{"x"}])


LIMITS = {
    "no limits": (Constraints(), 0b111, True),
    "size at the limit": (Constraints(max_size_bytes=400), 0b111, True),
    "size beyond": (Constraints(max_size_bytes=399), 0b111, False),
    "penalty at the limit": (Constraints(max_penalty=1.0 + 1 / 3), 0b001, True),
    "penalty beyond": (Constraints(max_penalty=1.3), 0b001, False),
    "the drop is not known beforehand": (Constraints(max_drop=-1.0), 0b111, True),
}


@pytest.mark.parametrize(("constraints", "left_out", "kept"), LIMITS.values(), ids=LIMITS)
def test_limits_of_size_and_penalty(constraints: Constraints, left_out: Units, kept: bool) -> None:
    """All three units of a chain left out make 400 bytes; one makes one island of three units: 1/3 + 3/3."""
    assert chain_of([0.1] * 3, constraints=constraints).within_limits(Mask(left_out)) is kept


LAYERS = table(
    ("a", "CONV_2D", 0.1), ("b", "RESHAPE", 0.1), ("c", "CONV_2D", 0.1), ("d", "ADD", 0.1), ("e", "MEAN", 0.1)
)
ALL = {"a": 0.5, "b": 0.25, "c": 0.125, "d": 2.0}


def toggles(*groups: str) -> tuple[Toggle, ...]:
    return tuple(Toggle(name=letters, nodes=frozenset(letters)) for letters in groups)


def cut(ranking: str, at_most: int, name: str = "cut") -> Cut:
    return Cut(name=name, ranking=tuple(ranking), at_most=at_most)


SPACES = {
    "units": (BoundSpace(dimensions=toggles("c", "ab", "d")), "ab c d"),
    "op types only": (BoundSpace(dimensions=toggles("ac", "d", "e")), "ac d e"),
    "op types that units make up are no steps": (BoundSpace(dimensions=toggles("ac", "a", "b", "c")), "a b c"),
    "what units do not cover of an op type is one step": (BoundSpace(dimensions=toggles("acd", "a")), "a cd"),
    "cuts are no steps": (BoundSpace(dimensions=(cut("dca", 2), cut("e", 1, "other"))), ""),
    "a toggle of no nodes": (BoundSpace(dimensions=toggles("b", "")), "b"),
    "the alternative of most toggles": (
        BoundSpace(
            dimensions=(cut("abcde", 5), *toggles("ab", "c", "acd")),
            alternatives=(("ranked", ("cut",)), ("units", ("ab", "c")), ("types", ("acd",))),
        ),
        "ab c",
    ),
    "nothing to choose": (BoundSpace(dimensions=()), ""),
}


@pytest.mark.parametrize(("space", "groups"), SPACES.values(), ids=SPACES)
def test_units_by_hand(space: BoundSpace, groups: str) -> None:
    assert ["".join(sorted(unit.nodes)) for unit in units_in(space, LAYERS, ALL)] == groups.split()


@pytest.mark.parametrize(
    ("dimensions", "unused"),
    [
        ((*toggles("ab", "c"), cut("bca", 3)), []),
        ((*toggles("ab", "c"), cut("bcd", 2)), []),
        ((*toggles("ab"), cut("bcd", 2), cut("a", 1, "within"), cut("d", 1, "other")), ["cut", "other"]),
    ],
    ids=["the toggles have all", "what it does not reach", "nodes of counts alone"],
)
def test_counts_that_reach_further_than_the_toggles_are_told(
    dimensions: tuple[Dimension, ...], unused: list[str]
) -> None:
    remarks = _unused_counts(BoundSpace(dimensions=dimensions), "surrogate")
    assert len(remarks) == bool(unused)
    assert all(name in remarks[0] for name in unused)
    assert not any("within" in remark for remark in remarks)


def weighted(macs: Mapping[str, int]) -> LayerTable:
    kinds = {"a": "RESHAPE", "b": "CONV_2D", "c": "ADD"}
    nodes = tuple(
        Node(index=3 * i, name=name, op_type=kind, macs=macs.get(name, 0))
        for i, (name, kind) in enumerate(kinds.items())
    )
    return LayerTable(nodes=nodes, statistics=(None,) * 3)


FIGURES = {
    "heaviest node gives the type": ("bc", {"b": 10, "c": 5}, {"b": 0.5, "c": 1.0}, ("CONV_2D", 3, 1.0)),
    "the other one is heavier": ("bc", {"b": 5, "c": 10}, {"b": 0.5, "c": 0.1}, ("ADD", 3, 0.5)),
    "no multiply-accumulates: the first": ("ac", {}, {}, ("RESHAPE", 0, 0.0)),
    "a sensitivity that is no number": ("ab", {"b": 1}, {"a": float("nan"), "b": 0.25}, ("CONV_2D", 0, 0.25)),
    "none known but infinite": ("c", {}, {"c": float("inf")}, ("ADD", 6, 0.0)),
}


@pytest.mark.parametrize(("group", "macs", "known", "expected"), FIGURES.values(), ids=FIGURES)
def test_what_an_unit_is_by_hand(
    group: str, macs: dict[str, int], known: dict[str, float], expected: tuple[str, int, float]
) -> None:
    (unit,) = units_in(BoundSpace(dimensions=toggles(group)), weighted(macs), known)
    assert (unit.op_type, unit.position, unit.sensitivity) == expected


def graph_of(*rows: tuple[tuple[int, ...], tuple[int, ...]]) -> Graph:
    """Ops as (tensors read, tensors written); tensor 0 is the input."""
    count = 1 + max(t for read, written in rows for t in (*read, *written))
    return Graph(
        tensors=tuple(
            Tensor(name=f"t{i}", dtype="float32", shape=(1,), is_constant=False, size_bytes=4) for i in range(count)
        ),
        ops=tuple(
            Op(op_type="ADD", kind=OpKind.FLOAT, inputs=read, constants=(), outputs=written, macs=0)
            for read, written in rows
        ),
        inputs=(0,),
        outputs=(count - 1,),
    )


CHAIN = graph_of(((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((3,), (4,)))
FORK = graph_of(((0,), (1,)), ((1,), (2,)), ((1,), (3,)), ((2, 3), (4,)))
NEIGHBOURS = {
    "a chain": (CHAIN, {0: "a", 1: "b", 2: "c", 3: "d"}, "a b c d", ["b", "ac", "bd", "c"]),
    "through an op that is no node": (CHAIN, {0: "a", 2: "c", 3: "d"}, "a c d", ["c", "ad", "c"]),
    "through two": (CHAIN, {0: "a", 3: "d"}, "a d", ["d", "a"]),
    "through a node of no unit": (CHAIN, {0: "a", 1: "b", 2: "c", 3: "d"}, "a c d", ["c", "ad", "c"]),
    "nodes of one unit are no neighbours": (CHAIN, {0: "a", 1: "b", 2: "c", 3: "d"}, "ab cd", ["c", "a"]),
    "a unit in two places": (CHAIN, {0: "a", 1: "b", 2: "c", 3: "d"}, "ac b d", ["bd", "a", "a"]),
    "a fork": (FORK, {0: "a", 1: "b", 2: "c", 3: "d"}, "a b c d", ["bc", "ad", "ad", "bc"]),
    "a fork behind an op that is no node": (FORK, {1: "b", 2: "c", 3: "d"}, "b c d", ["d", "d", "bc"]),
    "a join of an op that is no node": (FORK, {0: "a", 1: "b", 3: "d"}, "a b d", ["bd", "ad", "ab"]),
}


@pytest.mark.parametrize(("graph", "names", "groups", "expected"), NEIGHBOURS.values(), ids=NEIGHBOURS)
def test_neighbours_by_hand(graph: Graph, names: dict[int, str], groups: str, expected: list[str]) -> None:
    """Expected neighbours are told by the first letter of their unit."""
    layers = LayerTable(
        nodes=tuple(Node(index=i, name=n, op_type="ADD") for i, n in names.items()),
        statistics=(None,) * len(names),
    )
    units = [Unit(nodes=frozenset(g), op_type="ADD", position=i, sensitivity=0.0) for i, g in enumerate(groups.split())]
    found = neighbours_of(graph, layers, units)
    first = [min(unit.nodes) for unit in units]
    assert ["".join(sorted(first[j] for j in near)) for near in found] == expected


SETS = st.integers(0, (1 << 6) - 1)


REPAIR_SETS = (("bias",), (), ("bias-sequential",))


@given(st.builds(Mask, SETS, st.tuples(SETS), st.integers(0, 2)))
def test_masks_of_a_mixed_search_say_what_is_float_and_how_it_is_repaired(mask: Mask) -> None:
    problem = chain_of([1.0] * 6, hybrid=True, mixed=True, repair_sets=REPAIR_SETS)
    assert problem.nodes_of(mask) == {f"n{i}" for i in bits(mask.left_out)}
    assert problem.further_of(mask) == {"float": {f"n{i}" for i in bits(mask.within(1))}}
    assert problem.mask_of(problem.nodes_of(mask), problem.further_of(mask), REPAIR_SETS[mask.repairs]) == mask


def test_what_is_repaired_otherwise_is_another_candidate() -> None:
    problem = chain_of([1.0] * 4, repair_sets=REPAIR_SETS)
    assert len({problem.key(Mask(0b0110, repairs=place)) for place in range(3)}) == 3
    assert (problem.offered, problem.in_sequence, problem.count) == ((0, 1), {0: 2}, 2 * 2**4)


def test_forecasts_are_remembered_but_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem_module, "FORECASTS_KEPT", 50)
    asked: list[frozenset[str]] = []

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]], _repairs: Repairs) -> Forecast:
        asked.append(nodes)
        return Forecast(len(nodes), 0.0, nodes)

    units = [Unit(nodes=frozenset({f"n{i}"}), op_type="ADD", position=i, sensitivity=0.1) for i in range(10)]
    problem = Problem(units, [frozenset()] * 10, forecast)
    first = [problem.forecast(Mask(i)) for i in range(200)]
    assert [problem.forecast(Mask(i)) for i in range(150, 200)] == first[150:]
    assert len(asked) == 200
    assert [problem.forecast(Mask(i)) for i in range(150)] == first[:150]
    assert len(asked) == 350
