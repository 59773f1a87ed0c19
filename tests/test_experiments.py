"""What the documentation says of experiments is what they wrote."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import autoselect
from autoselect import embedded
from autoselect.domain import rule
from autoselect.scoring.metrics import make_metric
from autoselect.study.proposing import constants
from autoselect.study.proposing.failures import Failures
from autoselect.tflite.runner import Runner

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "repairs.md"
RESULTS = ROOT / "experiments" / "repairs" / "results" / "repairs.csv"


def rows_of_results() -> list[dict[str, str]]:
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_of_the_denoiser_with_one_number_is_what_was_measured(
    script: Callable[[Path], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ROOT / "experiments" / "streaming_denoiser"
    monkeypatch.syspath_prepend(str(folder))
    rows = pd.read_csv(folder / "results" / "one_number.csv", keep_default_na=False, na_values=[""])
    found = script(folder / "one_number.py").table_of(rows)
    assert found == (folder / "results" / "one_number.md").read_text(encoding="utf-8")


def test_every_case_has_every_row_and_no_repaired_model_a_float_op() -> None:
    models: dict[str, list[str]] = {}
    for row in rows_of_results():
        models.setdefault(row["case"], []).append(row["model"])
        assert (row["float_ops"] == "0") is (row["model"] != "float")
    assert len(models) == 7
    assert len({tuple(names) for names in models.values()}) == 1


def test_what_the_text_says_of_mobilenet_is_in_the_table() -> None:
    """The figures that the feature was made for."""
    rows = {row["model"]: row for row in rows_of_results() if row["case"] == "MobileNetV1-0.25"}
    plain, corrected = (float(rows[name]["agreement"]) for name in ("fiq", "fiq + bias"))
    said = re.search(r"per channel from (\d+) % to (\d+) % agreement", PAGE.read_text(encoding="utf-8"))
    assert said is not None
    assert [int(group) for group in said.groups()] == [round(100 * plain), round(100 * corrected)]
    assert float(rows["fiq + bias"]["score"]) >= float(rows["float"]["score"]) - 0.006


@pytest.fixture(autouse=True)
def modules_of_other_experiments_go() -> Iterator[None]:
    """Experiments have modules of one name: `tables`, `cases`."""

    def forget() -> None:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(ROOT / "experiments")):
                del sys.modules[name]

    forget()
    yield
    forget()


def test_the_table_of_recurrent_nets_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "experiments" / "recurrent"
    monkeypatch.syspath_prepend(str(folder))
    run = importlib.import_module("run")
    table = run.table_of(pd.read_csv(folder / "results" / "recurrent.csv"))
    assert table == (folder / "results" / "table.md").read_text(encoding="utf-8")
    assert table in (folder / "README.md").read_text(encoding="utf-8")


ZOO = ROOT / "experiments" / "zoo"
MEASURED = ZOO / "results" / "zoo.json"


@pytest.mark.skipif(not MEASURED.exists(), reason="experiments/zoo/run.py has not been run")
def test_the_table_of_the_zoo_is_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ZOO))
    tables = importlib.import_module("tables")
    models = json.loads(MEASURED.read_text(encoding="utf-8"))["models"]
    assert tables.table(models) == (MEASURED.parent / "table.md").read_text(encoding="utf-8")
    for row in models.values():
        if "skipped" not in row:
            assert row["out_of_reach"] == []
            assert {name: f["first"] for name, f in row["forecasts"].items() if f["exact"] < f["of"]} == {}
            assert (row["all_float"], row["all_int8"]) == ("", "")
            assert [kind for kind in row["mixes"]["classes"] if not kind.startswith(("equal", "the quantizer "))] == []


CONSTANTS = ROOT / "experiments" / "surrogate_constants"


@pytest.fixture
def sensitivity(monkeypatch: pytest.MonkeyPatch, script: Callable[[Path], ModuleType]) -> ModuleType:
    """experiments/surrogate_constants/run.py, whose name others have as well."""
    for folder in (ROOT / "tests" / "study", ROOT / "experiments" / "search_benchmark"):
        monkeypatch.syspath_prepend(str(folder))
    return script(CONSTANTS / "run.py")


def test_each_constant_is_halved_and_doubled_and_then_as_it_was(sensitivity: ModuleType) -> None:
    before = {name: getattr(constants, name) for name in sensitivity.NAMES}
    with sensitivity.changed("POOL", 0.5), sensitivity.changed("OPENING", 2.0), sensitivity.changed("CLIMBED", 0.25):
        assert (constants.POOL, constants.OPENING, constants.CLIMBED) == (600, (0.5, 1.0, 1.0), 1)
    for name in sensitivity.NAMES:
        for factor in sensitivity.FACTORS:
            with sensitivity.changed(name, factor):
                assert getattr(constants, name) != before[name]
    assert before == {name: getattr(constants, name) for name in sensitivity.NAMES}


def test_replayed_searches_give_a_row_each_and_a_change_of_nothing_is_none(sensitivity: ModuleType) -> None:
    synthetic = importlib.import_module("synthetic")
    truth = synthetic.synthetic(14, 0, hybrid=True)
    rows = pd.DataFrame(sensitivity.rows_of("made up", truth, synthetic.CORNER, ["RIDGE", "CHILDREN"], 2, 9))
    assert len(rows) == 2 * (1 + 2 * 2)
    assert rows["hypervolume"].between(0.0, 1.0, inclusive="neither").all()
    ridge, children = sensitivity.table(rows).splitlines()[4:6]
    # No cost of this search is measured, so that the ridge says nothing.
    assert ridge == "| `RIDGE` | 1.0 | +0.00 (+0.00 to +0.00) | +0.00 (+0.00 to +0.00) |"
    assert children.startswith("| `CHILDREN` | 160 |")


@pytest.mark.skipif(not (CONSTANTS / "results" / "runs.csv").exists(), reason="its run.py has not been run")
def test_the_table_of_constants_is_what_was_measured(sensitivity: ModuleType) -> None:
    rows = pd.read_csv(CONSTANTS / "results" / "runs.csv", keep_default_na=False)
    assert sensitivity.table(rows) == (CONSTANTS / "results" / "table.md").read_text(encoding="utf-8")
    assert set(rows["constant"]) == {"", *sensitivity.NAMES}


@pytest.fixture
def ablations(
    monkeypatch: pytest.MonkeyPatch, sensitivity: ModuleType, script: Callable[[Path], ModuleType]
) -> ModuleType:
    """experiments/surrogate_constants/ablations.py beside its own run.py."""
    monkeypatch.setitem(sys.modules, "run", sensitivity)
    return script(CONSTANTS / "ablations.py")


def test_mechanisms_are_switched_off_one_by_one_and_on_again(ablations: ModuleType, tmp_path: Path) -> None:
    case, without = "40 units, 4 pairs fail", "pairs that failed"
    before = Failures.chances
    ablations.main(["--case", case, "--without", without, "--seeds", "2", "--trials", "8", "--output", str(tmp_path)])
    assert Failures.chances is before
    rows = pd.read_csv(tmp_path / "ablations.csv", keep_default_na=False)
    assert list(zip(rows["without"], rows["seed"], strict=True)) == [
        ("nothing", 0),
        ("nothing", 1),
        (without, 0),
        (without, 1),
    ]
    assert rows["volume"].between(0.0, 1.0, inclusive="neither").all()
    assert rows["price"].between(0.0, 100.0).all()
    assert f"| {without} |" in (tmp_path / "ablations.md").read_text(encoding="utf-8")


def test_the_table_of_mechanisms_is_what_was_measured_and_has_all_that_there_are(ablations: ModuleType) -> None:
    rows = pd.read_csv(CONSTANTS / "results" / "ablations.csv", keep_default_na=False)
    assert ablations.table(rows) == (CONSTANTS / "results" / "ablations.md").read_text(encoding="utf-8")
    assert {*ablations.MECHANISMS} <= {*rows["without"]}


EVIDENCE = ROOT / "experiments" / "evidence"


def test_no_candidate_of_a_race_is_dropped_more_often_than_the_confidence_allows() -> None:
    """A tenth may be; 200 orders show at most 6.4 of 100 more by chance (three standard errors)."""
    text = (EVIDENCE / "results" / "table.md").read_text(encoding="utf-8")
    races = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "| now |" in line]
    assert len(races) == 16
    assert max(float(cells[3]) for cells in races) <= 16.4


def coverage_of(page: Path) -> dict[str, pd.DataFrame]:
    """The tables of what is covered on real cases, by the first words of their titles."""
    found = {}
    for part in page.read_text(encoding="utf-8").split("## ")[1:]:
        title, head, _, *rows = [line for line in part.splitlines() if line]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, *rows)]
        found[" ".join(title.split()[:2])] = pd.DataFrame(cells[1:], columns=cells[0])
    return found


SUMMARY = {
    "a bound covers the true drop, worst candidate": ("Bounds on", 3, "at least 94 %", min),
    "an interval covers it, worst candidate": ("Bounds on", 5, "at least 94 %", min),
    "a model is certified and breaks its limit, hardest limit": ("Recommended models", 5, "at most 8 %", max),
    "an all-integer model that loses two points ends the search, worst candidate": (
        "Early exit",
        3,
        "at most 5 %",
        max,
    ),
    "a race drops a candidate exactly at its goal, worst candidate": ("Races at", 4, "at most 10 %", max),
}
"""The table and column of each, what is asked, and which figure of a case counts."""


def test_what_samples_prove_holds_on_real_cases() -> None:
    found = coverage_of(EVIDENCE / "results" / "coverage.md")
    cases = list(found["Bounds on"]["case"].unique())
    lines = [f"| | asked | {' | '.join(cases)} |", "|---" * (2 + len(cases)) + "|"]
    for name, (title, place, asked, worst) in SUMMARY.items():
        figures = found[title].iloc[:, [0, place]].set_axis(["case", "figure"], axis=1)
        values = [worst(figures.loc[figures["case"] == case, "figure"].astype(float)) for case in cases]
        limit = float(asked.split()[2])
        assert all(value >= limit if worst is min else value <= limit for value in values), name
        lines.append(f"| {name} | {asked} | {' | '.join(f'{value:.1f}' for value in values)} |")
    assert "\n".join(lines) in (EVIDENCE / "README.md").read_text(encoding="utf-8"), "\n".join(lines)


def test_bounds_over_groups_hold_where_those_over_samples_do_not() -> None:
    lines = (EVIDENCE / "results" / "groups.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    found = pd.DataFrame([row[:2] + row[4:6] for row in rows], columns=["measure", "kind", "samples", "groups"])
    worst = found.astype({"samples": float, "groups": float}).groupby(["measure", "kind"], sort=False).min()
    assert worst["groups"].min() >= 94.0
    differing = worst.drop("all groups lose alike", level="kind")
    assert differing["samples"].max() < 80.0
    readme = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    for (measure, kind), (samples, groups) in zip(worst.index, worst.to_numpy().tolist(), strict=True):
        assert f"| {measure} | {kind} | {samples:.1f} | {groups:.1f} |" in readme


def test_the_rule_is_better_than_the_former_on_the_average_of_real_cases() -> None:
    """The documentation and the rule itself have the means of the table."""
    page = (EVIDENCE / "results" / "coverage.md").read_text(encoding="utf-8")
    readme = (EVIDENCE / "README.md").read_text(encoding="utf-8")
    means = [line for line in page.split("## Rules, means")[1].split("## ")[0].splitlines() if line.startswith("|")]
    assert "\n".join(means) in readme
    assert (EVIDENCE / "results" / "demo.md").read_text(encoding="utf-8").strip() in readme
    last = [float(mean) for mean in coverage_of(EVIDENCE / "results" / "coverage.md")["Rules, means"].iloc[-1, 3:]]
    former, *others = zip(last[::2], last[1::2], strict=True)
    assert all(now < before for now, before in zip(others[1], former, strict=True))
    explanation = (ROOT / "docs" / "explanation.md").read_text(encoding="utf-8")
    for price, (broken, penalty) in zip((1.5, 2, 3), others, strict=True):
        assert f"| {price} | {broken:.1f} % | {penalty:.1f} |" in explanation
        assert re.search(rf"{broken:.1f} %[\w\s,]* {penalty:.1f}[;, ]", Path(rule.__file__).read_text(encoding="utf-8"))


def test_candidates_of_kept_rows_leave_the_ops_off_the_accelerator_that_they_had(
    script: Callable[[Path], ModuleType],
) -> None:
    pytest.importorskip("PIL")
    found = script(EVIDENCE / "rows.py").read("pump").scores
    assert [s.left_ops for s in found] == [s.float_ops for s in found]
    assert max(s.left_ops for s in found) == 22


def test_coverage_is_simulated_again_by_its_command(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    few = ["--repeats", "2", "--searches", "1", "--case", "mobilenet", "--output", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(EVIDENCE / "coverage.py"), *few], check=True, env=environment)
    again, kept = (coverage_of(folder / "coverage.md") for folder in (tmp_path, EVIDENCE / "results"))
    assert {title: list(table.columns) for title, table in again.items()} == {
        title: list(table.columns) for title, table in kept.items()
    }
    assert {title: len(table) for title, table in again.items() if len(table) != 2} == {
        "Recommended models": 12,
        "Rules, means": 3,
        "The demo,": 8,
    }


STUDIES = {
    name: f"{name}.csv"
    for name in (
        "deepconvlstm",
        "mlperf_tiny",
        "mobilenet_v1",
        "mobilenet_v3",
        "qat",
        "ranking",
        "regression",
        "sample_sizes",
    )
}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, script: Callable[[Path], ModuleType]) -> Callable[[str], ModuleType]:
    """Gives ``run.py`` of a study by its name; its searches share the session's worker."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # Some add to it what their workers import.
    monkeypatch.syspath_prepend(str(ROOT))  # They add to this as well, and all of it is taken back.
    monkeypatch.setattr("autoselect.keep_workers", lambda *_: contextlib.nullcontext())
    return lambda name: script(ROOT / "experiments" / name / "run.py")


@pytest.mark.parametrize("name", STUDIES)
def test_the_table_of_a_study_is_what_its_command_wrote(study: Callable[[str], ModuleType], name: str) -> None:
    results = ROOT / "experiments" / name / "results"
    texts = ("seeds", "evaluated", "refusal", "each", "float_ops")
    rows = pd.read_csv(results / STUDIES[name], dtype=dict.fromkeys(texts, str)).fillna(dict.fromkeys(texts, ""))
    assert study(name).table_of(rows) == (results / "table.md").read_text(encoding="utf-8")


def test_what_far_from_float_is_was_measured(script: Callable[[Path], ModuleType]) -> None:
    folder = ROOT / "experiments" / "one_number"
    far = script(folder / "far.py")
    candidates, page = pd.read_csv(far.CANDIDATES), (folder / "README.md").read_text(encoding="utf-8")
    tables = far.table_of(candidates), far.scaled(candidates)
    assert "\n".join(tables) == (folder / "results" / "far.md").read_text(encoding="utf-8")
    assert all(table in page for table in tables)
    for name in ("tables", "few", "few_heldout"):
        lines = (folder / "results" / f"{name}.md").read_text(encoding="utf-8").splitlines()
        assert all(line in page for line in lines if line.startswith("|"))


def test_every_experiment_is_in_the_index_with_its_conclusion() -> None:
    text = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| \[(\w+)\]\(\1/README\.md\) \|[^|]+\| ([^|]+) \|$", text, flags=re.MULTILINE))
    assert set(listed) == {page.parent.name for page in (ROOT / "experiments").glob("*/README.md")}
    assert {path.name for path in (ROOT / "experiments").iterdir() if any(path.glob("*.py"))} <= set(listed)
    assert min(len(said.split()) for said in listed.values()) >= 5


@pytest.mark.slow
def test_mlperf_tiny_measures_the_float_the_published_and_the_recommended_model_and_skips_what_is_absent(
    study: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("ethosu")
    run = study("mlperf_tiny")
    windows, labels = embedded.make_windows(np.random.default_rng(1), 90)
    parts = {
        name: lambda i=i: (windows[i : i + 30], labels[i : i + 30])
        for name, i in (("search", 0), ("heldout", 30), ("official", 60))
    }
    published = tmp_path / "published.tflite"
    recipe = autoselect.Recipe(io_type="int8")
    autoselect.build(recipe, model=embedded.model_path(), calibration=embedded.calibration, output=published)
    pump = run.Case(
        title="pump",
        quality=0.5,
        model=embedded.model_path(),
        published={"published": published},
        calibration=embedded.calibration,
        **parts,
    )
    monkeypatch.setattr(run, "WAYS", {"recommended": {}})
    monkeypatch.setattr(run.tiny_data.loaders, "KWS", tmp_path / "nowhere")
    monkeypatch.setattr(run, "CASES", {"pump": lambda _: pump, "absent": run.keyword_spotting})
    run.main(["--trials", "8", "--seeds", "1", "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    assert "absent is skipped" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "mlperf_tiny.csv").set_index("model")
    assert rows.loc["float", "accuracy"] > rows.loc["all int8", "accuracy"]
    assert rows.loc["published", "accuracy"] == rows.loc["all int8", "accuracy"]
    assert rows.loc["all int8", ["float_ops", "over_other"]].eq(0).all()
    assert (
        rows.loc["float", "all_cycles"] > rows.loc["all int8", "all_cycles"] >= rows.loc["all int8", "npu_cycles"] > 0
    )
    assert "hybrid" in str(rows.loc["all DRQ", "refusal"])
    assert rows.loc["recommended", "seeds"] == 0
    monkeypatch.setattr(run, "CASES", {"absent": run.keyword_spotting})
    with pytest.raises(SystemExit, match="nothing to"):
        run.main(["--output", str(tmp_path)])


def test_a_file_of_mlperf_tiny_is_the_one_that_is_named_or_is_absent(
    study: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fetched by a URL of its commit; here a file stands for the network."""
    study("mlperf_tiny")
    files = importlib.import_module("tiny_files")
    name, content = "kws_ref_model.tflite", b"a model"
    source = tmp_path / "there" / files.FILES[name].commit / files.FILES[name].path
    monkeypatch.setattr(files, "ADDRESS", (tmp_path / "there").as_uri())
    with pytest.raises(files.AbsentError, match=name):
        files.benchmark_file(tmp_path / "here", name)
    source.parent.mkdir(parents=True)
    source.write_bytes(content)
    with pytest.raises(ValueError, match="SHA-256"):
        files.benchmark_file(tmp_path / "here", name)
    assert not (tmp_path / "here" / name).exists()
    known = dataclasses.replace(files.FILES[name], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(files.FILES, name, known)
    assert files.benchmark_file(tmp_path / "here", name).read_bytes() == content
    source.unlink()
    assert files.benchmark_file(tmp_path / "here", name).read_bytes() == content
    (tmp_path / "here" / name).write_bytes(b"another")
    with pytest.raises(ValueError, match="SHA-256"):
        files.benchmark_file(tmp_path / "here", name)


def test_the_accuracy_sets_of_mlperf_tiny_are_read_as_the_runner_has_them(
    study: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = study("mlperf_tiny").tiny_data
    assert (
        data.kws_accuracy_set(tmp_path) is data.cifar_accuracy_set(tmp_path) is data.cifar_reencoded(tmp_path) is None
    )
    spectrogram = np.arange(-245, 245).clip(-128, 127).astype(np.int8)
    pictures = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    for folder, raw in (("kws01", [spectrogram]), ("ic01", pictures[:2])):
        (tmp_path / folder).mkdir()
        lines = []
        for i, one in enumerate(raw):
            (tmp_path / folder / f"{i}.bin").write_bytes(one.tobytes())
            lines.append(f"{i}.bin,12,{i + 3}\n")
        (tmp_path / folder / "y_labels.csv").write_text("".join(lines), encoding="utf-8")
    x, y = data.kws_accuracy_set(tmp_path)
    np.testing.assert_allclose(x.ravel(), (spectrogram.astype(float) - 83) * 0.5847029, rtol=1e-6)
    assert (x.shape, list(y)) == ((1, 49, 10, 1), [3])
    x, y = data.cifar_accuracy_set(tmp_path)
    assert (x == pictures[:2]).all()
    assert list(y) == [3, 4]
    near = np.clip(pictures.astype(np.float32) + 2.0, 0.0, 255.0)
    monkeypatch.setattr(data, "images", lambda _: ((near[i], label) for i, label in ((2, 9), (1, 4), (0, 3))))
    x, y = data.cifar_reencoded(tmp_path)
    assert (x == near[:2]).all()
    assert list(y) == [3, 4]
    monkeypatch.setattr(data, "images", lambda _: ((near[i], label) for i, label in ((2, 9), (1, 4), (0, 8))))
    with pytest.raises(ValueError, match="every image"):
        data.cifar_reencoded(tmp_path)


@pytest.mark.slow
def test_a_recurrent_model_is_compared_with_the_one_whose_lstms_are_left_out(
    study: Callable[[str], ModuleType],
    script: Callable[[Path], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The model of the study, untrained, on made-up windows."""
    pytest.importorskip("tf_keras")
    run = study("deepconvlstm")
    data = importlib.import_module("har_data")
    windows = np.random.default_rng(0).normal(size=(40, 128, 6)).astype(np.float32)
    labels, subjects = np.arange(40) % 6, np.arange(40) % 2
    monkeypatch.setattr(run, "LOST", -1.0)
    monkeypatch.setattr(data, "calibration", lambda _: ([window[None]] for window in windows[:4]))
    monkeypatch.setattr(data, "search", lambda _: (windows[4:16], labels[4:16]))
    monkeypatch.setattr(data, "heldout", lambda _: (windows[16:], labels[16:], subjects[16:]))
    train = script(ROOT / "experiments" / "deepconvlstm" / "train.py")
    folder = tmp_path / "runs" / "raw"
    folder.mkdir(parents=True)
    (folder / "model.tflite").write_bytes(train.converted(train.make_model()))
    sizes = ["--units", "raw", "--trials", "6", "--seeds", "1"]
    run.main([*sizes, "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "deepconvlstm.csv").set_index("model")
    assert list(rows.loc[["all int8", "both LSTMs DRQ", "first LSTM DRQ"], "float_ops"]) == [0, 2, 1]
    assert rows.loc["both LSTMs DRQ", ["over_other", "worst_subject", "best_subject"]].eq(0.0).all()
    assert {*run.WAYS} <= set(rows.index)
    assert list(pd.read_csv(tmp_path / "tensors.csv")["op"]).count(run.LSTM) == 2
    assert (tmp_path / "deepconvlstm.png").stat().st_size > 0


@pytest.mark.slow
def test_the_guides_flow_is_measured_beside_searches(
    study: Callable[[str], ModuleType],
    script: Callable[[Path], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The model of the study without what squeezes, untrained, on noise; uneven channels change no answer of it."""
    pytest.importorskip("tf_keras")
    run, train = study("mobilenet_v3"), script(ROOT / "experiments" / "mobilenet_v3" / "train.py")
    # Half of the nodes: each of the debugger's models is converted, calibrated and quantized anew.
    fewer = functools.partial(train.keras.applications.MobileNetV3Small, minimalistic=True)
    monkeypatch.setattr(train.keras.applications, "MobileNetV3Small", fewer)
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, size=(24, 64, 64, 3)).astype(np.float32)
    model = train.make_model()
    model.set_weights([weights + rng.uniform(0.0, 0.05, weights.shape) for weights in model.get_weights()])
    spread = train.uneven(model, 1.0)
    logits = [train.keras.Model(one.input, one.get_layer("Logits").output)(images[:2]) for one in (spread, model)]
    assert np.std(logits[1]) > 0.0
    np.testing.assert_allclose(*logits, rtol=1e-3, atol=1e-3 * np.std(logits[1]))
    assert not np.allclose(spread.get_layer("Conv_1").get_weights()[0], model.get_layer("Conv_1").get_weights()[0])
    labels = np.arange(24) % 10
    monkeypatch.setattr(run, "LOST", -1.0)
    monkeypatch.setattr(run, "trained", lambda _: model)
    monkeypatch.setitem(sys.modules, "train", train)
    monkeypatch.setattr(run.loaders, "cifar_calibration", lambda: ([image[None]] for image in images[:4]))
    monkeypatch.setattr(run, "search_images", lambda: (images[4:14], labels[4:14]))
    monkeypatch.setattr(run, "heldout_images", lambda: (images[14:], labels[14:]))
    (tmp_path / "runs").mkdir()
    run.main(["--trials", "8", "--seeds", "1", "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "mobilenet_v3.csv").set_index("model")
    assert rows.loc["all int8", "float_ops"] == 0 < rows.loc["guide: MEAN", "float_ops"]
    assert rows.loc["guide: both", "float_ops"] > rows.loc[run.GUIDE, "float_ops"] >= run.LEADING
    assert {*run.ways(4), run.RANKING} <= set(rows.index)
    assert rows.loc[run.RANKING, "evaluated"] in range(1, 5)
    assert len(pd.read_csv(tmp_path / "tensors.csv")) > len(run.DECADES)
    assert (tmp_path / "mobilenet_v3.png").stat().st_size > 0


def test_a_ranking_that_knows_the_gains_is_right_and_one_that_turns_them_round_is_wrong(
    study: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up nodes, each of which costs its own number of points while it is in integers."""
    run = study("ranking")
    monkeypatch.setattr(run, "DRAWS", 20)
    costs = {f"node_{i}": float(i) for i in range(8)}
    noise = np.random.default_rng(0).normal(size=60)

    def build(left_out: Collection[str]) -> bytes:
        return json.dumps(sorted(left_out)).encode()

    def score(content: bytes) -> np.ndarray:
        return 90.0 - sum(costs[name] for name in costs.keys() - set(json.loads(content))) + noise

    units = pd.DataFrame({"node": list(costs), **dict.fromkeys(run.RANKINGS, 0.0)})
    units["rmse_per_scale"], units["leave_one_in"] = list(costs.values()), [-cost for cost in costs.values()]
    case = run.Case(title="", unit="", model=Path(), calibration=list, score=score)
    _, rows = run.measured(case, "made up", units, build)
    found = pd.DataFrame(rows).set_index(["ranking", "target"])
    for target in run.TARGETS:
        assert found.loc[("rmse_per_scale", target), "spearman"] == pytest.approx(1.0)
        assert found.loc[("leave_one_in", target), "spearman"] == pytest.approx(-1.0)
        assert found.loc[("rmse_per_scale", target), "repeatability"] == pytest.approx(1.0)
        assert math.isnan(found.loc[("position", target), "spearman"])
    assert found.loc[("rmse_per_scale", "gain"), "five"] == pytest.approx(7 + 6 + 5 + 4 + 3)
    assert found.loc[("leave_one_in", "gain"), "five"] == pytest.approx(0 + 1 + 2 + 3 + 4)


def test_rankings_are_measured_on_a_model(
    study: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = study("ranking")
    cases = importlib.import_module("ranking_cases")
    windows, labels = embedded.make_windows(np.random.default_rng(1), 60)
    case = run.Case(
        title="pump",
        unit="points",
        model=embedded.model_path(),
        calibration=embedded.calibration,
        score=lambda content: cases.points(cases.answers(content, windows[:30]) == labels[:30]),
        search={"evaluation": (windows[30:], labels[30:]), "metric": "accuracy", "heldout_fraction": 0.2},
    )
    whole = run.figures_of
    monkeypatch.setattr(run, "DRAWS", 20)
    monkeypatch.setitem(run.CASES, "pump", case)
    monkeypatch.setattr(run, "figures_of", lambda *given: whole(*given).head(2))
    sizes = ["--case", "pump", "--trials", "4", "--samples", "2"]
    run.main([*sizes, "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    assert list(pd.read_csv(tmp_path / "units.csv")["op"]) == ["SUB", "MUL"]
    assert (tmp_path / "ranking.png").stat().st_size > 0
    assert "rmse/scale (debugger)" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_what_is_known_of_units_tried_together_is_measured(study: Callable[[str], ModuleType], tmp_path: Path) -> None:
    study("ranking")
    together = importlib.import_module("together")
    together.main(["--case", "pump", "--output", str(tmp_path)])
    rows = [line.strip("| \n").split(" | ") for line in (tmp_path / "together.md").read_text().splitlines()[2:]]
    assert [row[2] for row in rows] == ["2 together", "4 together", "statistics alone"]
    errors = [float(row[4]) for row in rows]
    assert errors == sorted(errors)

    def figures(text: str) -> list[list[str]]:
        rows = (
            line.strip("| ").split(" | ") for line in text.splitlines() if " together | " in line or " alone | " in line
        )
        return [row[-4:] for row in rows]

    folder = ROOT / "experiments" / "ranking"
    kept = figures((folder / "results" / "together.md").read_text(encoding="utf-8"))
    assert len(kept) == 12
    told = (folder / "README.md").read_text(encoding="utf-8").partition("**Units tried with their neighbours.**")[2]
    assert figures(told) == kept


def test_recommendations_of_few_and_more_samples_are_judged_on_unseen_ones(
    study: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    sizes = ["--size", "20", "--size", "60", "--seeds", "1", "--trials", "4", "--unseen", "50"]
    study("sample_sizes").main([*sizes, "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "sample_sizes.csv").set_index("samples")
    assert list(rows.index) == [20, 60]
    assert rows.loc[20, "bound"] > rows.loc[60, "bound"]
    assert not rows["certified"].any()  # So few windows prove nothing.


@pytest.mark.slow
def test_trained_nets_are_compared_with_searches_and_searched_themselves(
    study: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As if training had changed nothing, so that what it made is what quantizing after it makes."""
    run = study("qat")
    windows, labels = embedded.make_windows(np.random.default_rng(1), 200)
    parts = {
        name: lambda i=i: (windows[i : i + 50], labels[i : i + 50])
        for name, i in (("training", 0), ("search", 50), ("heldout", 100))
    }
    case = run.Case(title="pump", epochs=1, rate=0.1, **parts)
    trained = tmp_path / "runs" / "pump" / "trained"
    trained.mkdir(parents=True)
    autoselect.build(
        autoselect.Recipe(), model=embedded.model_path(), calibration=case.calibration, output=trained / "qat_0.tflite"
    )
    for name in ("float", "further_0", "twin_0"):
        (trained / f"{name}.tflite").write_bytes(embedded.model_bytes())
    shutil.copy(trained / "qat_0.tflite", trained / "qat_partly_0.tflite")
    (trained / "seconds_0.json").write_text('{"further": 1.0, "qat": 2.0}', encoding="utf-8")
    monkeypatch.setitem(run.CASES, "pump", case)
    sizes = ["--case", "pump", "--seeds", "1", "--trials", "4"]
    run.main([*sizes, "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "qat.csv").set_index("model")
    assert rows.loc["tfmot, all int8", "int8_gain"] == 0.0
    assert rows.loc["tfmot, all int8", "float_gain"] < 0.0
    assert rows.loc["tfmot, then search: recommended", "seconds"] > 2.0
    assert rows.loc["tfmot, then search: recommended", "heldout"] > rows.loc[run.INT8, "heldout"]
    assert (tmp_path / "qat.png").stat().st_size > 0


def test_what_training_with_simulated_quantization_made_is_searched_over_its_twin_in_float(tmp_path: Path) -> None:
    """In a process of its own, since its Keras is the one of tfmot."""
    pytest.importorskip("tensorflow_model_optimization")
    lines = (
        "import dataclasses, sys",
        f"sys.path.insert(0, {str(ROOT / 'experiments' / 'qat')!r})",
        "import tune",
        "case = tune.qat_cases.CASES['pump']",
        "few = [part[:256] for part in case.training()]",
        "tune.qat_cases.CASES['pump'] = dataclasses.replace(case, training=lambda: few, epochs=1)",
        "tune.pump_net.EPOCHS = 1",
        f"tune.main(['--case', 'pump', '--seeds', '1', '--folder', {str(tmp_path)!r}])",
    )
    path = os.pathsep.join([str(ROOT), *sys.path])
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, env={**os.environ, "PYTHONPATH": path})
    assert (tmp_path / "twin_0.tflite").read_bytes() != (tmp_path / "float.tflite").read_bytes()
    for name, integers in (("qat_0", 22), ("qat_partly_0", 18)):
        made = autoselect.build(
            autoselect.Recipe(),
            model=tmp_path / "twin_0.tflite",
            integer=tmp_path / f"{name}.tflite",
            calibration=embedded.calibration,
            output=tmp_path / "made.tflite",
        )
        assert list(made.kinds.values()) == ["integer"] * integers


@pytest.mark.slow
def test_single_suspects_and_searches_are_scored_where_answers_are_numbers(
    study: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = study("regression")
    windows, _ = embedded.make_windows(np.random.default_rng(1), 40)
    exact = [outputs(embedded.model_bytes(), window) for window in windows]
    metric = make_metric("sqnr_db")

    def score(content: bytes) -> np.ndarray:
        pairs = zip(windows, exact, strict=True)
        return np.concatenate([metric.observe(outputs(content, one), None, theirs) for one, theirs in pairs])

    case = run.Case(
        title="pump",
        unit="dB",
        model=embedded.model_path(),
        calibration=embedded.calibration,
        score=score,
        search={"evaluation": windows[:20], "heldout": windows[20:], "metric": "sqnr_db", "trials": 10},
    )
    monkeypatch.setattr(run, "SAMPLES", 2)
    monkeypatch.setattr(run, "CASES", {"pump": case})
    monkeypatch.setattr(run, "WITHOUT_MODEL", {"pump": ("nothing", lambda: np.zeros(40))})
    monkeypatch.setattr(run, "ALSO", {"pump": len})
    run.main(["--seeds", "1", "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "regression.csv").set_index("model")
    assert rows.loc["float", "heldout"] == 200.0
    assert rows.loc["nothing", "heldout"] == 0.0
    assert math.isnan(rows.loc["all int8", "int8_gain"])
    assert rows.loc["the first by rmse/scale (debugger) left out", "float_ops"] == 1
    assert (tmp_path / "regression.png").stat().st_size > 0
    assert "px from float" in (tmp_path / "table.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors:UserWarning")  # litert-quantizer, calibrating
def test_searches_and_other_tools_are_compared_at_equal_limits(
    study: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("litert_quantizer")
    run = study("mobilenet_v1")
    for part in ("search", "unseen"):
        windows = embedded.make_windows(np.random.default_rng(len(part)), 60)
        pairs = list(zip(*windows, strict=True))
        monkeypatch.setattr(f"parts.pump_{part}", lambda pairs=pairs: iter(pairs))
    case = run.BenchmarkCase(
        name="pump",
        data="pump",
        metric="accuracy",
        samples=60,
        reference=None,
        model=embedded.model_path(),
        options={"fallback": "float"},
    )
    monkeypatch.setattr(run, "CASES", {"pump": case})
    monkeypatch.setattr(run, "SEARCHES", {run.DEFAULT: "surrogate+search+int16+repairs", "in turn": "prefix"})
    monkeypatch.setattr(run, "DRAWN", ("in turn",))
    run.main(["--trials", "6", "--runs", str(tmp_path / "runs"), "--output", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "mobilenet_v1.csv").set_index("tool")
    assert rows.loc["float", "drop"] == 0.0
    assert rows.loc["all int8", "float_ops"] == 0
    static = "litert-quantizer, static recipe, all of each range"
    by_hand = [static, f"{static}, 5 worst by rmse/scale left out"]
    assert list(rows.loc[by_hand, "float_ops"]) == [0, 5]
    within = rows[rows["part"] == "limits"].loc["in turn"]
    assert within["limit"].is_monotonic_increasing
    assert within["penalty"].is_monotonic_decreasing
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert curve["share"].between(0.0, 1.0).all()
    assert (tmp_path / "mobilenet_v1.png").stat().st_size > 0
    assert "NNCF" not in (tmp_path / "table.md").read_text(encoding="utf-8")


def outputs(content: bytes, window: np.ndarray) -> Mapping[str, np.ndarray]:
    return Runner(content)(window[None])


def test_a_study_grows_is_asked_told_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[Path], ModuleType]
) -> None:
    for room in ("study", "report"):
        monkeypatch.syspath_prepend(str(ROOT / "tests" / room))
    (row,) = script(ROOT / "experiments" / "scale" / "large.py").grown(tmp_path / "study.journal", 12, [30])
    assert row[:2] == ("12", "30")
    assert all(float(figure) > 0.0 for figure in row[2:])


def test_models_of_strangers_are_taken_in_forecast_and_built_and_each_failure_has_its_reason(
    study: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = study("strangers")
    quantized = tmp_path / "quantized.tflite"
    recipe, calibration = autoselect.Recipe(), embedded.calibration
    autoselect.build(recipe, model=embedded.model_path(), calibration=calibration, output=quantized)
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"TFL3")
    models = [
        run.published.Published(name=path.stem, packages=("a package==1",), path=path)
        for path in (embedded.model_path(), quantized, broken)
    ]
    monkeypatch.setattr(run.published, "all_models", lambda *_: (models, {"@a/package": "npm is not installed"}))
    run.main(["--samples", "2", "--recipes", "2", "--cache", str(tmp_path), "--output", str(tmp_path)])
    found = json.loads((tmp_path / "strangers.json").read_text(encoding="utf-8"))
    rows = found["models"]
    ends = {name: (run.outcome(row).split()[0], row["step"]) for name, row in rows.items()}
    refused = ("refused", "intake")
    assert ends == {embedded.model_path().stem: ("built", ""), "quantized": refused, "broken": refused}
    pump = rows[embedded.model_path().stem]
    assert (pump["exact"], pump["kinds"]) == (2, {"integer": 22})
    assert run.reason(rows["quantized"])
    assert set(found["absent"]) == {"@a/package"}
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == run.page(rows, found["absent"])


def test_a_model_whose_process_dies_counts_as_failed_where_it_was(
    study: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = study("strangers")
    absent = run.published.Published(name="absent", packages=("a==1",), path=tmp_path / "absent.tflite")
    monkeypatch.setattr(run.published, "all_models", lambda *_: ([absent], {}))
    with pytest.raises(SystemExit):
        run.main(["--cache", str(tmp_path), "--output", str(tmp_path)])
    row = json.loads((tmp_path / "strangers.json").read_text(encoding="utf-8"))["models"]["absent"]
    assert (run.outcome(row).split()[0], row["step"]) == ("fails", "start")
    assert row["died"].startswith(FileNotFoundError.__name__)


def test_what_a_peer_gives_is_read_with_its_time_once_and_why_it_failed(
    script: Callable[[Path], ModuleType], tmp_path: Path
) -> None:
    compare = script(ROOT / "experiments" / "peers" / "compare.py")
    writes = "import sys, pathlib; pathlib.Path(sys.argv[2]).write_text('{\"samples_run\": 7}'); sum(range(10**6))"
    way = compare.Way(tool="a tool", way="a way", command=[sys.executable, "-c", writes])
    said = compare.performed(way, tmp_path)
    assert said["samples_run"] == 7
    assert said["cpu_seconds"] > 0.0
    fails = dataclasses.replace(way, command=[sys.executable, "-c", "raise SystemExit('absent')"])
    assert compare.performed(fails, tmp_path) == said
    assert compare.performed(fails, tmp_path / "other")["failed"] == "absent"


def test_a_stand_in_leaves_the_nodes_out_that_a_peer_leaves_out(script: Callable[[Path], ModuleType]) -> None:
    compare = script(ROOT / "experiments" / "peers" / "compare.py")
    nodes = [("CONV_2D", "first"), ("RESHAPE", "flat"), ("FULLY_CONNECTED", "last"), ("SOFTMAX", "out")]
    recipe = compare.stand_in("NNCF", nodes, [True, False])
    assert (recipe.denylisted_nodes, recipe.fallback, recipe.repairs) == (frozenset({"last"}), "float", ("bias",))
    with pytest.raises(ValueError, match="argument 2"):
        compare.stand_in("AIMET", nodes, [True])
