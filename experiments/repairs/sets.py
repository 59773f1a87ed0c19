"""Searches open cases with the autoselect that is imported, and compares two of its versions by what they recommend."""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("streaming_denoiser", "real_models", "zoo"))]
import denoiser  # noqa: E402 - found by the path above
import loaders  # noqa: E402
import models  # noqa: E402

import autoselect  # noqa: E402
from autoselect import embedded  # noqa: E402

RESULTS = HERE / "results"
TRIALS = 30
CROPS, RECORDINGS = 16, 1000
"""Samples of a part: of FSRCNN, of DS-CNN."""
ZOO = 24
"""The same of a model of the zoo, calibration included."""
LEVELS = ("penalty", "heldout_drop", "integer_heldout_drop", "size_bytes", "float_ops", "evaluations")

Part = Iterator[Any]


def fsrcnn_search() -> Part:
    return islice(loaders.fsrcnn_evaluation(), 0, 2 * CROPS, 2)


def fsrcnn_heldout() -> Part:
    return islice(loaders.fsrcnn_evaluation(), 1, 2 * CROPS, 2)


def kws_search() -> Part:
    return islice(loaders.kws_evaluation(), 0, 2 * RECORDINGS, 2)


def kws_heldout() -> Part:
    return islice(loaders.kws_evaluation(), 1, 2 * RECORDINGS, 2)


def _of_zoo(name: str, part: int, *, in_lists: bool = False) -> Part:
    for sample in islice(models.MODELS[name].samples(), part * ZOO, (part + 1) * ZOO):
        yield sample if in_lists else sample[0][0]


def _from_zoo(name: str) -> dict[str, Any]:
    model = models.MODELS[name]
    return {
        "model": model.path,
        "calibration": partial(_of_zoo, name, 0, in_lists=True),
        "evaluation": partial(_of_zoo, name, 1),
        "heldout": partial(_of_zoo, name, 2),
        "metric": "sqnr_db",
    }


def _parts(prefix: str) -> dict[str, str]:
    return {
        "calibration": f"{prefix}_calibration",
        "evaluation": f"{prefix}_search",
        "heldout": f"{prefix}_heldout",
    }


_MOBILENET = {
    "model": loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite",
    "metric": "agreement",
    **_parts("loaders:imagenet"),
}
CASES: dict[str, dict[str, Any]] = {
    "pump monitor": {
        "model": embedded.model_path(),
        "calibration": "autoselect.embedded:calibration",
        "evaluation": "autoselect.embedded:search_samples",
        "heldout": "autoselect.embedded:heldout_samples",
        "metric": "accuracy",
    },
    "DS-CNN": {
        "model": loaders.KWS / "kws_dscnn_float.tflite",
        **_parts("sets:kws"),
        "calibration": "loaders:kws_calibration",
        "metric": "accuracy",
    },
    "denoiser": {
        "model": denoiser.MODEL,
        "calibration": "denoiser:few_calibration",
        "evaluator": "denoiser:si_snr_gain",
    },
    "denoiser, one number": {
        "model": denoiser.MODEL,
        "calibration": "denoiser:few_calibration",
        "evaluator": "denoiser:mean_si_snr_gain",
    },
    "MobileNetV1-0.25": _MOBILENET,
    "MobileNetV1-0.25 per tensor": {**_MOBILENET, "per_channel": False},
    "FSRCNN x2": {
        "model": loaders.FSRCNN / "fsrcnn_x2_float.tflite",
        **_parts("sets:fsrcnn"),
        "calibration": "loaders:fsrcnn_calibration",
        "metric": "psnr",
        "max_drop": 0.1,
    },
    **{name: _from_zoo(name) for name in ("face landmarks", "face detection, short range", "speech embedding")},
}


def searched(name: str, seed: int, folder: Path) -> autoselect.Run:
    """One search by default settings; a whole run is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    case = dict(CASES[name])
    model = case.pop("model")
    model = model() if callable(model) else model
    return autoselect.search(model, trials=TRIALS, seed=seed, workers=1, output=folder, **case)


def row_of(run: autoselect.Run) -> dict[str, Any]:
    """What a search recommends, with the paired interval of its held-out drop, and what the search cost."""
    summary, trials = run.summary, run.trials
    front = run.front.set_index("id")
    member, integer = (front.loc[summary["picks"][pick]] for pick in ("recommended", "integer"))
    most = trials["samples"].max()
    recipe = autoselect.Recipe.from_json(trials.set_index("sha256").loc[[member["sha256"]], "recipe"].iloc[0])
    return {
        **{name: member[name] for name in ("penalty", "size_bytes", "float_ops")},
        **{name: member[name] for name in ("heldout_drop", "heldout_drop_low", "heldout_drop_high")},
        "allowed_drop": summary["allowed_drop"],
        "integer_heldout_drop": integer["heldout_drop"],
        "int16_nodes": len(recipe.int16_nodes),
        "recommended_has": ", ".join(recipe.repairs) or "none",
        "trials": len(trials),
        "evaluations": trials["samples"].sum() / most if most else float((~trials["reused"]).sum()),
        "seconds": sum(summary["seconds"].values()),
        "ended_early": summary["ended_early"] or "",
    }


def measure(version: str, seed: int, names: Sequence[str], runs: Path, path: Path) -> None:
    """Search and append a row for each case, unless the file has it."""
    known = _rows(path)
    for name in names:
        place = {"case": name, "version": version, "seed": seed}
        if any(all(str(row[key]) == str(value) for key, value in place.items()) for row in known):
            continue
        row = place | row_of(
            searched(name, seed, runs / version / name.replace(", ", "_").replace(" ", "_") / str(seed))
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, row, lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerow(row)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measured(path: Path) -> pd.DataFrame:
    """The rows of a file; "none" is a word."""
    return pd.read_csv(path, keep_default_na=False, na_values=["", "nan"])


def table_of(rows: pd.DataFrame, before: str, after: str) -> str:
    """A line for each case and seed that both versions have, then the medians of what ``after`` changes by case."""
    paired = rows.set_index(["case", "seed", "version"]).unstack("version")
    paired = paired[paired["penalty"].reindex(columns=[before, after]).notna().all(axis=1)]
    if paired.empty:
        return "Both versions have no search in common.\n"
    order = {name: place for place, name in enumerate(CASES)}
    paired = paired.sort_index(key=lambda values: values.map(order) if values.name == "case" else values)
    usual = ["`integer` drops", "bytes", "float ops", "evaluations"]
    head = ["case", "seed", "penalty", "held-out drop (95 % interval)", *usual]
    lines = [
        [name, str(seed), *(f"{cell(row, before)} → {cell(row, after)}" for cell in _CELLS)]
        for (name, seed), row in paired.iterrows()
    ]
    changes = pd.DataFrame({level: paired[level, after] - paired[level, before] for level in LEVELS})
    medians = changes.groupby("case", sort=False).median()
    changed = [
        [name, *(f"{value:+,.{digits}f}" for value, digits in zip(row, (1, 4, 4, 0, 0, 1), strict=True))]
        for name, *row in medians.itertuples()
    ]
    return f"{_markdown(head, lines)}\n{_markdown(['median change', 'penalty', 'held-out drop', *usual], changed)}"


def _drop(row: pd.Series, version: str) -> str:
    low, high = row["heldout_drop_low", version], row["heldout_drop_high", version]
    interval = "" if pd.isna(low) else f" ({low:.4f} to {high:.4f})"
    return f"{row['heldout_drop', version]:.4f}{interval}"


_CELLS = (
    lambda row, version: f"{row['penalty', version]:.1f}",
    _drop,
    lambda row, version: f"{row['integer_heldout_drop', version]:.4f}",
    lambda row, version: f"{row['size_bytes', version]:,.0f}",
    lambda row, version: f"{row['float_ops', version]:.0f}",
    lambda row, version: f"{row['evaluations', version]:.1f}",
)


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Search with the version that is imported, or compare two that were searched with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", help="What to call the imported version; none compares only.")
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All by default.")
    parser.add_argument("--seed", type=int, action="append", default=[], help="Three seeds by default.")
    parser.add_argument("--runs", type=Path, default=Path("sets-runs"), help="Folder of the runs.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--compare", nargs=2, default=("before", "after"), metavar=("BEFORE", "AFTER"))
    options = parser.parse_args(arguments)
    for seed in options.seed or range(3) if options.version else ():
        measure(options.version, seed, options.case or list(CASES), options.runs, options.results / "sets.csv")
    table = table_of(
        pd.read_csv(options.results / "sets.csv", keep_default_na=False, na_values=["", "nan"]), *options.compare
    )
    (options.results / "sets.md").write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
