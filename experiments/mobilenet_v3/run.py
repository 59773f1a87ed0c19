"""The debugger guide's flow on MobileNetV3-Small, beside a search of as many evaluations."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
INTEGER = ", its all-integer model"
WITHIN = ", at the guide's penalty"
RANKING = "the guide's ranking, step by step"
GUIDED = (GUIDE, "guide: MEAN", "guide: both")
LEADING = 5
MEAN = ("MEAN",)
DECADES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
LOST = 0.03
"""Of accuracy: what the all-integer model is to lose at least."""
ALLOWED = 0.01
"""Of float's accuracy: what a chosen model may lose, as in a search."""
METRICS = ("accuracy", "f1_macro")
SHORT = 4
"""Evaluations of the guide's flow: all integer and three denylists."""
SPACE: dict[str, Any] = {"fallback": "float", "repairs": False, "int16": False, "early_exit": False}
"""What the guide can make: some nodes float, all others in integers of 8 bits."""


def ways(trials: int) -> dict[str, dict[str, Any]]:
    """Searches by name: with as many evaluations as the guide's flow has, with more, and with all means."""
    return {
        "search of the guide's space, short": {**SPACE, "trials": SHORT},
        "search of the guide's space": {**SPACE, "trials": trials},
        "search, default settings": {"trials": trials},
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


def trained(options: argparse.Namespace) -> Any:
    """The model; if it was trained before, with those weights."""
    import train

    path = options.runs / "model.tflite"
    weights = path.with_suffix(".weights.h5")
    if not weights.exists():
        options.runs.mkdir(parents=True, exist_ok=True)
        told = ["--epochs", str(options.epochs), "--images", str(options.images), "--output", str(path)]
        subprocess.run([sys.executable, str(HERE / "train.py"), *told], check=True)
    model = train.make_model()
    model.load_weights(weights)
    return model


def spread(model: Any, folder: Path) -> tuple[pd.DataFrame, Any, Path]:
    """Spreads the channels until all-integer loses enough on the search images: the losses, the model and its file."""
    import train

    kept, rows = folder / "uneven.csv", []
    if not kept.exists():
        (x, y), integer = search_images(), folder / "integer.tflite"
        for decades in DECADES:
            path = folder / f"uneven_{decades}.tflite"
            path.write_bytes(train.converter_of(train.uneven(model, decades)).convert())
            autoselect.build(autoselect.Recipe(), model=path, calibration=loaders.cifar_calibration, output=integer)
            scores = [share(one, x, y) for one in (path, integer)]
            rows.append({"decades": decades, "float": scores[0], "all_int8": scores[1]})
            if scores[0] - scores[1] >= LOST:
                break
        pd.DataFrame(rows).to_csv(kept, index=False, lineterminator="\n")
    lost = pd.read_csv(kept)
    decades = float(lost["decades"].iloc[-1])
    return lost, train.uneven(model, decades), folder / f"uneven_{decades}.tflite"


def share(model: Path, x: np.ndarray, y: np.ndarray) -> float:
    """Of the images that a model gets right."""
    return float(np.mean(side_by_side.answers(model, x, y).y_pred == y))


def guided(model: Any, folder: Path) -> dict[str, Path]:
    """The models of the guide's flow, by TensorFlow's own debugger; ``tensors.csv`` is its table."""
    import tensorflow as tf
    import train

    paths = {name: folder / f"guide_{i}.tflite" for i, name in enumerate(("all int8", *GUIDED))}
    if all(path.exists() for path in paths.values()):
        return paths
    converter = train.converter_of(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = loaders.cifar_calibration
    debugger = tf.lite.experimental.QuantizationDebugger(converter=converter, debug_dataset=loaders.cifar_calibration)
    debugger.run()
    path = folder / "tensors.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        debugger.layer_statistics_dump(file)
    table = pd.read_csv(path)
    table["rmse/scale"] = np.sqrt(table["mean_squared_error"]) / table["scale"]
    table.to_csv(path, index=False, lineterminator="\n")
    nodes, ops = denylist(table), list(MEAN)
    denied = ({"denylisted_nodes": nodes}, {"denylisted_ops": ops}, {"denylisted_nodes": nodes, "denylisted_ops": ops})
    for path, names in zip(paths.values(), ({}, *denied), strict=True):
        # It quantizes anew what it converted and calibrated.
        debugger.options = tf.lite.experimental.QuantizationDebugOptions(**names)
        path.write_bytes(debugger.get_nondebug_quantized_model())
    return paths


def denylist(table: pd.DataFrame) -> list[str]:
    """The guide's: suspects and the first five."""
    suspects = table.loc[table["rmse/scale"] > SUSPICIOUS_RMSE_PER_SCALE, "tensor_name"]
    return list(dict.fromkeys([*suspects, *table["tensor_name"][:LEADING]]))


def recipes_of(table: pd.DataFrame) -> dict[str, autoselect.Recipe]:
    """The same models for autoselect, DRQ, and the repair that is made for uneven channels."""
    nodes, ops = frozenset(denylist(table)), frozenset(MEAN)
    denied = ((nodes, frozenset()), (frozenset(), ops), (nodes, ops))
    return {
        f"{name}, by autoselect": autoselect.Recipe(denylisted_nodes=some, denylisted_ops=types, fallback="float")
        for name, (some, types) in zip(GUIDED, denied, strict=True)
    } | {
        "all DRQ": autoselect.Recipe(denylisted_nodes=frozenset(table["tensor_name"])),
        "all int8, equalization": autoselect.Recipe(repairs=("equalization",)),
    }


def by_ranking(table: pd.DataFrame, model: Path, evaluations: int, folder: Path) -> tuple[pd.DataFrame, Path]:
    """The guide's ranking followed from its first node on, until the model loses as little as a search may.

    Args:
        table: With rmse/scale of each node.
        model: In float.
        evaluations: In how many steps all nodes are left out.
        folder: Keeps what is made.

    Returns:
        Nodes left out and accuracy of each step that was taken, and the last model.
    """
    kept, path = folder / "ranking.csv", folder / "ranking.tflite"
    rows = pd.read_csv(kept).to_dict("records") if kept.exists() else []
    x, y = search_images()
    limit = (1.0 - ALLOWED) * share(model, x, y)
    names = list(table.sort_values("rmse/scale", ascending=False)["tensor_name"])
    counts = np.linspace(len(names) / evaluations, len(names), evaluations).round().astype(int)
    for count in counts[len(rows) :]:
        if rows and rows[-1]["accuracy"] >= limit:
            break
        recipe = autoselect.Recipe(denylisted_nodes=frozenset(names[:count]), fallback="float")
        autoselect.build(recipe, model=model, calibration=loaders.cifar_calibration, output=path)
        rows.append({"left_out": count, "accuracy": share(path, x, y)})
        pd.DataFrame(rows).to_csv(kept, index=False, lineterminator="\n")
    return pd.DataFrame(rows), path


def searches(model: Path, options: argparse.Namespace) -> dict[tuple[str, int], autoselect.Run]:
    """The searches by way and seed; those of one seed are made before those of the next."""
    found = {
        (way, seed): side_by_side.searched(
            model,
            options.runs / f"{model.stem}_{i}_{seed}",
            calibration=loaders.cifar_calibration,
            evaluation=search_images,
            heldout=heldout_images,
            seed=seed,
            **settings,
        )
        for seed in range(options.seeds)
        for i, (way, settings) in enumerate(ways(options.trials).items())
    }
    return {(way, seed): found[way, seed] for way in ways(options.trials) for seed in range(options.seeds)}


def all_integer(runs: Mapping[tuple[str, int], autoselect.Run]) -> Iterator[tuple[str, int, Path]]:
    """What searches pick that must be all-integer, if it is not what they recommend nor plain integers of 8 bits."""
    for (way, seed), run in runs.items():
        picks = run.picks
        if "integer" in picks and picks["integer"] != picks["recommended"] and ways(0)[way].get("int16", True):
            yield f"{way}{INTEGER}", seed, run.model_path("integer")


def within(runs: Mapping[tuple[str, int], autoselect.Run], guide: Path) -> Iterator[tuple[str, int, Path]]:
    """Of searches whose recommended model has a larger penalty than the guide's: the most accurate that has none."""
    limit = autoselect.inspect(guide)["fragmentation"]["penalty"]
    for (way, seed), run in runs.items():
        front = run.front.set_index("id")
        if front.loc[run.picks["recommended"], "penalty"] > limit:
            cheap = front[front["penalty"] <= limit]
            yield f"{way}{WITHIN}", seed, run.model_path(cheap["accuracy"].idxmax())


def measured(model: Any, path: Path, options: argparse.Namespace) -> dict[str, pd.DataFrame]:
    """Rows of models, the debugger's table, the steps along its ranking, and fronts."""
    guides, runs = guided(model, options.runs), searches(path, options)
    table = next(iter(runs.values())).layer_statistics
    with tempfile.TemporaryDirectory() as folder, autoselect.keep_workers(1):
        steps, ranked = by_ranking(table, path, options.trials, options.runs)
        others = side_by_side.built(recipes_of(table), path, loaders.cifar_calibration, Path(folder))
        models = [("float", "", path), *((name, "", one) for name, one in guides.items()), *others]
        models += [(RANKING, "", ranked), *side_by_side.recommended(runs)]
        models += side_by_side.unlike((*all_integer(runs), *within(runs, guides[GUIDE])))
        rows = pd.DataFrame(side_by_side.rows_of(models, *heldout_images(), GUIDE))
    done = {(name, ""): i for i, name in enumerate(guides, start=1)} | {(RANKING, ""): len(steps)}
    done |= {(way, str(seed)): len(run.trials) for (way, seed), run in runs.items()}
    names = rows["model"].str.replace(f"({WITHIN}|{INTEGER})$", "", regex=True)
    places = zip(names, rows["seeds"].str.split(",").str[0], strict=True)
    rows.insert(2, "evaluated", [str(done.get(place, "")) for place in places])
    fronts = [run.front.assign(way=way, seed=seed) for (way, seed), run in runs.items()]
    columns = ["way", "seed", "id", "pick", "penalty", "size_bytes", "float_ops", "accuracy", "heldout_accuracy"]
    columns += ["drop", "drop_bound", "expected_drop_bound"]
    tensors = pd.read_csv(options.runs / "tensors.csv")[["op_name", "tensor_name", "scale", "rmse/scale"]]
    return {
        "mobilenet_v3": rows,
        "tensors": tensors,
        "ranking": steps,
        "fronts": pd.concat(fronts, ignore_index=True)[columns],
    }


def table_of(rows: pd.DataFrame) -> str:
    """The models as Markdown."""
    return f"Held out: {rows['samples'].iloc[0]:,} images\n\n{side_by_side.table_of(rows, 'the guide', METRICS)}"


def draw(rows: pd.DataFrame, fronts: pd.DataFrame, path: Path) -> None:
    """Accuracy on held-out images against the penalty: models that are not searched for, and fronts."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 5), layout="constrained")
    for i, (way, front) in enumerate(fronts.groupby("way", sort=False)):
        axis.plot(front["penalty"], front["heldout_accuracy"], ".", color=f"C{i}", alpha=0.4, label=f"{way}: fronts")
        chosen = front[front["pick"].fillna("").str.contains("recommended")]
        axis.plot(chosen["penalty"], chosen["heldout_accuracy"], "*", color=f"C{i}", markersize=13)
    others = rows[~rows["model"].str.contains("^float$|^search|by autoselect")]
    for mark, row in zip("osD^vXP", others.to_dict("records"), strict=True):
        error = [[row["accuracy"] - row["accuracy_low"]], [row["accuracy_high"] - row["accuracy"]]]
        axis.errorbar(row["penalty"], row["accuracy"], error, fmt=mark, color="black", capsize=2, label=row["model"])
    axis.axhline(rows["accuracy"].iloc[0], color="grey", linestyle=":", label="float")
    axis.set(xlabel="penalty", ylabel="accuracy on held-out images")
    axis.set_title("stars: recommended; bars: 95 % interval", fontsize=9)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, make channels uneven, search, measure, and write tables and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=50_000, help="Training images.")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3, help="Of the searches.")
    parser.add_argument("--runs", type=Path, default=Path("mobilenet-v3-runs"), help="Model and runs; used again.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    model = trained(options)
    with autoselect.keep_workers(1):
        lost, model, path = spread(model, options.runs)
    print(lost.to_string(index=False), flush=True)
    tables = measured(model, path, options)
    rows = tables["mobilenet_v3"]
    options.output.mkdir(parents=True, exist_ok=True)
    for name, found in {**tables, "uneven": lost}.items():
        found.to_csv(options.output / f"{name}.csv", index=False, lineterminator="\n")
    (options.output / "table.md").write_text(table_of(rows), encoding="utf-8")
    draw(rows, tables["fronts"], options.output / "mobilenet_v3.png")
    print(table_of(rows))


if __name__ == "__main__":
    main()
