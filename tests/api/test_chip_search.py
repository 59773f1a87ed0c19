"""A search for the NPU of a phone, with the vendor's own compiler and emulation where they are installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pump
import pytest
import zoo

import autoselect
from autoselect.cases.compiling import Compiling, compile_report, read_for
from autoselect.compilers.litert_plugin import PluginCompiler
from autoselect.compilers.opening import compiler_of
from autoselect.domain.targets import spilled_bytes
from autoselect.domain.verdicts import judge
from autoselect.errors import UsageError
from autoselect.runs.cache import cache_directory
from autoselect.scoring.target_file import read_target

pytest.importorskip("onnxruntime_qnn")
pytestmark = [
    pytest.mark.drawn,
    pytest.mark.skipif(sys.platform != "linux", reason="LiteRT's plugins are for Linux"),
]

TARGET = "qualcomm-sm8750"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> autoselect.Run:
    folder = tmp_path_factory.mktemp("chip") / "run"
    return pump.search(
        folder, trials=8, early_exit=False, int16=None, max_drop=0.03, target=TARGET, emulation_samples=20
    )


def test_what_is_forecast_is_what_the_compiler_says(found: autoselect.Run) -> None:
    assert found.summary["counts"]["failed"] == 0
    assert found.summary["unlike_forecast"] == 0
    assert found.summary["compiler"]["unlike_forecast"] == []
    compiler = compiler_of(read_target(TARGET))
    for row in found.front.to_dict("records"):
        asked = compiler.partition(found.model_path(str(row["id"])).read_bytes(), timeout_seconds=60)
        assert (row["partitions"], row["left_ops"]) == (len(asked.pieces), len(asked.left))


def test_a_run_does_not_go_on_without_the_compiler_of_its_chip(
    found: autoselect.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would lose the members of its front that are to be compiled again."""

    def missing(*_: object) -> None:
        raise UsageError("the compiler is not installed")

    before = {path: path.read_bytes() for path in found.directory.rglob("*") if path.is_file()}
    monkeypatch.setattr(PluginCompiler, "require", missing)
    with pytest.raises(UsageError, match="compiler"):
        autoselect.resume(found.directory, trials=9, progress=False)
    assert {path: path.read_bytes() for path in found.directory.rglob("*") if path.is_file()} == before


def test_members_are_compiled_and_emulated(found: autoselect.Run) -> None:
    table = pd.read_csv(found.model_path("recommended").parents[1] / "chip.csv")
    assert set(found.front["id"]) <= set(table["id"])
    assert (table["samples"] == 20).all()
    assert table["chip"].between(0, 1).all()
    assert (table["ddr_bytes"] > 0).all()
    assert set(found.summary["compiler"]["versions"]) >= {"LiteRT", "libraries", "onnxruntime-qnn"}


def test_a_check_counts_the_emulation() -> None:
    wished: dict[str, Any] = {**pump.LIVE, "target": TARGET, "emulation_samples": 50}
    seen = [autoselect.check(**wished, emulation=wish).phase_seconds for wish in ("front", "none")]
    assert seen[0]["emulation"] > 0.5
    assert "emulation" not in seen[1]


def test_the_verdict_speaks_of_the_chip(found: autoselect.Run) -> None:
    row = found.front.set_index("id").loc[found.picks["recommended"]]
    assert "NPU" in found.summary["verdict"]
    assert ("no op left" in found.summary["verdict"]) == (row["left_ops"] == 0)


def test_rewrites_are_noted(found: autoselect.Run) -> None:
    assert any(note.startswith("Rewrites ") for note in found.manifest["notes"])


@pytest.mark.slow
def test_inputs_and_outputs_of_another_type_count_as_no_rewrite(tmp_path: Path) -> None:
    wished = {"io_type": "int8", "target": TARGET, "emulation": "none", "early_exit": False}
    notes = pump.search(tmp_path / "run", trials=5, **wished).manifest["notes"]
    (note,) = (note for note in notes if note.startswith("Rewrites "))
    assert "float" not in note


def test_both_tables_have_the_compilers_cost_of_a_member(found: autoselect.Run) -> None:
    trials = found.trials.drop_duplicates("id").set_index("id")["penalty"]
    compiled = pd.read_csv(found.model_path("recommended").parents[1] / "chip.csv").set_index("id")["cost"]
    for row in found.front.to_dict("records"):
        assert row["penalty"] == pytest.approx(trials[row["id"]]) == pytest.approx(compiled[row["id"]])


def test_an_answer_has_the_compilers_cost_of_a_member_beside_the_forecast(found: autoselect.Run) -> None:
    for row in found.front.itertuples():
        answer = found.what_if(row.id)
        assert answer.compiled
        assert (answer.penalty, answer.segments) == (row.penalty, row.segments)
    asked = found.what_if("recommended", target="litert-cpu")
    assert not asked.compiled
    assert asked.penalty == asked.forecast_penalty


def test_inspect_and_evaluate_tell_the_penalty_of_the_run(found: autoselect.Run) -> None:
    row = found.front.to_dict("records")[-1]
    path = found.model_path(str(row["id"]))
    scored = autoselect.evaluate(path, evaluation=pump.HELDOUT, target=TARGET)
    assert scored.target == autoselect.inspect(path, target=TARGET).target
    assert scored.penalty == pytest.approx(row["penalty"])
    assert [(chip["partitions"], chip["left_ops"]) for chip in (scored.target or {})["chips"]] == [
        (row["partitions"], row["left_ops"])
    ]


def test_a_member_is_built_again_bit_for_bit_for_its_target(found: autoselect.Run, tmp_path: Path) -> None:
    member = found.front.sort_values("size_bytes").to_dict("records")[-1]
    built = autoselect.build(
        found.directory / "front" / f"{member['id']}.recipe.json",
        model=pump.MODEL_PATH,
        calibration=pump.calibration,
        target=TARGET,
        output=tmp_path / "again.tflite",
    )
    assert built["sha256"] == member["sha256"]


def test_what_surely_does_not_spill_is_not_compiled_before_the_front(found: autoselect.Run) -> None:
    assert not any("predicted_cost" in made for made in found.trials["compiled"].dropna())
    assert "candidates" not in found.summary["compiler"]
    assert not any("is compiled" in note for note in found.manifest["notes"])


def samples(shape: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    return [{"x0": row} for row in np.random.default_rng(0).normal(size=(12, *shape)).astype(np.float32)]


def searched(folder: Path, source: zoo.Source, shape: tuple[int, ...], **wishes: Any) -> autoselect.Run:
    """A search of a model of one input, on random samples, without an emulation."""
    model = folder / "model.tflite"
    model.write_bytes(source.float_model)
    rows = samples(shape)
    return autoselect.search(
        model,
        calibration=rows[:6],
        evaluation=rows[6:],
        metric="sqnr_db",
        target=TARGET,
        early_exit=False,
        emulation="none",
        output=folder / "run",
        **wishes,
    )


@pytest.fixture(scope="module")
def spilling(tmp_path_factory: pytest.TempPathFactory) -> autoselect.Run:
    """Of a model whose whole builds do not spill: a long row, read by two convolutions that may be in two forms."""
    tf = zoo.tf()

    def call(x: Any) -> Any:
        row = tf.reshape(x, (1, 1, 16000, 1))
        ways = [tf.nn.conv2d(row, zoo.weights(1, 64, 1, 4, seed=i), (1, 1, 160, 1), "VALID") for i in range(2)]
        return ways[0] * ways[0] + ways[1] * ways[1]

    wishes = {"trials": 10, "workers": 1, "seed": 0, "repairs": False, "int16": False, "racing": False}
    folder = tmp_path_factory.mktemp("spilling")
    return searched(folder, zoo.from_function(call, (1, 16000)), (1, 16000), **wishes)


def test_where_mixes_spill_every_candidate_is_compiled_and_the_run_says_so(spilling: autoselect.Run) -> None:
    trials = spilling.trials[spilling.trials["error"].isna()]
    made = [json.loads(said) for said in trials["compiled"]]
    assert any(spilled_bytes(one) for one in made)
    assert [one["cost"] for one in made] == pytest.approx(trials["penalty"].tolist())
    assert all(one["cost"] > one["predicted_cost"] + 100.0 for one in made if spilled_bytes(one))
    assert spilling.summary["compiler"]["candidates"]["compiled"] == trials["id"].nunique()
    assert sum("is compiled" in note for note in spilling.manifest["notes"]) == 1


def test_a_score_of_closeness_has_no_wider_interval_than_its_samples_give(spilling: autoselect.Run) -> None:
    """Float is closest to itself on each sample: that no other sample was seen widens nothing."""
    scored = spilling.what_if("recommended").score(evaluation=samples((1, 16000))[6:])
    assert scored.low < scored.score < scored.high
    assert (scored.drop_low, scored.drop_high) == pytest.approx((200.0 - scored.high, 200.0 - scored.low))


def test_what_was_compiled_is_compiled_no_second_time(
    spilling: autoselect.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = spilling.model_path(str(spilling.front["id"].iloc[0])).read_bytes()
    target = read_target(TARGET)
    how = Compiling(cache_root=cache_directory() / "compiled", timeout_seconds=60.0)
    verdict = judge(read_for(content, target, how), target)

    def never(*_arguments: Any, **_options: Any) -> None:
        raise AssertionError("it was compiled before")

    monkeypatch.setattr(PluginCompiler, "compile", never)
    assert compile_report(content, target, verdict, how)["segments"] == verdict.segments


@pytest.mark.slow
def test_the_unit_of_each_of_several_chips_is_what_its_best_whole_model_costs(tmp_path: Path) -> None:
    """What ops move beside their constants counts in it, as it does in every forecast."""
    run = pump.search(
        tmp_path / "run",
        trials=4,
        target=f"{TARGET},qualcomm-sm8650",
        emulation="none",
        early_exit=False,
        repairs=False,
    )
    wholes = run.trials[run.trials["origin"].isin(["baseline:fiq", "baseline:float"])]
    assert wholes["penalty"].min() == pytest.approx(1.0)


@pytest.mark.slow
def test_the_unit_of_prices_is_float_without_the_ops_that_are_folded_in_all_candidates(tmp_path: Path) -> None:
    def call(x: Any) -> Any:
        tf = zoo.tf()
        for place in range(4):
            sizes = tf.shape(x)
            x = tf.reshape(x, tf.stack([tf.reduce_prod(sizes[:2]), 8])) @ zoo.weights(8, 8, seed=place)
            x = tf.reshape(tf.nn.relu(x), tf.stack([sizes[0], 8, 8]))
        return x

    run = searched(tmp_path, zoo.from_function(call, (None, 8, 8)), (1, 8, 8), trials=4)
    made = run.trials.set_index("origin")["penalty"]["baseline:float"]
    assert run.summary["references"]["float"]["penalty"] == pytest.approx(made)
    (chip,) = (autoselect.inspect(tmp_path / "model.tflite", target=TARGET).target or {})["chips"]
    assert chip["partitions"] > 1
    assert run.what_if("recommended", target="qualcomm-sm8650").penalty > 0
