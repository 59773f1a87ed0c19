"""Whether sizes after packing are forecast well: 100 random recipes of each model, forecast, built and compiled.

Each weighted node has 8, 7, 6, 5 or 4 bits. In a second hundred up to three nodes are hybrid, float or in 16 bits, too.
Prints rank correlations and writes ``results/forecast.csv``, a row for each recipe.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("search_benchmark", "real_models")]
import parts  # noqa: E402 - found by the path above
from cases import BenchmarkCase, all_cases  # noqa: E402

from autoselect.compilers.opening import compiler_of  # noqa: E402
from autoselect.domain.layers import Node  # noqa: E402
from autoselect.domain.recipe import Recipe  # noqa: E402
from autoselect.errors import CompilerRefusal  # noqa: E402
from autoselect.quantize.building.build import Builder  # noqa: E402
from autoselect.quantize.building.parts import find_nodes  # noqa: E402
from autoselect.quantize.building.wholes import whole_builds  # noqa: E402
from autoselect.quantize.preparing import calibration, normalise  # noqa: E402
from autoselect.quantize.repairing.repairs import RepairKit  # noqa: E402
from autoselect.scoring.target_file import read_target  # noqa: E402

TARGET = "ethos-u55-128"
MODELS = ("mobilenet_pc", "ds_cnn", "fsrcnn")
BITS = (8, 7, 6, 5, 4)


def builder_of(case: BenchmarkCase) -> tuple[Builder, tuple[Node, ...]]:
    """A builder of a case's candidates, calibrated on its calibration samples, and the nodes."""
    assert case.model is not None
    samples = list(getattr(parts, f"{case.data}_calibration")())
    normalised = normalise.normalise(case.model.read_bytes())
    calibrated = calibration.calibrated_model(normalised.file, samples, normalised.node_names)
    keys = list(calibrated.names.inputs)
    kit = RepairKit(calibrated, lambda: (dict(zip(keys, sample, strict=True)) for sample in samples))
    nodes = find_nodes(whole_builds(kit, Recipe()))
    return Builder(calibrated, nodes, kit), nodes


def recipes(nodes: Sequence[Node], count: int, seed: int) -> Iterator[tuple[str, Recipe]]:
    """Random recipes of fewer levels, and as many with a few nodes out of 8-bit integers, too; each with its kind."""
    rng, names = np.random.default_rng(seed), [node.name for node in nodes if node.macs]
    for number in range(2 * count):
        bits = rng.choice(BITS, len(names))
        others = rng.choice(names, rng.integers(1, 4), replace=False) if number >= count else ()
        left_out = [name for name in others if rng.random() < 0.5]  # In an order, by which later numbers are drawn.
        yield (
            ("levels and other states" if number >= count else "levels"),
            Recipe(
                denylisted_nodes=frozenset(left_out),
                float_nodes=frozenset(name for name in left_out if rng.random() < 0.5),
                int16_nodes=frozenset(others).difference(left_out),
                repairs=tuple(f"levels-{b}:{name}" for name, b in zip(names, bits, strict=True) if b < 8),
            ),
        )


def rows(name: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each recipe: forecast, and what the file takes compiled and deflated."""
    (builder, nodes), target = builder_of(all_cases({})[name]), read_target(TARGET)
    compiler, places = compiler_of(target), {node.name: place for place, node in enumerate(nodes)}
    for kind, recipe in recipes(nodes, count, seed):
        built = builder.build(recipe)
        blueprint = builder.blueprint(recipe)
        plan = blueprint.plan(
            [places[n] for n in recipe.denylisted_nodes],
            in_float=[places[n] for n in recipe.float_nodes],
            in_int16=[places[n] for n in recipe.int16_nodes],
        )
        try:
            flash = compiler.compile(built.content, timeout_seconds=300.0).stored_bytes
        except CompilerRefusal:
            flash = 0
        yield {
            "model": name,
            "kind": kind,
            "recipe": recipe.fingerprint,
            "file_bytes": len(built.content),
            "forecast_bytes": round(blueprint.packed_bytes(plan)),
            "flash_bytes": flash,
            "download_bytes": len(zlib.compress(built.content, 9)),
        }


def main() -> None:
    """Examine all models and print how well the forecasts rank the recipes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--recipes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([row for name in options.models for row in rows(name, options.recipes, options.seed)])
    table.to_csv(options.output / "forecast.csv", index=False)
    for (name, kind), found in table.groupby(["model", "kind"], sort=False):
        compiled = found[found.flash_bytes > 0]
        ranks = [
            float(spearmanr(part["forecast_bytes"], part[column]).statistic)
            for part, column in ((compiled, "flash_bytes"), (found, "download_bytes"))
        ]
        print(
            f"{name}, {kind}: {len(compiled)} of {len(found)} compiled; rank correlation with flash {ranks[0]:.4f}, ",
            end="",
        )
        print(f"with the download {ranks[1]:.4f}")


if __name__ == "__main__":
    main()
