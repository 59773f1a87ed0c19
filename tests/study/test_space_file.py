from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import table
from hypothesis import given
from hypothesis import strategies as st

from autoselect.data.bundled import bundled_directory
from autoselect.domain.layers import LayerTable
from autoselect.domain.search_space import BoundSpace, Cut, Toggle
from autoselect.embedded import model_bytes
from autoselect.errors import UsageError
from autoselect.study.setup.space_file import SearchSpaceFile, bind, idle_choices, read_space
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

ROOT = Path(__file__).resolve().parents[2]
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


def bound(
    *choices: dict[str, object],
    layers: LayerTable = SIX,
    keep_float: str = "",
    keep_int: str = "",
    units: Sequence[Sequence[str]] | None = None,
) -> BoundSpace:
    """Bind to a model; pins are names with spaces between."""
    pins = {"keep_float": frozenset(keep_float.split()), "keep_int": frozenset(keep_int.split())}
    return bind(space(*choices), layers, **pins, units=units)


def toggles(found: BoundSpace) -> dict[str, set[str]]:
    return {d.name: set(d.nodes) for d in found.dimensions if isinstance(d, Toggle)}


# ------------------------------------------------------------------------------------------- bundled ones


def test_there_are_bundled_spaces() -> None:
    assert {"blocks", "default", "edges", "op_types", "per_node", "top_k"} <= set(BUNDLED)


@pytest.mark.parametrize("name", BUNDLED)
def test_the_docs_give_the_reason_of_each_bundled_space(name: str) -> None:
    text = (ROOT / "docs" / "reference" / "search-spaces.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {read_space(name).why} |" in text


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


def test_a_choice_that_selects_nothing_is_told() -> None:
    typo = {"kind": "op_types", "op_types": ["CONV2D"]}
    both = space({"kind": "nodes"}, typo)
    [message] = idle_choices(both, SIX)
    assert "Choice 1 (op_types)" in message
    assert "ADD, CONV_2D, MEAN" in message
    assert idle_choices(read_space("default"), SIX) == []
    with pytest.raises(UsageError, match="CONV_2D"):
        bound(typo)


@pytest.mark.parametrize("at_most", ["inf", "nan", "1.5", "0"])
def test_how_many_to_leave_out_is_a_share_or_a_whole_number(at_most: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    choice = f'[[choices]]\nkind = "leading"\nat_most = {at_most}\n'
    path.write_text(f'schema_version = 1\nname = "own"\nwhy = "x"\n{choice}')
    with pytest.raises(UsageError, match=r"choices\.0\.leading\.at_most"):
        read_space(str(path))


def test_the_default_space_of_six_nodes_by_hand() -> None:
    found = bind(read_space("default"), SIX, keep_float=NOTHING, keep_int=NOTHING)
    assert toggles(found) == {
        **{f"unit:{n.name}": {n.name} for n in SIX.nodes},
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
        "0:units",
        "1:op_types",
        "2:worst",
        "3:worst",
        "4:leading",
        "5:trailing",
    ]


RANGES = table(("a", "CONV_2D", 0.3), ("b", "ADD", 2.0), ("c", "CONV_2D", None), ("d", "ADD", 1.0))
"""The scale is 1 everywhere, so that all ranges are equal: graph order, c without statistics last."""

BY_HAND = {
    "edges": ("edges", {"leading": ("abcd", 2), "trailing": ("dcba", 2)}, []),
    "top_k": (
        "top_k",
        {"worst:rmse_per_scale": ("bdac", 4), "worst:mean_squared_error": ("bdac", 4), "worst:range": ("abdc", 4)},
        ["0:worst", "1:worst", "2:worst"],
    ),
}


@pytest.mark.parametrize(("name", "cuts", "alternatives"), BY_HAND.values(), ids=BY_HAND)
def test_bundled_counts_by_hand(name: str, cuts: dict[str, tuple[str, int]], alternatives: list[str]) -> None:
    found = bind(read_space(name), RANGES, keep_float=NOTHING, keep_int=NOTHING)
    assert {d.name: ("".join(d.ranking), d.at_most) for d in found.dimensions if isinstance(d, Cut)} == cuts
    assert len(found.dimensions) == len(cuts)
    assert [name for name, _ in found.alternatives] == alternatives


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


def test_pinned_nodes_are_no_choice() -> None:
    layers = table(*((n, "ADD", 0.1) for n in "acd"))
    found = bound({"kind": "nodes"}, layers=layers, keep_float="a", keep_int="d")
    assert toggles(found) == {"node:c": {"c"}}
    assert found.decode({"node:c": True}) == {"a", "c"}


def test_choices_of_equal_name_count_once() -> None:
    found = bound({"kind": "nodes", "names": ["in/a"]}, {"kind": "nodes", "names": ["in/*"]})
    assert set(toggles(found)) == {"node:in/a", "node:in/b"}


def test_nothing_to_choose_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to"):
        bound({"kind": "nodes", "op_types": ["LSTM"]})
    with pytest.raises(UsageError, match="nothing to"):
        bound({"kind": "nodes"}, keep_int=" ".join(n.name for n in SIX.nodes))


# --------------------------------------------------------------------------------------------------- units

FIVE = table(*zip("abcde", ("CONV_2D", "RELU", "ADD", "RESHAPE", "ADD"), (0.1, 0.2, 0.3, 0.4, None), strict=True))

UNITS = {
    "each its own": ({}, {}, None, {"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"}),
    "given": ({}, {}, ("ab", "cd", "e"), {"a": "ab", "c": "cd", "e": "e"}),
    "not neighbours": ({}, {}, ("ae", "b", "cd"), {"a": "ae", "b": "b", "c": "cd"}),
    "one node pinned": ({}, {"keep_float": "a", "keep_int": "c"}, ("ab", "cd", "e"), {"a": "b", "c": "d", "e": "e"}),
    "all nodes pinned": ({}, {"keep_float": "a b", "keep_int": "e"}, ("ab", "cd", "e"), {"c": "cd"}),
    "first node selected": ({"op_types": ["CONV_2D"]}, {}, ("ab", "cd", "e"), {"a": "ab"}),
    "another node selected": ({"op_types": ["RESHAPE"]}, {}, ("ab", "cd", "e"), {"c": "cd"}),
    "by name": ({"names": ["b", "e"]}, {}, ("ab", "cd", "e"), {"a": "ab", "e": "e"}),
    "by statistic": ({"where": {"statistic": "rmse_per_scale", "above": 0.35}}, {}, ("ab", "cd", "e"), {"c": "cd"}),
    "by position": ({"position": {"from": 0.25, "to": 0.5}}, {}, ("ab", "cd", "e"), {"a": "ab", "c": "cd"}),
    "the selected node pinned": ({"names": ["b"]}, {"keep_float": "b"}, ("ab", "cd", "e"), {"a": "a"}),
}


@pytest.mark.parametrize(("selection", "pins", "units", "expected"), UNITS.values(), ids=UNITS)
def test_units(
    selection: dict[str, object], pins: dict[str, str], units: tuple[str, ...] | None, expected: dict[str, str]
) -> None:
    found = toggles(bound({"kind": "units", **selection}, layers=FIVE, units=units, **pins))
    assert found == {f"unit:{first}": set(nodes) for first, nodes in expected.items()}


@pytest.mark.parametrize("kind", ["nodes", "op_types", "leading"])
def test_other_kinds_know_no_units(kind: str) -> None:
    assert bound({"kind": kind}, layers=FIVE, units=("ab", "cd", "e")) == bound({"kind": kind}, layers=FIVE)


@pytest.mark.parametrize(
    "units",
    [
        pytest.param(("ab", "cd"), id="a node in none"),
        pytest.param(("ab", "bcd", "e"), id="a node in two"),
        pytest.param(("ab", "cd", "ef"), id="an unknown node"),
    ],
)
def test_units_must_hold_each_node_once(units: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="each node"):
        bound({"kind": "units"}, layers=FIVE, units=units)


# -------------------------------------------------------------------------------------------------- blocks

MOBILENET_V1 = {
    "model/mobilenet_0.25_224/conv1_relu/Relu6;model/mobilenet_0.25_224/conv1_bn/FusedBatchNormV3;"
    "model/mobilenet_0.25_224/conv1/Conv2D1": ("conv1_relu", "conv1_relu", "conv1_relu/Relu6"),
    "model/mobilenet_0.25_224/conv_dw_2_relu/Relu6;model/mobilenet_0.25_224/conv_dw_2_bn/FusedBatchNormV3;"
    "model/mobilenet_0.25_224/conv_dw_2/depthwise;;model/mobilenet_0.25_224/conv_pad_2/Pad1": (
        "conv_dw_2_relu",
        "2",
        "conv_dw_2_relu/Relu6",
    ),
    "model/mobilenet_0.25_224/conv_pw_2_relu/Relu6;model/mobilenet_0.25_224/conv_pw_2_bn/FusedBatchNormV3;"
    "model/mobilenet_0.25_224/conv_pw_2/Conv2D1": ("conv_pw_2_relu", "2", "conv_pw_2_relu/Relu6"),
    "model/mobilenet_0.25_224/global_average_pooling2d_1/Mean": (
        "global_average_pooling2d_1",
        "global_average_pooling2d_1",
        "global_average_pooling2d_1/Mean",
    ),
    "StatefulPartitionedCall:0": ("StatefulPartitionedCall:0",) * 3,
}
"""By name: its block, that by the pattern below, and that of depth 2."""

MOBILENET_V3 = {
    "MobilenetV3small/Conv/Conv2D1": "Conv",
    "MobilenetV3small/re_lu_1/Relu;MobilenetV3small/expanded_conv/depthwise/BatchNorm/FusedBatchNormV3;"
    "MobilenetV3small/expanded_conv/depthwise/depthwise;;MobilenetV3small/expanded_conv/depthwise/pad/Pad1": "re_lu_1",
    "MobilenetV3small/expanded_conv/squeeze_excite/AvgPool/Mean": "expanded_conv",
    "MobilenetV3small/expanded_conv/project/Conv2D1": "expanded_conv",
    "MobilenetV3small/expanded_conv_1/project/Conv2D1": "expanded_conv_1",
    "StatefulPartitionedCall:0": "StatefulPartitionedCall:0",
}
DS_CNN = {
    "functional_1/activation/Relu;functional_1/activation/Relu;functional_1/batch_normalization/"
    "FusedBatchNormV3": "activation",
    "functional_1/activation_1/Relu;functional_1/activation_1/Relu;functional_1/batch_normalization_1/"
    "FusedBatchNormV3": "activation_1",
    "functional_1/average_pooling2d/AvgPool;functional_1/average_pooling2d/AvgPool": "average_pooling2d",
    "StatefulPartitionedCall:0": "StatefulPartitionedCall:0",
}
TFL_NAMES = {
    "sequential/conv2d/Relu;sequential/conv2d/Conv2D": "conv2d",
    "sequential/dense/MatMul1": "dense",
    "tfl.unidirectional_sequence_lstm": "tfl.unidirectional_sequence_lstm",
    "tfl.unidirectional_sequence_lstm1": "tfl.unidirectional_sequence_lstm1",
}
PUMP = {
    "pump_monitor_1/normalization_1/Sub": "normalization_1",
    "pump_monitor_1/normalization_1/truediv;pump_monitor_1/normalization_1/Maximum1": "normalization_1",
    "pump_monitor_1/energy_bn_1/batchnorm/mul_1": "energy_bn_1",
    "pump_monitor_1/energy_bn_1/batchnorm/add_1": "energy_bn_1",
    "pump_monitor_1/stem_swish_1/Sigmoid": "stem_swish_1",
    "StatefulPartitionedCall_1:0": "StatefulPartitionedCall_1:0",
}
PAIRS: dict[str, object] = {"pattern": r"/conv_(?:dw|pw)_(\d+)_"}

BLOCKS: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "MobileNetV1": ({}, {n: b[0] for n, b in MOBILENET_V1.items()}),
    "MobileNetV1 by a pattern": (PAIRS, {n: b[1] for n, b in MOBILENET_V1.items()}),
    "MobileNetV1, two parts deep": ({"depth": 2}, {n: b[2] for n, b in MOBILENET_V1.items()}),
    "MobileNetV3": ({}, MOBILENET_V3),
    "a pattern found behind the first semicolon": (
        {"pattern": r"(expanded_conv(?:_\d+)?)/"},
        {n: "expanded_conv" if b == "re_lu_1" else b for n, b in MOBILENET_V3.items()},
    ),
    "DS-CNN": ({}, DS_CNN),
    "ops that the converter named": ({}, TFL_NAMES),
    "pump monitor": ({}, PUMP),
    "the common part is never all of a name": ({}, {"m/a": "a", "m/a/x": "a", "m/b": "b"}),
    "one block is skipped, so that there is a choice": ({}, {"m/b/x": "x", "m/b/y": "y"}),
    "nothing in common": ({}, {"m/x": "m", "n/x": "n", "n/y": "n"}),
    "a name without parts is no obstacle": ({}, {"m/a/x": "a", "m/b/x": "b", "m": "m"}),
    "leading separators": ({}, {"/m/a/x": "a", "/m/b/x": "b"}),
    "another separator": ({"separator": "."}, {"m.a.x": "a", "m.a/y": "a/y", "m.b.x": "b"}),
    "a separator of two characters": ({"separator": "::"}, {"m::a::x": "a", "m::b:c::x": "b:c"}),
    "deeper than some names": ({"depth": 2}, {"m/a/b/x": "a/b", "m/a/b/y": "a/b", "m/c": "c"}),
    "an empty group names nothing": ({"pattern": r"^m/(q?)"}, {"m/q1/x": "q", "m/q2/x": "q", "m/r/x": "r"}),
    "a group that takes no part names nothing": ({"pattern": "m/(?:(q)|r)"}, {"m/q/x": "q", "m/r/x": "r"}),
}


@pytest.mark.parametrize(("options", "blocks"), BLOCKS.values(), ids=BLOCKS)
def test_blocks(options: dict[str, object], blocks: dict[str, str]) -> None:
    found = toggles(bound({"kind": "blocks", **options}, layers=table(*((n, "CONV_2D", 0.5) for n in blocks))))
    assert found == {f"block:{b}": {n for n, own in blocks.items() if own == b} for b in blocks.values()}
    assert list(found) == list(dict.fromkeys(f"block:{b}" for b in blocks.values())), "not in graph order"


def test_blocks_hold_the_nodes_that_may_be_chosen_under_the_names_that_all_nodes_give() -> None:
    rows = [("m/a/x", "CONV_2D"), ("m/a/y", "ADD"), ("m/b/x", "CONV_2D"), ("m/b/y", "ADD"), ("m/c/x", "CONV_2D")]
    layers = table(*((n, kind, 0.5) for n, kind in rows))
    assert toggles(bound({"kind": "blocks"}, layers=layers, keep_float="m/b/y m/c/x")) == {
        "block:a": {"m/a/x", "m/a/y"},
        "block:b": {"m/b/x"},
    }
    assert toggles(bound({"kind": "blocks", "names": ["m/a/*"]}, layers=layers)) == {"block:a": {"m/a/x", "m/a/y"}}
    assert toggles(bound({"kind": "blocks", "op_types": ["ADD"]}, layers=layers)) == {
        "block:a": {"m/a/y"},
        "block:b": {"m/b/y"},
    }


NAMES = st.lists(st.text("ab/;", min_size=1, max_size=8), min_size=1, max_size=8, unique=True)


@given(names=NAMES, depth=st.integers(1, 3), pattern=st.sampled_from([None, "(a+)", "b(/?)"]))
def test_every_node_is_in_one_block(names: list[str], depth: int, pattern: str | None) -> None:
    layers = table(*((name, "CONV_2D", 0.5) for name in names))
    found = bound({"kind": "blocks", "depth": depth, "pattern": pattern}, layers=layers)
    assert sorted(n for nodes in toggles(found).values() for n in nodes) == sorted(names)
    assert all(d.name.removeprefix("block:") for d in found.dimensions)


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
    "units with a count": (GOOD + '[[choices]]\nkind = "units"\nat_most = 3\n', r"choices\.0\.units\.at_most: "),
    "unknown statistic to select units by": (
        GOOD + '[[choices]]\nkind = "units"\nwhere = {statistic = "mse"}\n',
        r"choices\.0\.units\.where\.statistic: .*'mse'",
    ),
    "blocks without a separator": (
        GOOD + '[[choices]]\nkind = "blocks"\nseparator = ""\n',
        r"choices\.0\.blocks\.separator: .*at least 1",
    ),
    "blocks of no depth": (
        GOOD + '[[choices]]\nkind = "blocks"\ndepth = 0\n',
        r"choices\.0\.blocks\.depth: .*greater than or equal to 1",
    ),
    "blocks of half a depth": (
        GOOD + '[[choices]]\nkind = "blocks"\ndepth = 1.5\n',
        r"choices\.0\.blocks\.depth: .*integer",
    ),
    "blocks of a depth that is no number": (
        GOOD + '[[choices]]\nkind = "blocks"\ndepth = true\n',
        r"choices\.0\.blocks\.depth: .*integer",
    ),
    "a pattern that is none": (
        GOOD + '[[choices]]\nkind = "nodes"\n[[choices]]\nkind = "blocks"\npattern = "block_(["\n',
        r"choices\.1\.blocks\.pattern: .*'block_\(\['.*not a regular expression",
    ),
    "a pattern without a group": (
        GOOD + '[[choices]]\nkind = "blocks"\npattern = "block_(?:1|2)"\n',
        r"choices\.0\.blocks\.pattern: .*exactly one group.*has 0",
    ),
    "a pattern of two groups": (
        GOOD + '[[choices]]\nkind = "blocks"\npattern = "(block)_(1|2)"\n',
        r"choices\.0\.blocks\.pattern: .*exactly one group.*has 2",
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
