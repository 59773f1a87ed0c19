"""Searches the models of MLPerf Tiny and writes what float, all-integer, DRQ, the guide's and our model are worth."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tiny_data

import autoselect
from autoselect.errors import TrialError
from autoselect.scoring.target_file import read_target
from autoselect.scoring.vela import compile_model

TARGET = "ethos-u55-128"
RESULTS = Path(__file__).resolve().parent / "results"
BUILT = {
    "fiq": "all int8",
    "drq": "all DRQ",
    "heuristic": "the debugger guide's denylist",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task.

    Attributes:
        title: In the table.
        quality: Least accuracy that MLPerf Tiny asks for.
        model: Float ``.tflite``.
        calibration: Samples to calibrate on.
        search: Samples that candidates are scored on.
        heldout: Samples that no search sees.
        official: All samples of the task's test set, which the quality target is about; without them it is compared
            with the held-out score.
    """

    title: str
    quality: float
    model: Path
    calibration: Callable[[], Any]
    search: Callable[[], Any]
    heldout: Callable[[], Any]
    official: Callable[[], Any] | None = None


def all_cases(resnet: Path | None) -> dict[str, Case]:
    """The tasks by name; image classification only if its model was trained."""
    kws = Case(
        title="keyword spotting, DS-CNN",
        quality=0.90,
        model=tiny_data.loaders.KWS / "kws_dscnn_float.tflite",
        calibration=tiny_data.kws_calibration,
        search=tiny_data.kws_search,
        heldout=tiny_data.kws_heldout,
        official=tiny_data.kws_all,
    )
    if resnet is None:
        return {"kws": kws}
    image = Case(
        title="image classification, ResNet-8",
        quality=0.85,
        model=resnet,
        calibration=tiny_data.cifar_calibration,
        search=tiny_data.cifar_search,
        heldout=tiny_data.cifar_heldout,
    )
    return {"kws": kws, "image": image}


def searched(case: Case, seed: int, trials: int, folder: Path) -> autoselect.Run:
    """One search with int8 inputs and outputs; a whole folder of an earlier one is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return autoselect.search(
        case.model,
        calibration=case.calibration,
        evaluation=case.search,
        heldout=case.heldout,
        metric="accuracy",
        io_type="int8",
        int16=False,
        trials=trials,
        seed=seed,
        output=folder,
    )


def models_of(case: Case, runs: Mapping[int, autoselect.Run], folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Name of a model, the seeds that gave it, and its file."""
    yield "float", "", case.model
    recipes = next(iter(runs.values())).trials.drop_duplicates("origin").set_index("origin")["recipe"]
    for origin, name in BUILT.items():
        path = folder / f"{origin}.tflite"
        recipe = autoselect.Recipe.from_json(str(recipes[f"baseline:{origin}"]))
        autoselect.build(recipe, model=case.model, calibration=case.calibration, output=path)
        yield name, "", path
    seeds: dict[str, list[int]] = {}
    for seed, run in runs.items():
        seeds.setdefault(run.picks["recommended"], []).append(seed)
    for chosen in seeds.values():
        yield "recommended", ", ".join(map(str, chosen)), runs[chosen[0]].model_path("recommended")


def rows_of(case: Case, runs: Mapping[int, autoselect.Run], folder: Path) -> Iterator[dict[str, Any]]:
    """What each model is worth on held-out samples and on the official ones, and what it costs."""
    models = list(models_of(case, runs, folder))
    first, *others = (path for _, _, path in models)
    scored = autoselect.inspect(first, compare=others, evaluation=case.heldout)
    placed = autoselect.inspect(first, compare=others, evaluation=case.official, target=TARGET)
    found = zip(models, (scored, *scored.compare), (placed, *placed.compare), strict=True)
    for (name, seeds, path), one, there in found:
        score, official = one["score"], there["score"]
        yield {
            "case": case.title,
            "model": name,
            "seeds": seeds,
            "heldout": score["value"],
            "low": score["low"],
            "high": score["high"],
            "samples": score["samples"],
            "official": official["value"] if official else None,
            "reached": (official or score)["value"] >= case.quality,
            "size_bytes": path.stat().st_size,
            "penalty": one["fragmentation"]["penalty"],
            "float_ops": one["fragmentation"]["float_ops"],
            **compiled(path, there["target"]["refusal"]),
        }


def compiled(path: Path, refusal: str | None) -> dict[str, Any]:
    """Vela's cycles for the NPU; these with the profile's cost of what is left to the CPU, and of the crossings."""
    if refusal:
        return {"npu_cycles": None, "all_cycles": None, "refusal": refusal}
    try:
        found = compile_model(path.read_bytes(), read_target(TARGET), timeout_seconds=120.0)
    except TrialError as exc:
        return {"npu_cycles": None, "all_cycles": None, "refusal": str(exc)}
    return {"npu_cycles": found.cycles, "all_cycles": round(found.cost), "refusal": ""}


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown."""
    scores = "model | seeds | held out, % | all test samples, % | quality target"
    figures = "bytes | penalty | float ops | NPU cycles | all cycles"
    lines = []
    for case, found in rows.groupby("case", sort=False):
        lines += [
            f"**{case}**; held out: {found['samples'].iloc[0]:,} samples",
            "",
            f"| {scores} | {figures} |",
            "|---" * 10 + "|",
        ]
        for row in found.itertuples():
            score = f"{100 * row.heldout:.1f} ({100 * row.low:.1f} to {100 * row.high:.1f})"
            official = "" if pd.isna(row.official) else f"{100 * row.official:.2f}"
            reached = "kept" if row.reached else "missed"
            costs = f"{row.size_bytes:,} | {row.penalty:.1f} | {row.float_ops}"
            cycles = "refused | refused" if row.refusal else f"{row.npu_cycles:,.0f} | {row.all_cycles:,.0f}"
            lines.append(f"| {row.model} | {row.seeds} | {score} | {official} | {reached} | {costs} | {cycles} |")
        lines.append("")
    return "\n".join(lines)


def measured(case: Case, seeds: Sequence[int], trials: int, runs: Path) -> list[dict[str, Any]]:
    """All rows of a case."""
    found = {seed: searched(case, seed, trials, runs / f"seed_{seed}") for seed in seeds}
    with tempfile.TemporaryDirectory() as folder, autoselect.keep_workers(1):
        return list(rows_of(case, found, Path(folder)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resnet", type=Path, help="ResNet-8 made by train.py; without it there is no image case.")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("mlperf-tiny-runs"), help="Folder of the runs.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = pd.DataFrame(
        row
        for name, case in all_cases(options.resnet).items()
        for row in measured(case, range(options.seeds), options.trials, options.runs / name)
    )
    options.output.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output / "mlperf_tiny.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(rows), encoding="utf-8")
    print(table_of(rows))


if __name__ == "__main__":
    main()
