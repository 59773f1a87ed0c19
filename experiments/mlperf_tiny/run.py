"""Searches the models of MLPerf Tiny; writes what float, published, all-integer, DRQ, the guide's and ours give."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "real_models")]
import side_by_side  # noqa: E402 - found by the path above
import tiny_data  # noqa: E402
from tiny_data import Labelled  # noqa: E402
from tiny_files import AbsentError, benchmark_file  # noqa: E402

import autoselect  # noqa: E402
from autoselect.compilers.opening import compiler_of  # noqa: E402
from autoselect.errors import TrialError  # noqa: E402
from autoselect.scoring.classification import measures  # noqa: E402
from autoselect.scoring.target_file import read_target  # noqa: E402

TARGET = "ethos-u55-128"
RESULTS = HERE / "results"
BUILT = {
    "fiq": "all int8",
    "drq": "all DRQ",
    "heuristic": "the debugger guide's denylist",
}
BASELINES = len(BUILT)
WAYS: dict[str, dict[str, str]] = {"recommended": {}, f"recommended for {TARGET}": {"target": TARGET}}
"""Searches by what their models are called, with their options."""


def _none() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One task.

    Attributes:
        title: In the table.
        quality: Least accuracy that MLPerf Tiny asks for.
        model: Float ``.tflite``.
        published: int8 models of the benchmark, by name.
        calibration: Samples to calibrate on.
        search: Samples that candidates are scored on.
        heldout: Samples that no search sees.
        official: The benchmark's accuracy set, which the quality target is about; without it, that is the held-out set.
        reencoded: The same samples as the other sets have them, where these are JPEG files.
    """

    title: str
    quality: float
    model: Path
    published: Mapping[str, Path] = field(default_factory=dict)
    calibration: Callable[[], Any]
    search: Callable[[], Labelled]
    heldout: Callable[[], Labelled]
    official: Callable[[], Labelled | None] = _none
    reencoded: Callable[[], Labelled | None] = _none


def keyword_spotting(folder: Path) -> Case:
    """DS-CNN on spectrograms."""
    return Case(
        title="keyword spotting, DS-CNN",
        quality=0.90,
        model=_there(tiny_data.loaders.KWS / "kws_dscnn_float.tflite"),
        published={
            "published int8, `aww_ref_model`": benchmark_file(folder, "aww_ref_model.tflite"),
            "published int8, `kws_ref_model`, other weights": benchmark_file(folder, "kws_ref_model.tflite"),
        },
        calibration=tiny_data.kws_calibration,
        search=tiny_data.kws_search,
        heldout=tiny_data.kws_heldout,
        official=lambda: tiny_data.kws_accuracy_set(folder),
    )


def image_classification(folder: Path, title: str, quality: float, name: str, published: str) -> Case:
    """A ResNet on images."""
    for part in ("train", "test"):
        _there(tiny_data.loaders.CIFAR / f"{part}.zip")
    return Case(
        title=title,
        quality=quality,
        model=benchmark_file(folder, f"{name}.tflite"),
        published={f"published int8, `{published}`": benchmark_file(folder, f"{published}.tflite")},
        calibration=tiny_data.cifar_calibration,
        search=tiny_data.cifar_search,
        heldout=tiny_data.cifar_heldout,
        official=lambda: tiny_data.cifar_accuracy_set(folder),
        reencoded=lambda: tiny_data.cifar_reencoded(folder),
    )


def _there(path: Path) -> Path:
    if not path.exists():
        raise AbsentError(f"{path} is missing: set AUTOSELECT_REAL_DATA")
    return path


CASES: dict[str, Callable[[Path], Case]] = {
    "kws": keyword_spotting,
    "image": lambda folder: image_classification(
        folder, "image classification, ResNet-8", 0.85, "pretrainedResnet", "pretrainedResnet_quant"
    ),
    "image2": lambda folder: image_classification(
        folder,
        "image classification 2, the larger ResNet",
        0.91,
        "pretrainedResnet_large_float",
        "pretrainedResnet_large_int8",
    ),
}
"""Tasks by name, made from the folder of the benchmark's files."""


def models_of(
    case: Case, runs: Mapping[tuple[str, int], autoselect.Run], baselines: autoselect.Run, folder: Path
) -> Iterator[tuple[str, str, Path]]:
    """Name of a model, the seeds that gave it, and its file."""
    yield "float", "", case.model
    for name, path in case.published.items():
        yield name, "", path
    recipes = side_by_side.baselines_of(baselines, BUILT)
    yield from side_by_side.built(recipes, case.model, case.calibration, folder)
    yield from side_by_side.recommended(runs)


def rows_of(case: Case, models: Sequence[tuple[str, str, Path]]) -> Iterator[dict[str, Any]]:
    """What each model is worth on held-out samples and on the accuracy set, and what it costs."""
    paths = [path for _, _, path in models]
    placed = autoselect.inspect(paths[0], compare=paths, target=TARGET)["compare"]
    sets = {"official": case.official(), "reencoded": case.reencoded()}
    against = next(iter(case.published), "all int8")
    found = side_by_side.rows_of(models, *case.heldout(), against)
    for path, row, place in zip(paths, found, placed, strict=True):
        row |= {"case": case.title, "quality": case.quality, "against": against}
        for name, labelled in sets.items():
            row |= {f"{name}{end}": value for end, value in _accuracy(path, labelled).items()}
        yield row | compiled(path, place["target"]["refusal"])


def _accuracy(path: Path, labelled: Labelled | None) -> dict[str, float]:
    """With its interval; NaN without samples."""
    if labelled is None:
        return dict.fromkeys(("", "_low", "_high", "_samples"), np.nan)
    found = next(one for one in measures(side_by_side.answers(path, *labelled)) if one["metric"] == "accuracy")
    return {"": found["value"], "_low": found["low"], "_high": found["high"], "_samples": len(labelled[1])}


def compiled(path: Path, refusal: str | None) -> dict[str, Any]:
    """Vela's cycles for the NPU; these with the profile's cost of what is left to the CPU, and of the crossings."""
    if refusal:
        return {"npu_cycles": None, "all_cycles": None, "refusal": refusal}
    try:
        found = compiler_of(read_target(TARGET)).compile(path.read_bytes(), timeout_seconds=120.0)
    except TrialError as exc:
        return {"npu_cycles": None, "all_cycles": None, "refusal": str(exc)}
    return {"npu_cycles": found.cycles, "all_cycles": round(found.cost), "refusal": ""}


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown."""
    lines = []
    for case, found in rows.groupby("case", sort=False):
        first = found.iloc[0]
        with_official, with_reencoded = (not found[name].isna().any() for name in ("official", "reencoded"))
        heads = ["model", "seeds", "held out, %", "over float, points", f"over {first['against']}, points"]
        heads += ["accuracy set, %"] * with_official + ["its images as JPEG, %"] * with_reencoded
        heads += ["target", "bytes", "penalty", "ops not integer", "NPU cycles", "all cycles"]
        counts = f"held out: {first['samples']:,} samples"
        counts += f"; accuracy set: {first['official_samples']:,.0f}" if with_official else ""
        lines += [f"**{case}**; {counts}; quality target: {100 * first['quality']:.0f} %", ""]
        lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for row in found.to_dict("records"):
            cells = [
                row["model"],
                row["seeds"],
                _percent(row, "accuracy"),
                _points(row, "float"),
                _points(row, "other"),
            ]
            cells += [_percent(row, "official")] * with_official + [_percent(row, "reencoded")] * with_reencoded
            cells += ["kept" if row["official" if with_official else "accuracy"] >= row["quality"] else "missed"]
            cells += [f"{row['size_bytes']:,}", f"{row['penalty']:.1f}", str(row["float_ops"])]
            cycles = ("npu_cycles", "all_cycles")
            cells += ["refused"] * 2 if row["refusal"] else [f"{row[name]:,.0f}" for name in cycles]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _percent(row: Mapping[Any, Any], name: str) -> str:
    return f"{100 * row[name]:.1f} ({100 * row[f'{name}_low']:.1f} to {100 * row[f'{name}_high']:.1f})"


def _points(row: Mapping[Any, Any], other: str) -> str:
    value, low, high = (round(100 * row[f"over_{other}{end}"], 1) + 0.0 for end in ("", "_low", "_high"))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"


def measured(case: Case, seeds: Sequence[int], trials: int, runs: Path) -> list[dict[str, Any]]:
    """All rows of a case."""
    options = {"calibration": case.calibration, "evaluation": case.search, "heldout": case.heldout}
    options |= {"io_type": "int8", "int16": False, "trials": trials}
    found = {
        (way, seed): side_by_side.searched(
            case.model, runs / way.replace(" ", "_") / f"seed_{seed}", seed=seed, **options, **more
        )
        for way, more in WAYS.items()
        for seed in seeds
    }
    options |= {"trials": BASELINES, "early_exit": False, "repairs": False}
    baselines = side_by_side.searched(case.model, runs / "baselines", seed=0, **options)
    with tempfile.TemporaryDirectory() as folder:
        return list(rows_of(case, list(models_of(case, found, baselines, Path(folder)))))


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models", type=Path, default=tiny_data.loaders.ROOT / "mlperf_tiny", help="Folder of the files."
    )
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("mlperf-tiny-runs"), help="Folder of the runs.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = []
    for name, make in CASES.items():
        try:
            case = make(options.models)
        except AbsentError as exc:
            print(f"{name} is skipped: {exc}")
            continue
        with autoselect.keep_workers(1):
            rows += measured(case, range(options.seeds), options.trials, options.runs / name)
    if not rows:
        raise SystemExit("No task has its files, so there is nothing to write.")
    options.output.mkdir(parents=True, exist_ok=True)
    found = pd.DataFrame(rows)
    found.to_csv(options.output / "mlperf_tiny.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(found), encoding="utf-8")
    print(table_of(found))


if __name__ == "__main__":
    main()
