"""Searches with 16-bit units, on the embedded case and on nets as users write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nursery
import pandas as pd
import pump
import pytest

import autoselect
from autoselect.errors import RunFolderError, UsageError
from autoselect.report.tables.frames import reference_rows
from autoselect.study.setup import preparing
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

TARGETS = Path(__file__).resolve().parents[2] / "search_spaces" / "targets"


def wide(trials: pd.DataFrame) -> list[frozenset[str]]:
    """The 16-bit nodes of each trial's recipe."""
    return [frozenset(json.loads(recipe).get("int16_nodes", ())) for recipe in trials["recipe"]]


def sound(run: autoselect.Run) -> None:
    """All candidates were built as forecast, with the form that their recipes say."""
    assert run.summary["unlike_forecast"] == 0
    assert run.summary["counts"]["failed"] == 0
    for recipe, reasons in zip(run.trials["recipe"], run.trials["fallbacks"].fillna("{}"), strict=True):
        told = json.loads(recipe)
        autoselect.Recipe.from_json(recipe)
        assert frozenset(told.get("int16_nodes", ())).isdisjoint(told["denylisted_nodes"])
        assert all("no such form" not in why for why in json.loads(reasons).values())


def conversions(path: Path) -> list[dict[str, Any]]:
    """The conversions of a file, with the types of what they read and write."""
    graph = reader.read_graph(fb.parse(path.read_bytes()))
    return [
        {"op_type": op.op_type, "dtypes": tuple(graph.tensors[t].dtype for t in (*op.inputs, *op.outputs))}
        for op in graph.ops
        if op.op_type in fb.CONVERSIONS
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> autoselect.Run:
    # 200 samples prove no smaller drop.
    return pump.search(tmp_path_factory.mktemp("int16") / "run", trials=8, early_exit=False, int16=None, max_drop=0.03)


def test_16_bits_are_tried_where_integers_run(found: autoselect.Run) -> None:
    sound(found)
    assert found.manifest["settings"]["int16"] is True
    assert found.summary["references"]["int16"]["float_ops"] == 0
    assert sum(map(bool, wide(found.trials))) >= 2
    recommended = found.trials.set_index("id").loc[found.picks["recommended"], "recipe"]
    nodes = json.loads(recommended).get("int16_nodes", ())
    assert nodes
    assert f"{len(nodes)} nodes have 16-bit activations" in found.summary["verdict"]
    assert "all 16-bit" in [row.label for row in reference_rows(found.summary)]
    assert not [warning for warning in found.summary["warnings"] if "16-bit build" in warning]


def test_each_member_says_which_runtimes_load_it(found: autoselect.Run, tmp_path: Path) -> None:
    """One node stays in 8 bits, so the all-16-bit model has a conversion from 8 to 16."""
    pinned = pd.read_csv(found.directory / "layer_statistics.csv")["tensor_name"].tolist()[2]
    found = pump.search(tmp_path / "run", trials=8, early_exit=False, int16=True, max_drop=0.03, keep_int=[pinned])
    needs = found.summary["runtimes"]
    assert set(needs) == set(found.front["id"])
    mixed = {one for one, need in needs.items() if need["litert"] == "2.1.3"}
    for one, need in needs.items():
        types = {(op["op_type"], op["dtypes"]) for op in conversions(found.model_path(one))}
        assert (("QUANTIZE", ("int8", "int16")) in types) is (one in mixed)
        assert need["tensorflow"] == ("" if one in mixed else "2.19")
        card = autoselect.pick(found.directory, name=one, output=tmp_path / f"{one}.tflite")["card"]
        assert f"LiteRT {need['litert']} or later" in Path(card).read_text(encoding="utf-8")
    assert mixed


@pytest.mark.parametrize("runtime", [pytest.param("2.1.0", marks=pytest.mark.slow), "tensorflow"])
def test_a_search_for_an_older_runtime_has_only_what_that_loads(runtime: str, tmp_path: Path) -> None:
    run = pump.search(tmp_path / "run", trials=10, early_exit=False, int16=None, max_drop=0.03, runtime=runtime)
    assert run.manifest["settings"]["runtime"] == runtime
    assert run.summary["counts"]["failed"] == 0
    assert {need["litert"] for need in run.summary["runtimes"].values()} == {"2.1.0"}
    assert any(wide(run.trials))


def test_without_16_bits_it_is_not_resumed(found: autoselect.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory runs out in the proof, candidates that were made in 16 bits would be taken for others."""
    before, why = pump.tree(found.directory), ("No unit has 16-bit activations. It crashed.",)

    monkeypatch.setattr(preparing, "makes_int16", lambda *_: (False, why))
    with pytest.raises(RunFolderError, match=r"int16 units\b.* crashed\."):
        autoselect.resume(found.directory, trials=10)
    assert pump.tree(found.directory) == before


def test_it_resumes(found: autoselect.Run) -> None:
    before = list(found.trials["id"])
    again = autoselect.resume(found.directory, trials=10)
    sound(again)
    assert list(again.trials["id"])[:8] == before
    assert len(again.trials) == 10


@pytest.mark.slow
def test_pins_keep_nodes_out_of_16_bits(tmp_path: Path) -> None:
    folder = pump.search(tmp_path / "names", trials=5).directory
    nodes = pd.read_csv(folder / "layer_statistics.csv")["tensor_name"].tolist()
    pins = {"keep_float": [nodes[0]], "keep_int": [nodes[-2]], "fallback": "float"}
    run = pump.search(tmp_path / "run", trials=9, early_exit=False, int16=True, **pins)
    sound(run)
    assert any(wide(run.trials))
    assert all({nodes[0], nodes[-2]}.isdisjoint(chosen) for chosen in wide(run.trials))
    assert all(nodes[0] in json.loads(recipe)["denylisted_nodes"] for recipe in run.trials["recipe"])


@pytest.mark.parametrize("changes", [{"int16": False}, {"fallback": "drq"}, {"target": "litert-cpu"}])
def test_where_they_would_not_help_no_node_has_16_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = pump.search(tmp_path / "run", trials=5, **{"int16": None, **changes})
    assert run.manifest["settings"]["int16"] is False
    assert not any(wide(run.trials))


def test_16_bits_are_refused_where_they_do_not_run(tmp_path: Path) -> None:
    target = tmp_path / "own.toml"
    text = (TARGETS / "integer-only.toml").read_text(encoding="utf-8")
    target.write_text("\n".join(line for line in text.splitlines() if not line.startswith("int16 =")), encoding="utf-8")
    with pytest.raises(UsageError, match=r"16-bit activations.*--int16"):
        pump.search(tmp_path / "run", target=str(target), int16=True)
    with pytest.raises(UsageError, match=r"^--int16 .*--fallback drq"):
        pump.search(tmp_path / "run", fallback="drq", int16=True)
    assert not any(wide(pump.search(tmp_path / "run", target=str(target), trials=5, int16=None).trials))


def test_what_a_target_lacks_in_16_bits_has_8(tmp_path: Path) -> None:
    """Two op types have no 16-bit kernel there; neither have the units that such nodes belong to."""
    lacking = {"MEAN", "CONCATENATION"}
    target = tmp_path / "own.toml"
    text = (TARGETS / "tflm.toml").read_text(encoding="utf-8")
    before, after = text.split("[host.int16]")
    head, rest = after.split("]", 1)
    for name in lacking:
        head = head.replace(f'"{name}", ', "")
    target.write_text(f"{before}[host.int16]{head}]{rest}", encoding="utf-8")
    run = pump.search(tmp_path / "run", target=str(target), trials=8, early_exit=False, int16=True)
    sound(run)
    layers = pd.read_csv(run.directory / "layer_statistics.csv").set_index("tensor_name")["op_name"]
    chosen = frozenset().union(*wide(run.trials))
    assert chosen
    assert lacking.isdisjoint(layers[list(chosen)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixer", "U-Net"])
def test_nets_of_users_are_searched_with_16_bits(
    name: str, grown: Callable[[str], nursery.Sources], tmp_path: Path
) -> None:
    net = grown(name)
    run = autoselect.search(
        net.tflite,
        calibration=net.calibration,
        evaluation=(net.evaluation, net.targets),
        metric="mae",
        trials=8,
        workers=1,
        repairs=False,
        early_exit=False,
        debug_samples=4,
        int16=True,
        heldout_fraction=0.25,
        output=tmp_path / "run",
    )
    sound(run)
    assert any(wide(run.trials))
