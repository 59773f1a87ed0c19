from __future__ import annotations

from pathlib import Path

import pytest
from fakes import table

from autoselect.data.bundled import bundled_directory
from autoselect.domain.layers import LayerTable
from autoselect.domain.search_space import BoundSpace, Cut, Toggle
from autoselect.embedded import model_bytes
from autoselect.errors import UsageError
from autoselect.study.space_file import SearchSpaceFile, bind, read_space
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

BUNDLED = sorted(path.stem for path in bundled_directory().glob("*.toml"))
NOTHING: frozenset[str] = frozenset()

SIX = table(
    ("in/a", "CONV_2D", 0.3),
    ("in/b", "CONV_2D", 0.9),
    ("mid/c", "ADD", 0.2),
    ("mid/d", "CONV_2D", 0.5),
    ("out/e", "MEAN", None),
    ("out/f", "ADD", 2.0),
)


def embedded_table() -> LayerTable:
    """Every op of the embedded model, with statistics that rank them in graph order."""
    graph = reader.read_graph(fb.parse(model_bytes()))
    ops = [(graph.tensors[op.outputs[0]].name, op.op_type) for op in graph.ops]
    return table(*((name, kind, 1.0 / (i + 1)) for i, (name, kind) in enumerate(ops)))


def space(*choices: dict[str, object]) -> SearchSpaceFile:
    return SearchSpaceFile.model_validate({"schema_version": 1, "name": "s", "why": "w", "choices": list(choices)})


def bound(*choices: dict[str, object], layers: LayerTable = SIX, **pins: frozenset[str]) -> BoundSpace:
    return bind(space(*choices), layers, **{"keep_float": NOTHING, "keep_int": NOTHING, **pins})


def toggles(found: BoundSpace) -> dict[str, set[str]]:
    return {d.name: set(d.nodes) for d in found.dimensions if isinstance(d, Toggle)}


# ------------------------------------------------------------------------------------------- bundled ones


def test_there_are_bundled_spaces() -> None:
    assert {"default", "op_types", "per_node"} <= set(BUNDLED)


@pytest.mark.parametrize("name", BUNDLED)
@pytest.mark.parametrize(
    "layers",
    [
        pytest.param(embedded_table(), id="embedded"),
        pytest.param(table(("only", "CONV_2D", 0.5)), id="one node"),
        pytest.param(table(("only", "CONV_2D", None)), id="one node without statistics"),
    ],
)
def test_bundled_spaces_fit_any_model(name: str, layers: LayerTable) -> None:
    file = read_space(name)
    found = bind(file, layers, keep_float=NOTHING, keep_int=NOTHING)
    everything = {n.name for n in layers.nodes}
    highest = {d.name: True if isinstance(d, Toggle) else d.at_most for d in found.dimensions}
    assert found.decode(highest) == everything
    assert found.decode({}) == NOTHING
    assert file.name == name
    assert file.why.endswith(".")


def test_the_default_space_of_six_nodes_by_hand() -> None:
    found = bind(read_space("default"), SIX, keep_float=NOTHING, keep_int=NOTHING)
    assert toggles(found) == {
        **{f"node:{n.name}": {n.name} for n in SIX.nodes},
        "op:CONV_2D": {"in/a", "in/b", "mid/d"},
        "op:ADD": {"mid/c", "out/f"},
        "op:MEAN": {"out/e"},
    }
    cuts = {d.name: (d.ranking, d.at_most) for d in found.dimensions if isinstance(d, Cut)}
    ranked = ("out/f", "in/b", "mid/d", "in/a", "mid/c", "out/e")
    order = ("in/a", "in/b", "mid/c", "mid/d", "out/e", "out/f")
    assert cuts == {
        "worst:rmse_per_scale": (ranked, 6),
        "worst:mean_squared_error": (ranked, 6),
        "leading": (order, 6),
        "trailing": (order[::-1], 6),
    }
    assert [name for name, _ in found.alternatives] == [
        "0:nodes",
        "1:op_types",
        "2:worst",
        "3:worst",
        "4:leading",
        "5:trailing",
    ]


def test_a_prefix_is_told_as_a_prefix_where_choices_are_alternatives() -> None:
    found = bind(read_space("default"), SIX, keep_float=NOTHING, keep_int=NOTHING)
    assert found.encode({"mid/d", "out/e", "out/f"}) == {"alternative": "5:trailing", "trailing": 3}
    assert found.encode({"mid/c", "out/f"}) == {
        "alternative": "1:op_types",
        "op:ADD": True,
        "op:CONV_2D": False,
        "op:MEAN": False,
    }


def test_choices_of_one_kind_keep_their_own_selections(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(
        'schema_version = 1\nname = "two"\nwhy = "Two heads."\n'
        '[[choices]]\nkind = "leading"\nop_types = ["CONV_2D"]\nat_most = 1.0\n'
        '[[choices]]\nkind = "leading"\nop_types = ["ADD"]\nat_most = 1.0\n'
    )
    found = bind(read_space(str(path)), SIX, keep_float=NOTHING, keep_int=NOTHING)
    assert {d.name: d.ranking for d in found.dimensions if isinstance(d, Cut)} == {
        "leading": ("in/a", "in/b", "mid/d"),
        "leading#1": ("mid/c", "out/f"),
    }


# ---------------------------------------------------------------------------------------------- selections

SELECTIONS = {
    "all": ({}, "abcdef"),
    "op types": ({"op_types": ["ADD", "MEAN"]}, "cef"),
    "glob of op types": ({"op_types": ["*2D"]}, "abd"),
    "names": ({"names": ["in/*", "out/f"]}, "abf"),
    "names and op types": ({"names": ["in/*", "mid/*"], "op_types": ["CONV_2D"]}, "abd"),
    "above": ({"where": {"statistic": "rmse_per_scale", "above": 0.3}}, "bdf"),
    "below": ({"where": {"statistic": "rmse_per_scale", "below": 0.3}}, "c"),
    "between": ({"where": {"statistic": "rmse_per_scale", "above": 0.25, "below": 1.0}}, "abd"),
    "any value: a node without one is left out": ({"where": {"statistic": "rmse_per_scale"}}, "abcdf"),
    "first half": ({"position": {"to": 0.5}}, "abc"),
    "last node": ({"position": {"from": 1.0}}, "f"),
    "middle": ({"position": {"from": 0.2, "to": 0.6}}, "bcd"),
}


@pytest.mark.parametrize(("selection", "expected"), SELECTIONS.values(), ids=SELECTIONS)
def test_selections(selection: dict[str, object], expected: str) -> None:
    found = toggles(bound({"kind": "nodes", **selection}))
    assert {name[-1] for name in found} == set(expected)
    assert all(nodes == {name.removeprefix("node:")} for name, nodes in found.items())


def test_op_types_are_of_the_selected_nodes_only() -> None:
    found = toggles(bound({"kind": "op_types", "names": ["in/*", "mid/*"]}))
    assert found == {"op:ADD": {"mid/c"}, "op:CONV_2D": {"in/a", "in/b", "mid/d"}}


AMOUNTS = {
    "a share is rounded up": (0.5, 3),
    "a small share is one": (0.01, 1),
    "one is the whole": (1, 6),
    "a count": (2, 2),
    "a count of more than there are": (50, 6),
}


@pytest.mark.parametrize(("at_most", "count"), AMOUNTS.values(), ids=AMOUNTS)
@pytest.mark.parametrize("kind", ["worst", "leading", "trailing"])
def test_at_most(kind: str, at_most: float, count: int) -> None:
    choice = {"kind": kind, "at_most": at_most} | ({"by": "mean_squared_error"} if kind == "worst" else {})
    (cut,) = bound(choice).dimensions
    assert isinstance(cut, Cut)
    assert cut.at_most == count


def test_pinned_and_unreachable_nodes_are_no_choice() -> None:
    layers = table(*((n, "ADD", 0.1) for n in "abcd"), unreachable=["b"])
    found = bound({"kind": "nodes"}, layers=layers, keep_float=frozenset("a"), keep_int=frozenset("d"))
    assert toggles(found) == {"node:c": {"c"}}
    assert found.decode({"node:c": True}) == {"a", "c"}


def test_choices_of_equal_name_count_once() -> None:
    found = bound({"kind": "nodes", "names": ["in/a"]}, {"kind": "nodes", "names": ["in/*"]})
    assert set(toggles(found)) == {"node:in/a", "node:in/b"}


def test_nothing_to_choose_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to choose"):
        bound({"kind": "nodes", "op_types": ["LSTM"]})
    with pytest.raises(UsageError, match="nothing to choose"):
        bound({"kind": "nodes"}, keep_int=frozenset(n.name for n in SIX.nodes))


# --------------------------------------------------------------------------------------------------- files

GOOD = 'schema_version = 1\nname = "mine"\nwhy = "Because."\n'


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + '[[choices]]\nkind = "op_types"\n')
    found = bind(read_space(str(path)), SIX, keep_float=NOTHING, keep_int=NOTHING)
    assert set(toggles(found)) == {"op:ADD", "op:CONV_2D", "op:MEAN"}


FILES = {
    "unknown key": (GOOD + '[[choices]]\nkind = "nodes"\nat_most = 3\n', r"choices\.0\.nodes\.at_most: "),
    "unknown key at the top": (GOOD + 'colour = 1\n[[choices]]\nkind = "nodes"\n', r"colour: "),
    "unknown kind": (GOOD + '[[choices]]\nkind = "node"\n', r"choices\.0: .*'nodes'.*'worst'"),
    "unknown statistic": (
        GOOD + '[[choices]]\nkind = "nodes"\n[[choices]]\nkind = "worst"\nby = "rmse"\n',
        r"choices\.1\.worst\.by: .*'rmse'.*rmse_per_scale",
    ),
    "unknown statistic to select by": (
        GOOD + '[[choices]]\nkind = "nodes"\nwhere = {statistic = "mse"}\n',
        r"choices\.0\.nodes\.where\.statistic: .*'mse'",
    ),
    "worst without a statistic": (GOOD + '[[choices]]\nkind = "worst"\n', r"choices\.0\.worst\.by: .*required"),
    "nothing at most": (
        GOOD + '[[choices]]\nkind = "leading"\nat_most = 0\n',
        r"choices\.0\.leading\.at_most: .*greater than 0",
    ),
    "position beyond the end": (
        GOOD + '[[choices]]\nkind = "nodes"\nposition = {from = 1.5}\n',
        r"choices\.0\.nodes\.position\.from: ",
    ),
    "no choices": (GOOD + "choices = []\n", r"choices: .*at least 1"),
    "no reason": ('schema_version = 1\nname = "x"\n[[choices]]\nkind = "nodes"\n', r"why: .*required"),
    "another version": (GOOD.replace("1", "2") + '[[choices]]\nkind = "nodes"\n', r"schema_version: "),
    "not TOML": ("schema_version = \n", r"not TOML.*line 1"),
}


@pytest.mark.parametrize(("text", "words"), FILES.values(), ids=FILES)
def test_wrong_files_name_the_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_space(str(path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("defualt", r"'defualt'.*Did you mean 'default'", id="nearest bundled"),
        pytest.param("nowhere.toml", r"no search space file nowhere\.toml", id="missing file"),
    ],
)
def test_missing_spaces(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_space(name)
