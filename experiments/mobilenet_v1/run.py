"""Searches one model in several ways, lets other tools quantize it, and compares all of it at equal limits."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "search_benchmark")]
import bench  # noqa: E402 - found by the path above
import loaders  # noqa: E402
from cases import BenchmarkCase  # noqa: E402
from judge import Judge, Judged  # noqa: E402
from peers import Peer, litert_models, nncf_models  # noqa: E402
from searched import Searched, recipe_of, searched  # noqa: E402
from show import LIMITS, UNLIKE, draw, table_of  # noqa: E402

import autoselect  # noqa: E402

RESULTS = HERE / "results"
_MODEL = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"


def _case(mode: str) -> BenchmarkCase:
    options = {"per_channel": mode == "per channel", "fallback": "float", "max_drop": 0.01, "cache": False}
    name = mode.replace(" ", "_")
    return BenchmarkCase(
        name=name, data="imagenet", metric="accuracy", samples=450, reference=None, model=_MODEL, options=options
    )


CASES = {mode: _case(mode) for mode in ("per channel", "per tensor")}
"""By how weights are scaled."""
DEFAULT = "autoselect, as by default"
SEARCHES = {
    DEFAULT: "surrogate+search+int16+repairs",
    "autoselect, int8 or float, repairs": "surrogate+repairs",
    "autoselect, int8 or float": "surrogate",
    "greedy (AIMET, NNCF)": "greedy",
    "prefix (SeQTO)": "prefix",
    "Optuna, TPE": "tpe",
    "Optuna, NSGA-II": "nsga2",
}
"""By what they are called in the table, what ``bench.py`` calls them; the last five choose from the same candidates."""
FIXED = ("greedy", "prefix")
"""Samplers that draw nothing, so that they need one seed."""
DRAWN = (DEFAULT, "autoselect, int8 or float", "greedy (AIMET, NNCF)", "prefix (SeQTO)")
"""Searches whose candidates are on the plot."""


def searched_by(case: BenchmarkCase, sampler: str, options: argparse.Namespace) -> list[Searched]:
    """The runs of all seeds; whole ones are used again."""
    found = []
    for seed in range(1 if sampler in FIXED else options.seeds):
        task = bench.Task(case=case, sampler=sampler, seed=seed, trials=options.trials, root=options.runs, workers=1)
        if not task.finished:
            begun = time.perf_counter()
            bench.perform(task)
            print(f"{case.name}, {sampler}, seed {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
        found.append(searched(task))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one way has within a limit: a candidate of each run that has one."""

    tool: str
    limit: float
    runs: Sequence[Searched]
    recipes: Sequence[autoselect.Recipe]


def found_by(tool: str, runs: Sequence[Searched]) -> Iterator[Found]:
    """What one way has at each limit; of autoselect also what it would recommend itself."""
    for limit in LIMITS:
        picks = [pick for run in runs if (pick := run.least(limit))]
        yield Found(tool=tool, limit=limit, runs=runs, recipes=[recipe_of(pick) for pick in picks])
    if tool.startswith("autoselect"):
        for limit in LIMITS:
            recipes = [recipe_of(run.recommended(limit)) for run in runs]
            yield Found(tool=f"{tool}: recommended", limit=limit, runs=runs, recipes=recipes)


def figures_of(judge: Judge, models: Sequence[Judged]) -> dict[str, Any]:
    """Costs, medians of several models, and what they lose held out, their mean; nothing of no model."""
    if not models:
        return {}
    costs = pd.DataFrame([model.costs for model in models])
    drop = judge.drop(*(model.answers for model in models))
    return {
        **costs.median().to_dict(),
        "penalty_low": costs["penalty"].min(),
        "penalty_high": costs["penalty"].max(),
        "top1": float(np.mean([judge.hits(model.answers).mean() for model in models])),
        "drop": drop.drop,
        "drop_low": drop.low,
        "drop_high": drop.high,
        "unlike": float(np.mean([judge.unlike(model.answers) for model in models])),
    }


def search_rows(judge: Judge, every: Sequence[Found]) -> Iterator[dict[str, Any]]:
    """A row for each way and limit: medians over seeds, and the mean drop of all seeds."""
    for found in every:
        row: dict[str, Any] = {"part": "limits", "tool": found.tool, "limit": found.limit}
        row |= {"runs": len(found.runs), "found": len(found.recipes)}
        row |= {name: np.median([getattr(run, name) for run in found.runs]) for name in ("evaluations", "seconds")}
        yield row | figures_of(judge, judge.recipes(found.recipes))


def model_rows(judge: Judge, peers: Sequence[Peer]) -> Iterator[dict[str, Any]]:
    """A row for each single model; of NNCF's loop a row among the limits, and one for what its model is here."""
    plain = autoselect.Recipe(fallback="float", per_channel=judge.case.options.get("per_channel", True))
    whole, repaired = judge.recipes([plain, replace(plain, repairs=("bias",))])
    for name, model in (("float", judge.float), ("all int8", whole), ("all int8, repair `bias`", repaired)):
        yield {"part": "models", "tool": name, **figures_of(judge, [model])}
    for peer in peers:
        row = {"tool": peer.name, "evaluations": peer.evaluations, "seconds": peer.seconds}
        row |= {"limit": np.nan if peer.limit is None else peer.limit, "runs": 1, "found": 1}
        yield {"part": "models" if peer.limit is None else "limits", **row, **figures_of(judge, [peer.judged])}
        if peer.mapped is not None:
            told = "" if peer.limit is None else f" told {100 * peer.limit:g} points"
            name = f"{peer.name}{told}: the same ops in int8 here, repair `bias`"
            yield {"part": "models", "tool": name, **figures_of(judge, [peer.mapped])}


def curve_rows(judge: Judge, drawn: Mapping[str, Sequence[autoselect.Recipe]]) -> Iterator[dict[str, Any]]:
    """A row for each candidate on the plot."""
    for tool, recipes in drawn.items():
        for model in judge.recipes(recipes):
            row = {"tool": tool, "ops": judge.count, **model.costs, "share": model.costs["float_ops"] / judge.count}
            yield row | {"drop": judge.drop(model.answers).drop, "unlike": judge.unlike(model.answers)}


def share_rows(curve: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """How many ops each way leaves out before its answers are close enough to float's; NaN where they never are."""
    for tool, part in curve.groupby("tool", sort=False):
        close = part.loc[part["unlike"] < UNLIKE, "float_ops"]
        yield {"part": "shares", "tool": tool, "ops": part["ops"].iloc[0], "left_out": close.min()}


def measured(mode: str, options: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of models and of the plot in this mode."""
    case = CASES[mode]
    runs = {tool: searched_by(case, sampler, options) for tool, sampler in SEARCHES.items()}
    every = [found for tool, of_tool in runs.items() for found in found_by(tool, of_tool)]
    drawn = {tool: [recipe_of(r) for r in runs[tool][0].curve(SEARCHES[tool])] for tool in DRAWN}
    with autoselect.keep_workers(1):
        judge = Judge(case, options.runs / case.name / "judged")
        judge.recipes([*chain.from_iterable(found.recipes for found in every), *chain.from_iterable(drawn.values())])
        statistics = next(iter(runs.values()))[0].run.layer_statistics
        peers = list(litert_models(judge, statistics))
        if options.nncf:
            peers += nncf_models(judge, statistics, options.nncf, LIMITS)
        else:
            print(f"{mode}: NNCF is left out, since --nncf names no Python of its environment.", flush=True)
        found = pd.DataFrame([*search_rows(judge, every), *model_rows(judge, peers)])
        curve = pd.DataFrame(curve_rows(judge, drawn))
    found = pd.concat([found, pd.DataFrame(share_rows(curve))], ignore_index=True)
    for table in (found, curve):
        table.insert(0, "mode", mode)
    return found, curve


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, measure, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", action="append", choices=CASES, default=[], help="Repeat it. Both by default.")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=1, help="Of the searches that draw.")
    parser.add_argument("--nncf", help="The Python of NNCF's environment; without it NNCF is left out.")
    parser.add_argument("--runs", type=Path, default=Path("mobilenet-v1-runs"), help="What is finished is used again.")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found = [measured(mode, options) for mode in options.mode or CASES]
    rows, curve = (pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True))
    options.output.mkdir(parents=True, exist_ok=True)
    rows.to_csv(options.output / "mobilenet_v1.csv", index=False, lineterminator="\n", float_format="%.6g")
    curve.to_csv(options.output / "curve.csv", index=False, lineterminator="\n", float_format="%.6g")
    rows = pd.read_csv(options.output / "mobilenet_v1.csv")
    (options.output / "table.md").write_text(table_of(rows), encoding="utf-8")
    draw(curve, options.output / "mobilenet_v1.png")
    print(table_of(rows))


if __name__ == "__main__":
    main()
