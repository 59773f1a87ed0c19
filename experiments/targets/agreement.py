"""How often a profile's prediction is Vela's verdict, on random recipes of real models.

Run from the repository: ``python experiments/targets/agreement.py mobilenet_v1 mobilenet_v3=PATH deepconvlstm=PATH``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

from autoselect.api.source import load_source
from autoselect.cases import calibrate
from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.compilers.opening import compiler_of
from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.layers import Node
from autoselect.domain.recipe import Fallback, Recipe
from autoselect.domain.targets import Target
from autoselect.domain.verdicts import judge
from autoselect.errors import TrialError
from autoselect.isolation.pool import WorkerPool
from autoselect.quantize.building.blueprint import Blueprint
from autoselect.quantize.building.build import Builder
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.scoring.target_file import read_target

TARGET = "ethos-u55-128"
COUNT = 62
RESULTS = Path(__file__).parent / "results"
CASES = {
    "mobilenet_v1": (loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite", "loaders:imagenet_calibration"),
    "mobilenet_v3": (None, "loaders:cifar_calibration"),
    "deepconvlstm": (None, "loaders:har_calibration"),
}


@dataclass(frozen=True)
class Row:
    """One recipe; costs in NPU cycles, NaN where it is refused."""

    model: str
    number: int
    denied: int
    fallback: str
    predicted: str
    predicted_segments: int
    predicted_cost: float
    vela: str
    segments: int
    cost: float
    reason: str


def random_recipes(nodes: Sequence[Node], target: Target, count: int, rng: np.random.Generator) -> list[Recipe]:
    """All-integer, then random shares of the nodes; in two of three recipes the ops that Vela wants in integers stay.

    Without that hardly any recipe of a model with many such ops would compile.
    """
    must = {op for rule in target.rules if rule.by == "compiler" for op in rule.ops or ()}
    names = [(node.name, node.op_type) for node in nodes]
    recipes = []
    for number in range(count):
        share = 0.0 if number == 0 else rng.choice([0.05, 0.15, 0.3, 0.6])
        denied = {name for name, kind in names if rng.random() < share and (number % 3 == 0 or kind not in must)}
        fallback: Fallback = "drq" if rng.random() < 0.5 else "float"
        recipes.append(Recipe(denylisted_nodes=frozenset(denied), fallback=fallback, io_type="int8"))
    return recipes


def planned_graph(blueprint: Blueprint, nodes: Sequence[Node], recipe: Recipe) -> Graph:
    """The graph of a recipe without building it."""
    denied = [i for i, node in enumerate(nodes) if node.name in recipe.denylisted_nodes]
    return blueprint.plan(denied, recipe.fallback).graph


def measure(name: str, model: Path, calibration: str, target: Target, count: int) -> list[Row]:
    """Plan, build and compile random recipes of a model."""
    with tempfile.TemporaryDirectory() as folder:
        files = CaseFiles(root=Path(folder))
        with WorkerPool(1, log=files.root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            loaded = load_source(model)
            prepared = calibrate.start_calibration(
                Ingredients(model=loaded.model, calibration=calibration),
                files,
                pool,
                cache_directory(),
                debug_samples=0,
                per_channel=True,
            ).result()
    nodes = prepared.layers.nodes
    builder, rows = Builder(prepared.calibrated, nodes), []
    blueprint = builder.blueprint(Recipe(io_type="int8"))
    for number, recipe in enumerate(random_recipes(nodes, target, count, np.random.default_rng(0))):
        graph = planned_graph(blueprint, nodes, recipe)
        rows.append(_row(name, number, recipe, graph, builder.build(recipe).content, target))
    return rows


def _row(name: str, number: int, recipe: Recipe, graph: Graph, content: bytes, target: Target) -> Row:
    found = judge(graph, target)
    refused = found.refused("compiler")
    vela, segments, cost, reason = "compiles", 0, float("nan"), ""
    try:
        compiled = compiler_of(target).compile(content, timeout_seconds=120.0)
        segments, cost = compiled.segments, compiled.cost
    except TrialError as exc:
        vela, reason = "refuses", str(exc)
    return Row(
        model=name,
        number=number,
        denied=sum(op.kind in (OpKind.FLOAT, OpKind.HYBRID) for op in graph.ops),
        fallback=recipe.fallback,
        predicted="refuses" if refused else "compiles",
        predicted_segments=found.segments,
        predicted_cost=found.cost,
        vela=vela,
        segments=segments,
        cost=cost,
        reason=reason,
    )


def report(rows: pd.DataFrame) -> str:
    """Markdown table and the list of misses."""
    lines = [
        "| model | recipes | compiled | verdict equal | segments equal | Spearman of cost |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in rows.groupby("model", sort=False):
        both = found[(found.vela == "compiles") & (found.predicted == "compiles")]
        equal = both.predicted_segments == both.segments
        rank = both.predicted_cost.rank().corr(both.cost.rank())
        lines.append(
            f"| {name} | {len(found)} | {len(both)} | {(found.vela == found.predicted).mean():.1%} | "
            f"{equal.mean():.1%} | {rank:.4f} |"
        )
    misses = rows[(rows.vela != rows.predicted)]
    wrong = rows[(rows.vela == "compiles") & (rows.predicted_segments != rows.segments)]
    lines += ["", f"Wrong verdicts: {len(misses)}; wrong segments: {len(wrong)}.", ""]
    lines += [
        f"* {r.model} {r.number}: predicted {r.predicted}, Vela {r.vela}. {r.reason}" for r in misses.itertuples()
    ]
    lines += [
        f"* {r.model} {r.number}: predicted {r.predicted_segments} segments, Vela {r.segments}."
        for r in wrong.itertuples()
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure the cases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=["mobilenet_v1"], metavar="NAME[=MODEL]")
    parser.add_argument("--count", type=int, default=COUNT, help="Recipes of each model.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    target, rows = read_target(TARGET), []
    for argument in options.cases:
        name, _, path = argument.partition("=")
        model, calibration = CASES[name]
        rows += measure(name, Path(path) if path else model, calibration, target, options.count)
        print(name, "done", flush=True)
    table = pd.DataFrame([asdict(row) for row in rows])
    options.output.mkdir(parents=True, exist_ok=True)
    table.to_csv(options.output / "agreement.csv", index=False)
    print(report(table))


if __name__ == "__main__":
    main()
