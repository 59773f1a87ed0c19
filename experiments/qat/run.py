"""Compares quantization-aware training with quantizing after training and with searches, and searches what it made."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from qat_cases import CASES, Case  # noqa: E402 - found by the path above

import autoselect  # noqa: E402
from autoselect.runs.files import write_json  # noqa: E402
from autoselect.scoring.metrics import make_metric  # noqa: E402
from autoselect.scoring.paired import paired_drop  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

RESULTS = HERE / "results"
INT8, FLOAT = "all int8 after training", "float"
RECOMMENDED = "search, 8 bits: recommended"
AGAINST = {"float": FLOAT, "int8": INT8, "search": RECOMMENDED}
"""The models that each row is compared with, sample by sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Models made in one way.

    Attributes:
        name: In the table.
        files: One for each seed; one alone, if no seed matters.
        seconds: Processor seconds that each took beside the float net.
    """

    name: str
    files: list[Path]
    seconds: list[float] = field(default_factory=list)


def train(name: str, seeds: int, folder: Path) -> None:
    """Have the nets trained that are not there yet, by a process in which tfmot's Keras 2 is at home."""
    if not all((folder / f"seconds_{seed}.json").exists() for seed in range(seeds)):
        command = [sys.executable, str(HERE / "tune.py"), "--case", name, "--seeds", str(seeds)]
        subprocess.run([*command, "--folder", str(folder)], check=True)


def searched(model: Path, case: Case, trials: int, folder: Path, **options: Any) -> autoselect.Run:
    """One search and the processor seconds of all its processes; a whole folder of an earlier one is used again."""
    if (folder / "processor.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    start = processor_seconds()
    run = autoselect.search(
        model,
        calibration=case.calibration,
        evaluation=case.search,
        heldout=case.heldout,
        metric="accuracy",
        trials=trials,
        workers=1,
        output=folder,
        **options,
    )
    write_json(folder / "processor.json", processor_seconds() - start)
    return run


def processor_seconds() -> float:
    """Of this process and of those that it has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def recommended(name: str, runs: Sequence[autoselect.Run], before: Sequence[float] = ()) -> Made:
    """What searches recommend; with the seconds of the training before each, if there was one."""
    spent = [float(json.loads((run.directory / "processor.json").read_text("utf-8"))) for run in runs]
    extra = before or [0.0] * len(runs)
    total = [own + first for own, first in zip(spent, extra, strict=True)]
    return Made(name=name, files=[run.model_path("recommended") for run in runs], seconds=total)


def models_of(case: Case, trained: Path, runs: Path, seeds: int, trials: int, folder: Path) -> Iterator[Made]:
    """All models of a case; the searches run here."""
    numbers = range(seeds)
    kept = [json.loads((trained / f"seconds_{seed}.json").read_text("utf-8")) for seed in numbers]
    seconds = {key: [float(one[key]) for one in kept] for key in ("further", "qat")}
    files = {key: [trained / f"{key}_{seed}.tflite" for seed in numbers] for key in ("further", "twin", "qat")}
    partly = [trained / f"qat_partly_{seed}.tflite" for seed in numbers]
    base = trained / "float.tflite"
    plain = {
        8: [searched(base, case, trials, runs / f"int8_{seed}", seed=seed, int16=False) for seed in numbers],
        16: [searched(base, case, trials, runs / f"int16_{seed}", seed=seed, int16=True) for seed in numbers],
    }
    pairs = list(zip(numbers, files["twin"], files["qat"], strict=True))
    after = [searched(twin, case, trials, runs / f"qat_{i}", seed=i, integer=qat) for i, twin, qat in pairs]
    yield Made(name=FLOAT, files=[base])
    yield Made(name=INT8, files=[_built(case, base, folder / "int8.tflite")])
    yield Made(name="float, trained further", files=files["further"], seconds=seconds["further"])
    further = [_built(case, path, folder / f"further_{seed}.tflite") for seed, path in enumerate(files["further"])]
    yield Made(name="trained further, then int8", files=further, seconds=seconds["further"])
    yield Made(name="tfmot, without calibration", files=partly, seconds=seconds["qat"])
    yield Made(name="tfmot, all int8", files=files["qat"], seconds=seconds["qat"])
    taken = [_built(case, twin, folder / f"taken_{i}.tflite", integer=qat) for i, twin, qat in pairs]
    yield Made(name="tfmot, all int8, as the search takes it in", files=taken, seconds=seconds["qat"])
    yield Made(name="tfmot's weights in float", files=files["twin"], seconds=seconds["qat"])
    yield recommended(RECOMMENDED, plain[8])
    yield recommended("search, 8 and 16 bits: recommended", plain[16])
    yield recommended("tfmot, then search: recommended", after, seconds["qat"])


def _built(case: Case, model: Path, output: Path, integer: Path | None = None) -> Path:
    """All int8, per channel, without repairs."""
    options = {} if integer is None else {"integer": integer}
    autoselect.build(autoselect.Recipe(), model=model, calibration=case.calibration, output=output, **options)
    return output


def hits(path: Path, case: Case) -> np.ndarray:
    """For each held-out sample whether a model is right."""
    runner = Runner(path.read_bytes())
    inputs, labels = case.heldout()
    answers = [int(next(iter(runner(x[None]).values())).argmax()) for x in inputs]
    return (np.array(answers) == labels).astype(np.float64)


def rows_of(case: Case, made: Sequence[Made]) -> Iterator[dict[str, Any]]:
    """One row for each way: mean of the seeds, and the mean's difference from the models of ``AGAINST``, in points."""
    scores = {one.name: np.stack([hits(path, case) for path in one.files]) for one in made}
    metric = make_metric("accuracy")
    for one in made:
        found = scores[one.name]
        first, *others = (autoselect.inspect(path) for path in one.files)
        costs = [row["fragmentation"] for row in (first, *others)]
        row: dict[str, Any] = {
            "case": case.title,
            "model": one.name,
            "samples": found.shape[1],
            "heldout": 100 * found.mean(),
            "each": ", ".join(f"{100 * value:.1f}" for value in found.mean(axis=1)),
            "size_bytes": int(np.median([path.stat().st_size for path in one.files])),
            "float_ops": ", ".join(dict.fromkeys(str(cost["float_ops"]) for cost in costs)),
            "penalty": float(np.median([cost["penalty"] for cost in costs])),
            "seconds": float(np.mean(one.seconds)) if one.seconds else np.nan,
        }
        for key, name in AGAINST.items():
            ours, theirs = (values.mean(axis=0)[:, None] for values in (found, scores[name]))
            gap = paired_drop(metric, ours, theirs)
            is_same = name == one.name
            points = (np.nan,) * 3 if is_same else (-100 * gap.drop, -100 * gap.high, -100 * gap.low)
            row |= dict(zip((f"{key}_gain", f"{key}_low", f"{key}_high"), points, strict=True))
        yield row


def table_of(rows: pd.DataFrame) -> str:
    """As Markdown, a table for each case."""
    lines = []
    for case, part in rows.groupby("case", sort=False):
        gains = " | ".join(f"against {name}, points" for name in AGAINST.values())
        lines += [
            f"**{case}**; held out: {part['samples'].iloc[0]:,} samples",
            "",
            f"| model | held out, % | each seed | {gains} | bytes | penalty | float ops | processor s |",
            "|---" * 10 + "|",
        ]
        for row in part.to_dict("records"):
            compared = [
                ""
                if pd.isna(row[f"{key}_gain"])
                else f"{row[f'{key}_gain']:+.2f} ({row[f'{key}_low']:+.2f} to {row[f'{key}_high']:+.2f})"
                for key in AGAINST
            ]
            spent = "" if pd.isna(row["seconds"]) else f"{row['seconds']:.0f}"
            costs = f"{row['size_bytes']:,} | {row['penalty']:.1f} | {row['float_ops']} | {spent}"
            lines.append(
                f"| {row['model']} | {row['heldout']:.2f} | {row['each']} | {' | '.join(compared)} | {costs} |"
            )
        lines.append("")
    return "\n".join(lines)


def draw(rows: pd.DataFrame, path: Path) -> None:
    """What each way gains over int8 after training, with its interval, one case beside the other."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    cases = list(rows.groupby("case", sort=False))
    figure, axes = plt.subplots(1, len(cases), figsize=(5 * len(cases), 3.4), squeeze=False, layout="constrained")
    for axis, (case, every) in zip(axes[0], cases, strict=True):
        part = every[every["model"] != INT8].iloc[::-1]
        ends = np.stack([part["int8_gain"] - part["int8_low"], part["int8_high"] - part["int8_gain"]])
        axis.errorbar(part["int8_gain"], part["model"], xerr=ends, fmt="o", capsize=3)
        axis.axvline(0.0, color="grey", linewidth=0.8)
        axis.set(title=case, xlabel=f"points over {INT8}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, search, score, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All by default.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--runs", type=Path, default=Path("qat-runs"), help="Trained nets and searches, used again.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    chosen = options.case or list(CASES)
    for name in chosen:
        folder = options.runs / name
        if not (folder / "rows.csv").exists():
            train(name, options.seeds, folder / "trained")
            with tempfile.TemporaryDirectory() as scratch:
                made = models_of(CASES[name], folder / "trained", folder, options.seeds, options.trials, Path(scratch))
                rows = pd.DataFrame(rows_of(CASES[name], list(made)))
            rows.to_csv(folder / "rows.csv", index=False, lineterminator="\n")
    found = pd.concat(pd.read_csv(options.runs / name / "rows.csv") for name in chosen)
    found.to_csv(options.output / "qat.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(found), encoding="utf-8")
    draw(found, options.output / "qat.png")
    print(table_of(found))


if __name__ == "__main__":
    main()
