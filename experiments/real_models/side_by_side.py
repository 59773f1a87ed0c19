"""Models of one classifier side by side: what each is worth on the same held-out samples, and what it costs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import autoselect
from autoselect.scoring.class_metrics import Accuracy
from autoselect.scoring.classification import Answers, measures
from autoselect.scoring.paired import paired_drop
from autoselect.tflite.runner import Runner

Models = Sequence[tuple[str, str, Path]]
"""Name of a model, the seeds that gave it, and its file."""
NAMES = {
    "accuracy": "accuracy",
    "precision_macro": "precision",
    "recall_macro": "recall",
    "f1_macro": "F1",
    "balanced_accuracy": "balanced accuracy",
    "cohen_kappa": "kappa",
}
"""Of what ``measures`` gives, in tables."""


def searched(model: Path, folder: Path, **options: Any) -> autoselect.Run:
    """One search by accuracy; a whole folder of an earlier one is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return autoselect.search(model, metric="accuracy", workers=1, output=folder, **options)


def baselines_of(run: autoselect.Run, names: Mapping[str, str]) -> dict[str, autoselect.Recipe]:
    """Recipes of a search's baselines, by the names that they are given."""
    recipes = run.trials.drop_duplicates("origin").set_index("origin")["recipe"]
    return {name: autoselect.Recipe.from_json(str(recipes[f"baseline:{key}"])) for key, name in names.items()}


def built(
    recipes: Mapping[str, autoselect.Recipe], model: Path, calibration: Callable[[], Any], folder: Path
) -> Iterator[tuple[str, str, Path]]:
    """The models of recipes."""
    for i, (name, recipe) in enumerate(recipes.items()):
        path = folder / f"{i}.tflite"
        autoselect.build(recipe, model=model, calibration=calibration, output=path)
        yield name, "", path


def recommended(runs: Mapping[tuple[str, int], autoselect.Run]) -> Iterator[tuple[str, str, Path]]:
    """What searches recommend, by the name of the way and the seed."""
    return unlike((way, seed, run.model_path("recommended")) for (way, seed), run in runs.items())


def unlike(models: Iterable[tuple[str, int, Path]]) -> Iterator[tuple[str, str, Path]]:
    """Models of ways and seeds; equal ones of one way once, with all their seeds."""
    found: dict[tuple[str, bytes], list[tuple[int, Path]]] = {}
    for way, seed, path in models:
        found.setdefault((way, path.read_bytes()), []).append((seed, path))
    for (way, _), same in found.items():
        yield way, ", ".join(str(seed) for seed, _ in same), same[0][1]


def answers(model: Path, x: np.ndarray, y: np.ndarray) -> Answers:
    """What a model answers, sample by sample."""
    runner = Runner(model.read_bytes())
    found = np.array([int(next(iter(runner(sample[None]).values())).argmax()) for sample in x])
    return Answers(y_true=y, y_pred=found, probability=np.ones(len(y)))


def rows_of(
    models: Models, x: np.ndarray, y: np.ndarray, against: str, subjects: np.ndarray | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each model: its figures, what it gains over the first and over another, and what it costs.

    Args:
        models: The float model first.
        x: Held-out samples.
        y: Their labels.
        against: Name of the other.
        subjects: Of the samples; with them, what is gained over the other on the worst and on the best subject.
    """
    paths = [path for _, _, path in models]
    found = [answers(path, x, y) for path in paths]
    hits = [(one.y_pred == y).astype(np.float64)[:, None] for one in found]
    other = hits[[name for name, _, _ in models].index(against)]
    costs = autoselect.inspect(paths[0], compare=paths)["compare"]
    for (name, seeds, path), one, hit, cost in zip(models, found, hits, costs, strict=True):
        row: dict[str, Any] = {"model": name, "seeds": seeds, "samples": len(y)}
        for measure in measures(one):
            ends = {"value": "", "low": "_low", "high": "_high"}
            row |= {f"{measure['metric']}{end}": measure[key] for key, end in ends.items()}
        for key, reference in (("float", hits[0]), ("other", other)):
            drop = paired_drop(Accuracy(), hit, reference)
            row |= {f"over_{key}": -drop.drop, f"over_{key}_low": -drop.high, f"over_{key}_high": -drop.low}
        if subjects is not None:
            each = [float((hit - other)[subjects == subject].mean()) for subject in np.unique(subjects)]
            row |= {"worst_subject": min(each), "best_subject": max(each)}
        cut = cost["fragmentation"]
        yield row | {"size_bytes": path.stat().st_size, "penalty": cut["penalty"], "float_ops": cut["float_ops"]}


def table_of(rows: pd.DataFrame, against: str, metrics: Sequence[str] = NAMES) -> str:
    """The models as Markdown, with some of the figures; accuracy comes first."""
    by_subject = "worst_subject" in rows
    counted = {"evaluated": "evaluations"} if "evaluated" in rows else {}
    heads = ["model", "seeds", *counted.values(), *(NAMES[name] for name in metrics)]
    heads += ["over float, points", f"over {against}, points"]
    heads += ["by subject"] * by_subject + ["bytes", "penalty", "ops not integer"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows.to_dict("records"):
        first, *rest = metrics
        cells = [row[name] for name in ("model", "seeds", *counted)]
        cells += [_share(row, first), *(f"{row[name]:.3f}" for name in rest)]
        cells += [_points(row, "float"), _points(row, "other")]
        if by_subject:
            cells += [" to ".join(f"{100 * row[f'{which}_subject']:+.1f}" for which in ("worst", "best"))]
        cells += [f"{row['size_bytes']:,}", f"{row['penalty']:.1f}", str(row["float_ops"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _share(row: Mapping[Any, Any], name: str) -> str:
    return f"{row[name]:.3f} ({row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f})"


def _points(row: Mapping[Any, Any], key: str) -> str:
    value, low, high = (round(100 * row[f"over_{key}{end}"], 1) + 0.0 for end in ("", "_low", "_high"))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
