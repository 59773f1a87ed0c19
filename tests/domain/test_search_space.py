from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.search_space import BoundSpace, Cut, Dimension, Toggle, Value, ranked_cut
from autoselect.errors import UsageError

NODES = "abcdefgh"
SETS = st.frozensets(st.sampled_from(NODES))


@st.composite
def spaces(draw: st.DrawFn) -> BoundSpace:
    toggles = draw(st.lists(SETS.filter(len), max_size=4))
    rankings = draw(st.lists(st.permutations(NODES), max_size=2))
    dimensions: list[Dimension] = [Toggle(name=f"t{i}", nodes=nodes) for i, nodes in enumerate(toggles)]
    dimensions += [ranked_cut(f"c{i}", order, draw(st.integers(0, 9))) for i, order in enumerate(rankings)]
    keep_float = draw(SETS)
    return BoundSpace(
        dimensions=tuple(draw(st.permutations(dimensions))),
        keep_float=keep_float,
        keep_int=draw(SETS) - keep_float,
    )


@st.composite
def settings_of(draw: st.DrawFn) -> tuple[BoundSpace, dict[str, Value]]:
    space = draw(spaces())
    values: dict[str, Value] = {}
    for dimension in space.dimensions:
        choices = st.booleans() if isinstance(dimension, Toggle) else st.integers(0, dimension.at_most)
        values[dimension.name] = draw(choices)
    return space, values


@given(spaces(), SETS)
def test_decoding_what_was_encoded_gives_the_nodes_after_pins(space: BoundSpace, nodes: frozenset[str]) -> None:
    setting = space.encode(nodes)
    if setting is not None:
        assert space.decode(setting) == space.pin(nodes)
        assert set(setting) == {d.name for d in space.dimensions}


@given(settings_of())
def test_pins_always_hold(case: tuple[BoundSpace, dict[str, Value]]) -> None:
    space, values = case
    nodes = space.decode(values)
    assert nodes >= space.keep_float
    assert not nodes & space.keep_int


@given(st.lists(SETS.filter(len), max_size=5), st.data())
def test_what_toggles_mean_can_always_be_encoded(toggles: list[frozenset[str]], data: st.DataObject) -> None:
    space = BoundSpace(dimensions=tuple(Toggle(name=f"t{i}", nodes=n) for i, n in enumerate(toggles)))
    values = {f"t{i}": data.draw(st.booleans()) for i in range(len(toggles))}
    nodes = space.decode(values)
    setting = space.encode(nodes)
    assert setting is not None
    assert space.decode(setting) == nodes


@given(st.permutations(NODES), st.integers(0, len(NODES)), SETS)
def test_a_prefix_of_a_ranking_can_always_be_encoded(ranking: list[str], count: int, pinned: frozenset[str]) -> None:
    space = BoundSpace(dimensions=(ranked_cut("c", ranking, len(NODES)),), keep_float=pinned)
    setting = space.encode(ranking[:count])
    assert setting is not None
    assert space.decode(setting) == frozenset(ranking[:count]) | pinned


SPACE = BoundSpace(
    dimensions=(
        Toggle(name="ab", nodes=frozenset("ab")),
        Toggle(name="b", nodes=frozenset("b")),
        Toggle(name="c", nodes=frozenset("c")),
        Cut(name="cut", ranking=("d", "c", "a"), at_most=2),
    )
)


@pytest.mark.parametrize(
    ("nodes", "on"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("b", {"b": True}, id="a toggle"),
        pytest.param("ab", {"ab": True}, id="the larger toggle alone"),
        pytest.param("abc", {"ab": True, "c": True}, id="two toggles"),
        pytest.param("d", {"cut": 1}, id="a cut"),
        pytest.param("cd", {"cut": 2}, id="a longer cut"),
        pytest.param("acd", None, id="beyond the cut's end"),
        pytest.param("a", None, id="only together with another"),
        pytest.param("e", None, id="in no dimension"),
    ],
)
def test_encoding_by_hand(nodes: str, on: dict[str, Value] | None) -> None:
    off = {"ab": False, "b": False, "c": False, "cut": 0}
    assert SPACE.encode(nodes) == (None if on is None else off | on)


@pytest.mark.parametrize(
    ("values", "nodes"),
    [
        pytest.param({}, "", id="unset is off"),
        pytest.param({"cut": 2, "b": True}, "bcd", id="a union"),
        pytest.param({"cut": 0, "ab": False}, "", id="all off"),
    ],
)
def test_decoding_by_hand(values: dict[str, Value], nodes: str) -> None:
    assert SPACE.decode(values) == frozenset(nodes)


def test_pinned_both_ways() -> None:
    with pytest.raises(UsageError, match="'b' is"):
        BoundSpace(dimensions=(), keep_float=frozenset("ab"), keep_int=frozenset("bc"))


def test_dimensions_of_equal_name() -> None:
    with pytest.raises(ValueError, match="equal name"):
        BoundSpace(dimensions=(Toggle(name="a", nodes=frozenset()), Cut(name="a", ranking=(), at_most=0)))


@pytest.mark.parametrize(("at_most", "expected"), [(0, 0), (2, 2), (9, 3)])
def test_a_cut_never_asks_for_more_than_there_is(at_most: int, expected: int) -> None:
    assert ranked_cut("c", ["a", "b", "c"], at_most).at_most == expected


MIXED = BoundSpace(
    dimensions=(
        Toggle(name="all", nodes=frozenset("abc")),
        *(Toggle(name=f"only {node}", nodes=frozenset({node})) for node in "abcd"),
    ),
    keep_int=frozenset("d"),
    further=("float",),
)


@given(nodes=st.frozensets(st.sampled_from("abcd")), in_float=st.frozensets(st.sampled_from("abcd")))
def test_float_toggles_say_which_of_the_denylisted_nodes_are_float(
    nodes: frozenset[str], in_float: frozenset[str]
) -> None:
    setting = MIXED.encode(nodes)
    assert setting is not None
    setting |= MIXED.encode_further(nodes, {"float": in_float & MIXED.pin(nodes)})
    assert MIXED.decode(setting) == MIXED.pin(nodes)
    assert MIXED.decode_further(setting) == {"float": in_float & MIXED.pin(nodes)}


def test_a_space_that_is_not_mixed_has_no_float_toggles() -> None:
    plain = BoundSpace(dimensions=MIXED.dimensions)
    assert plain.further_toggles == {}
    assert plain.decode_further({"all": True, "float:all": True}) == {}
    assert [toggle.name for toggle in MIXED.further_toggles["float"]][:2] == ["float:all", "float:only a"]


def test_counts_leave_out_in_one_state_if_there_is_no_toggle() -> None:
    """Else the toggles say which nodes are in which state. Each count reaches all nodes, as in the bundled spaces."""
    counts = (Cut(name="first", ranking=tuple("abcd"), at_most=2), Cut(name="last", ranking=tuple("dcba"), at_most=2))
    space = BoundSpace(dimensions=counts, further=("int16", "float"))
    assert [toggle.name for toggle in space.further_toggles["int16"]] == ["int16:counts"]
    setting: dict[str, Value] = {"first": 2, "last": 1, "float:counts": True}
    assert space.decode_further(setting) == {"int16": frozenset(), "float": frozenset("abd")}
    assert space.decode_further(setting | {"int16:counts": True}) == {"int16": frozenset("abd"), "float": frozenset()}
    again = space.encode_further("abd", {"int16": frozenset("abd"), "float": frozenset()})
    assert again == {"int16:counts": True, "float:counts": False}
    never_outside = replace(space, not_outside=frozenset("bc"))
    again = never_outside.encode_further("ab", {"int16": frozenset("ab")})
    assert again["int16:counts"]
    assert never_outside.decode({"first": 2} | again) == frozenset("ab")
    assert space.size == 3 * 3 * 3
    mixed = replace(space, dimensions=(*counts, Toggle(name="a", nodes=frozenset("a"))))
    assert [toggle.name for toggle in mixed.further_toggles["int16"]] == ["int16:a"]
    assert mixed.size == 3 * 3 * 4


def test_of_several_further_states_the_first_counts() -> None:
    three = replace(MIXED, further=("float", "other"))
    setting = {"all": True, "float:only a": True, "other:all": True}
    assert three.decode_further(setting) == {"float": frozenset("a"), "other": frozenset("bc")}
    assert three.encode_further("abc", three.decode_further(setting))["other:only b"]


@given(nodes=st.frozensets(st.sampled_from("abcd")), wide=st.frozensets(st.sampled_from("abc")))
def test_nodes_that_are_never_outside_of_integers_are_left_out_in_16_bits_alone(
    nodes: frozenset[str], wide: frozenset[str]
) -> None:
    space = replace(MIXED, further=("int16", "float"), not_outside=frozenset("ab"))
    setting = space.encode(nodes | wide, wide)
    assert setting is not None
    setting |= space.encode_further(nodes | wide, {"int16": wide})
    assert space.decode(setting) == wide | (nodes & frozenset("c")) == space.pin(nodes | wide, wide)
    assert space.decode_further(setting) == {"int16": wide, "float": frozenset()}
    assert not space.decode({"all": True, "float:all": True}) & frozenset("ab")


def test_nodes_that_are_never_in_8_bits_are_left_out_of_all_and_may_have_16() -> None:
    space = replace(MIXED, further=("int16", "float"), not_int8=frozenset("ab"), keep_int=frozenset())
    assert space.decode({}) == frozenset("ab") == space.left_out_of_all
    assert space.held(frozenset("ac"), {"int16": frozenset("a")}) == (frozenset("abc"), {"int16": frozenset("a")})
    setting = space.encode("abd", frozenset("b"))
    assert setting is not None
    setting |= space.encode_further("abd", {"int16": frozenset("b")})
    assert space.decode(setting) == frozenset("abd")
    assert space.decode_further(setting) == {"int16": frozenset("b"), "float": frozenset()}


def test_nodes_that_are_barred_from_a_state_are_held_in_integers() -> None:
    space = replace(MIXED, further=("int16", "float"), not_int16=frozenset("b"))
    assert space.held(frozenset("abc"), {"int16": frozenset("ab"), "float": frozenset("c")}) == (
        frozenset("ac"),
        {"int16": frozenset("a"), "float": frozenset("c")},
    )


def test_the_size_counts_settings() -> None:
    a, b = Toggle(name="a", nodes=frozenset("a")), Toggle(name="b", nodes=frozenset("b"))
    cut = Cut(name="cut", ranking=("a", "b", "c"), at_most=3)
    assert BoundSpace(dimensions=(a, b, cut)).size == 2 * 2 * 4
    assert BoundSpace(dimensions=(a, b), further=("float",)).size == 3 * 3
    assert BoundSpace(dimensions=(a, b, cut), alternatives=(("toggles", ("a", "b")), ("cuts", ("cut",)))).size == 4 + 4
