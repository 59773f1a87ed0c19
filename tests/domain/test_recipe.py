from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe, resolve
from autoselect.errors import RecipeError

NAMES = st.frozensets(st.text(min_size=1, max_size=8), max_size=4)
FALLBACKS = st.one_of(st.tuples(st.just("drq"), NAMES), st.just(("float", frozenset())))


def _recipe(fallback: tuple[str, frozenset[str]], **values: object) -> Recipe:
    return Recipe(fallback=fallback[0], float_nodes=fallback[1], **values)  # type: ignore[arg-type]


RECIPES = st.builds(
    _recipe,
    fallback=FALLBACKS,
    denylisted_nodes=NAMES,
    denylisted_ops=NAMES,
    int16_nodes=NAMES,
    per_channel=st.booleans(),
    io_type=st.sampled_from(["float32", "int8", "uint8"]),
    repairs=st.sampled_from([(), ("bias",), ("ranges-mse", "bias-sequential"), ("equalization", "weights-mse")]),
)
NODES = {
    "block_1/conv": "CONV_2D",
    "block_1/add": "ADD",
    "block_2/conv": "CONV_2D",
    "weird[0]*": "MEAN",
}


@given(RECIPES)
def test_json_round_trip(recipe: Recipe) -> None:
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert Recipe.from_json(recipe.to_json()).fingerprint == recipe.fingerprint


@given(RECIPES, RECIPES)
def test_equal_recipes_and_only_those_share_text_and_fingerprint(one: Recipe, two: Recipe) -> None:
    assert (one.to_json() == two.to_json()) is (one == two)
    assert (one.fingerprint == two.fingerprint) is (one == two)


UNLIKE = {
    "nothing": ({"denylisted_nodes": {"a"}}, {"denylisted_nodes": {"a"}, "repairs": ("bias",)}, ""),
    "left out or not": ({"denylisted_nodes": {"a", "b"}}, {"denylisted_nodes": {"b", "c"}}, "ac"),
    "hybrid or float": ({"denylisted_nodes": {"a", "b"}}, {"denylisted_nodes": {"a"}, "fallback": "float"}, "ab"),
    "some of them float": (
        {"denylisted_nodes": {"a", "b"}, "float_nodes": {"a"}},
        {"denylisted_nodes": {"a", "b"}, "fallback": "float"},
        "b",
    ),
    "8 or 16 bits": ({"int16_nodes": {"a", "b"}}, {"int16_nodes": {"b"}, "denylisted_nodes": {"c"}}, "ac"),
}


@pytest.mark.parametrize(("one", "two", "nodes"), UNLIKE.values(), ids=UNLIKE)
def test_nodes_that_two_recipes_treat_otherwise(one: dict[str, Any], two: dict[str, Any], nodes: str) -> None:
    first, second = Recipe(**one), Recipe(**two)
    assert first.nodes_unlike(second) == second.nodes_unlike(first) == frozenset(nodes)


def test_the_text_is_canonical() -> None:
    names = ["b", "a", "c"]
    texts = {Recipe(denylisted_nodes=frozenset(order)).to_json() for order in (names, names[::-1])}
    assert len(texts) == 1
    assert json.loads(texts.pop()) == {
        "schema_version": 1,
        "denylisted_nodes": ["a", "b", "c"],
        "denylisted_ops": [],
        "fallback": "drq",
        "per_channel": True,
        "io_type": "float32",
    }


def test_missing_keys_take_their_defaults() -> None:
    assert Recipe.from_json("{}") == Recipe()


def test_any_collection_of_names_becomes_a_frozen_set() -> None:
    recipe = Recipe(denylisted_nodes=["a", "a"], denylisted_ops=("ADD",))  # type: ignore[arg-type]
    assert (recipe.denylisted_nodes, recipe.denylisted_ops) == (frozenset({"a"}), frozenset({"ADD"}))


def test_one_text_is_one_name() -> None:
    recipe = Recipe(denylisted_nodes="conv", denylisted_ops="ADD", repairs="bias")  # type: ignore[arg-type]
    assert recipe == Recipe(denylisted_nodes=frozenset({"conv"}), denylisted_ops=frozenset({"ADD"}), repairs=("bias",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", r"not JSON: .*line 1", id="not json"),
        pytest.param("", "not JSON", id="empty"),
        pytest.param('{"format_version": ' + 6000 * "9" + "}", "not JSON", id="a number of 6,000 digits"),
        pytest.param("[]", "JSON object, this is a list", id="a list"),
        pytest.param("null", "JSON object, this is a NoneType", id="null"),
        pytest.param('{"denylist": []}', "unknown key 'denylist'.*denylisted_nodes", id="unknown key"),
        pytest.param('{"schema_version": 2}', "schema version 2; this autoselect reads 1", id="a later schema"),
        pytest.param('{"denylisted_nodes": "a"}', "denylisted_nodes: expected a list of names, got 'a'", id="a name"),
        pytest.param('{"denylisted_ops": [1]}', r"denylisted_ops: expected a list of names, got \[1\]", id="numbers"),
        pytest.param('{"denylisted_ops": null}', "denylisted_ops: expected a list", id="null for a list"),
        pytest.param('{"per_channel": 1}', "per_channel: expected true or false, got 1", id="a number for a truth"),
        pytest.param('{"per_channel": null}', "per_channel: expected true or false", id="null for a truth"),
        pytest.param('{"fallback": "int4"}', "fallback: expected one of drq, float, got 'int4'", id="fallback"),
        pytest.param('{"float_nodes": "a"}', "float_nodes: expected a list of names, got 'a'", id="a float name"),
        pytest.param('{"fallback": "float", "float_nodes": ["a"]}', "float_nodes: expected none", id="float twice"),
        pytest.param('{"int16_nodes": "a"}', "int16_nodes: expected a list of names, got 'a'", id="a 16-bit name"),
        pytest.param('{"io_type": "int16"}', "io_type: expected one of float32, int8, uint8", id="io type"),
        pytest.param('{"io_type": ["int8"]}', "io_type: expected one of", id="a list for a word"),
    ],
)
def test_bad_json_names_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe.from_json(text)


@pytest.mark.parametrize(
    ("nodes", "ops", "expected"),
    [
        pytest.param([], [], set(), id="nothing"),
        pytest.param(["block_1/add"], [], {"block_1/add"}, id="a name"),
        pytest.param(["block_1/*"], [], {"block_1/conv", "block_1/add"}, id="a glob"),
        pytest.param(["*conv"], ["MEAN"], {"block_1/conv", "block_2/conv", "weird[0]*"}, id="a glob and a type"),
        pytest.param(["block_?/conv"], [], {"block_1/conv", "block_2/conv"}, id="a question mark"),
        pytest.param(["weird[0]*"], [], {"weird[0]*"}, id="a name that looks like a glob is a name"),
        pytest.param(["*"], ["ADD"], set(NODES), id="everything"),
        pytest.param([], ["CONV_2D"], {"block_1/conv", "block_2/conv"}, id="a type"),
    ],
)
def test_names_globs_and_types_resolve_to_nodes(nodes: list[str], ops: list[str], expected: set[str]) -> None:
    recipe = Recipe(denylisted_nodes=frozenset(nodes), denylisted_ops=frozenset(ops), fallback="float")
    assert resolve(recipe, NODES) == Recipe(denylisted_nodes=frozenset(expected), fallback="float")


def test_recipes_without_16_bit_nodes_keep_their_text_and_those_with_them_come_back() -> None:
    assert "int16" not in Recipe().to_json()
    recipe = Recipe(int16_nodes=frozenset({"b", "a"}))
    assert json.loads(recipe.to_json())["int16_nodes"] == ["a", "b"]
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.fingerprint != Recipe().fingerprint


def test_16_bit_nodes_resolve_like_the_others_and_are_not_denylisted() -> None:
    recipe = Recipe(denylisted_ops=frozenset({"ADD"}), int16_nodes=frozenset({"block_?/conv"}))
    assert resolve(recipe, NODES).int16_nodes == {"block_1/conv", "block_2/conv"}
    with pytest.raises(RecipeError, match=r"int16_nodes: 'block_1/add' .*denylisted"):
        resolve(replace(recipe, int16_nodes=frozenset({"block_1/*"})), NODES)
    with pytest.raises(RecipeError, match="'conv'"):
        resolve(Recipe(int16_nodes=frozenset({"conv"})), NODES)


@pytest.mark.parametrize(
    ("node", "reason", "kind"),
    [("a", None, OpKind.INT16), ("a", "no 16-bit form", OpKind.INTEGER), ("b", None, OpKind.INTEGER)],
)
def test_what_a_16_bit_node_becomes(node: str, reason: str | None, kind: OpKind) -> None:
    assert Recipe(int16_nodes=frozenset({"a"})).kind_of(node, reason) is kind


def test_float_nodes_resolve_like_the_others() -> None:
    recipe = Recipe(denylisted_nodes=frozenset({"block_1/*"}), float_nodes=frozenset({"*add"}))
    assert resolve(recipe, NODES).float_nodes == {"block_1/add"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        pytest.param("block_2/conv", "'block_2/conv' is not denylisted, so it is integer", id="an integer node"),
        pytest.param("*conv", "'block_2/conv' is not denylisted", id="a glob that covers one"),
        pytest.param("block_9", "No node is called 'block_9'", id="no node"),
    ],
)
def test_float_nodes_that_are_none_of_the_denylisted(pattern: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        resolve(Recipe(denylisted_nodes=frozenset({"block_1/*"}), float_nodes=frozenset({pattern})), NODES)


@pytest.mark.parametrize(
    ("nodes", "ops", "message"),
    [
        pytest.param(["block_1/convv"], [], r"called 'block_1/convv'\. Did you mean 'block_1/conv'", id="typo"),
        pytest.param(["BLOCK_1/*"], [], "No node is called", id="case matters"),
        pytest.param(["zzz"], [], "No node is called 'zzz'.*layer_statistics.csv", id="nothing near"),
        pytest.param([], ["CONV"], "No node is of op type 'CONV'. This model has: ADD, CONV_2D, MEAN", id="type"),
    ],
)
def test_what_matches_nothing_is_refused(nodes: list[str], ops: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        resolve(Recipe(denylisted_nodes=frozenset(nodes), denylisted_ops=frozenset(ops)), NODES)


def test_no_name_is_suggested_where_none_is_near() -> None:
    with pytest.raises(RecipeError) as error:
        resolve(Recipe(denylisted_nodes=frozenset({"zzz"})), NODES)
    assert "Did you mean" not in str(error.value)


REFUSED_REPAIRS = {
    "unknown": (["biass"], "expected one of bias, bias-sequential"),
    "two of a kind": (["bias", "bias-sequential"], "at most one of 'bias'"),
    "two ranges": (["ranges-mse", "ranges-observed"], "at most one of 'ranges'"),
    "no list": ("bias", "expected a list of names"),
    "another repair for a node": (["bias:conv"], "only ranges and levels are chosen for single nodes"),
    "ranges for no node": (["ranges-mse:"], "only ranges and levels are chosen for single nodes"),
    "two ranges for a node": (["ranges-mse:conv", "ranges-observed:conv"], "at most one of 'ranges'"),
    "two levels": (["levels-4", "levels-6"], "at most one of 'levels'"),
    "levels of no bits": (["levels-9"], "expected one of bias"),
    "unknown ranges for a node": (["ranges-best:conv"], "expected one of bias"),
}


@pytest.mark.parametrize(("repairs", "message"), REFUSED_REPAIRS.values(), ids=REFUSED_REPAIRS)
def test_refused_repairs(repairs: object, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Recipe.from_json(json.dumps({"repairs": repairs}))


def test_repairs_are_sorted_and_named_once() -> None:
    recipe = Recipe(repairs=("weights-mse", "bias", "bias"))
    assert recipe.repairs == ("bias", "weights-mse")
    assert json.loads(recipe.to_json())["repairs"] == ["bias", "weights-mse"]


def test_ranges_may_be_chosen_for_single_nodes_beside_those_of_the_model() -> None:
    repairs = ("ranges-mse", "ranges-mse:a", "ranges-observed:x:0")
    assert Recipe.from_json(Recipe(repairs=repairs).to_json()).repairs == repairs


def test_a_recipe_without_repairs_has_the_text_of_those_from_before_there_were_any() -> None:
    assert "repairs" not in json.loads(Recipe().to_json())
