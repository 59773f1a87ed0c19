"""The debugger guide's flow on MobileNetV3-Small, beside a search of as many evaluations."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders
import side_by_side

import autoselect
from autoselect.domain.layers import SUSPICIOUS_RMSE_PER_SCALE

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
GUIDE = "guide: rmse/scale > 0.7 and first five"
"""What all models are compared with."""
LEADING = 5
DECADES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
LOST = 0.03
"""Of accuracy: what the all-integer model is to lose at least."""
METRICS = ("accuracy", "f1_macro")
FLOAT: dict[str, Any] = {"fallback": "float", "repairs": False, "int16": False, "early_exit": False}
"""What the guide can make: some nodes float, all others in integers of 8 bits."""


def ways(trials: int) -> dict[str, dict[str, Any]]:
    """Searches by name: with as many evaluations as the guide's flow has, with more, by its ranking, with all means."""
    return {
        "search, 4 evaluations": {**FLOAT, "trials": 4},
        f"search, {trials} evaluations": {**FLOAT, "trials": trials},
        f"prefixes of the ranking, {trials} evaluations": {**FLOAT, "trials": trials, "sampler": "prefix"},
        f"search with all means, {trials} evaluations": {"trials": trials},
    }


def search_images() -> tuple[np.ndarray, np.ndarray]:
    """1,000 test images, 100 of each class."""
    return _stacked(range(0, 10_000, 10))


def heldout_images() -> tuple[np.ndarray, np.ndarray]:
    """2,000 others, 200 of each class."""
    return _stacked([i for i in range(10_000) if i % 10 in (3, 7)])


def _stacked(indices: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = zip(*loaders._cifar("test", indices), strict=True)
    return np.stack(images), np.array(labels)


def trained(options: argparse.Namespace) -> Mapping[float, Path]:
    """The float model by how uneven its channels are; what was trained before is used again."""
    folder = options.runs
    weights, plain = folder / "model.weights.h5", folder / "model.tflite"
    paths = {decades: folder / f"uneven_{decades}.tflite" for decades in DECADES}
    if not weights.exists():
        folder.mkdir(parents=True, exist_ok=True)
        told = ["--epochs", str(options.epochs), "--images", str(options.images), "--output", str(plain)]
        subprocess.run([sys.executable, str(HERE / "train.py"), *told], check=True)
    if not all(path.exists() for path in paths.values()):
        sys.path.insert(0, str(HERE))
        import train

        model = train.make_model()
        model.load_weights(weights)
        for decades, path in paths.items():
            path.write_bytes(train.converted(train.uneven(model, decades)))
    return paths


def unevenness(models: Mapping[float, Path], folder: Path) -> pd.DataFrame:
    """What float and all-integer score on the search images, the more uneven the channels, until enough is lost."""
    x, y = search_images()
    rows: list[dict[str, float]] = []
    for decades, model in models.items():
        path = folder / "integer.tflite"
        autoselect.build(autoselect.Recipe(), model=model, calibration=loaders.cifar_calibration, output=path)
        scores = [float(np.mean(side_by_side.answers(one, x, y).y_pred == y)) for one in (model, path)]
        rows.append({"decades": decades, "float": scores[0], "all_int8": scores[1]})
        if scores[0] - scores[1] >= LOST:
            break
    return pd.DataFrame(rows)


def recipes_of(run: autoselect.Run) -> dict[str, autoselect.Recipe]:
    """The models of the guide's flow, and DRQ."""
    table = run.layer_statistics
    suspects = table.loc[table["rmse/scale"] > SUSPICIOUS_RMSE_PER_SCALE, "tensor_name"]
    nodes = frozenset(suspects) | frozenset(table["tensor_name"][:LEADING])
    mean = frozenset({"MEAN"})
    return {
        "all int8": autoselect.Recipe(),
        "all DRQ": autoselect.Recipe(denylisted_nodes=frozenset(table["tensor_name"])),
        GUIDE: autoselect.Recipe(denylisted_nodes=nodes, fallback="float"),
        "guide: MEAN": autoselect.Recipe(denylisted_ops=mean, fallback="float"),
        "guide: both": autoselect.Recipe(denylisted_nodes=nodes, denylisted_ops=mean, fallback="float"),
    }


def measured(model: Path, options: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of models, and the debugger's table."""
    x, y = heldout_images()
    runs = {
        (way, seed): side_by_side.searched(
            model,
            options.runs / f"{model.stem}_{i}_{seed}",
            calibration=loaders.cifar_calibration,
            evaluation=search_images,
            heldout=(x, y),
            seed=seed,
            **settings,
        )
        for i, (way, settings) in enumerate(ways(options.trials).items())
        for seed in range(options.seeds)
    }
    run = next(iter(runs.values()))
    with tempfile.TemporaryDirectory() as temporary, autoselect.keep_workers(1):
        others = side_by_side.built(recipes_of(run), model, loaders.cifar_calibration, Path(temporary))
        models = [("float", "", model), *others, *side_by_side.recommended(runs)]
        rows = pd.DataFrame(side_by_side.rows_of(models, x, y, GUIDE))
    return rows, run.layer_statistics[["tensor_name", "op_name", "range", "rmse/scale"]]


def table_of(rows: pd.DataFrame) -> str:
    """The models as Markdown."""
    return f"Held out: {rows['samples'].iloc[0]:,} images\n\n{side_by_side.table_of(rows, 'the guide', METRICS)}"


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Accuracy against ops that are not integer."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for name, part in rows[rows["model"] != "float"].groupby("model", sort=False):
        error = np.abs(part[["accuracy_low", "accuracy_high"]].to_numpy().T - part["accuracy"].to_numpy())
        axis.errorbar(part["float_ops"], part["accuracy"], yerr=error, fmt="o", capsize=2, label=name)
    axis.axhline(rows["accuracy"].iloc[0], color="grey", linestyle=":", label="float")
    axis.set(xlabel="ops not integer", ylabel="accuracy on held-out images, 95 % interval")
    axis.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, make channels uneven, search, measure, and write tables and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=50_000, help="Training images.")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("mobilenet-v3-runs"), help="Models and runs; used again.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    models = trained(options)
    with tempfile.TemporaryDirectory() as temporary, autoselect.keep_workers(1):
        lost = unevenness(models, Path(temporary))
    rows, tensors = measured(models[lost["decades"].iloc[-1]], options)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, found in (("mobilenet_v3", rows), ("uneven", lost), ("tensors", tensors)):
        found.to_csv(options.output / f"{name}.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(rows), encoding="utf-8")
    draw(rows, options.output / "mobilenet_v3.png")
    print(lost.to_string(index=False), table_of(rows), sep="\n\n")


if __name__ == "__main__":
    main()
