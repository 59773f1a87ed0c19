"""Searches a segmentation net by one number of few images, each draw with images of its own."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import scenes  # noqa: E402 - found by the path above

import autoselect  # noqa: E402
from autoselect.domain.rule import Rule  # noqa: E402
from autoselect.runs.files import write_text  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

RESULTS = HERE / "results"
DRAWS, TRIALS = 5, 30
EVALUATORS = {
    "one number": "scenes:one_number",
    "one number, no held-out check": "scenes:number_of_search",
    "parts": "scenes:parts",
}
PICKS = ("recommended", "accurate", "integer")


def search(model: Path, evaluator: str, draw: int, folder: Path) -> autoselect.Run:
    """One search with images of this draw; a whole run is used again."""
    if (folder / "summary.json").exists():
        return autoselect.load_run(folder)
    os.environ[scenes.DRAW] = str(draw)
    return autoselect.search(
        model,
        calibration="scenes:calibration",
        evaluator=evaluator,
        per_channel=False,
        repairs=False,
        trials=TRIALS,
        seed=draw,
        workers=1,
        output=folder,
    )


def row_of(draw: int, run: autoselect.Run, model: Path) -> str:
    """What is recommended, what it loses in points, and whether the held-out images contradict it."""
    os.environ[scenes.DRAW] = str(draw)
    front, allowed, passed = run.front.set_index("id"), run.summary["allowed_drop"], run.summary["contradicted"]
    base = scenes.one_number(Runner(model.read_bytes()), "heldout")
    rule = Rule(allowed_drop=allowed, float_penalty=1.0, float_size_bytes=1.0)
    cells = [f"{draw}", f"{100 * base:.1f}", f"{100 * allowed:.2f}"]
    for name in PICKS:
        row = front.loc[run.summary["picks"][name]]
        lost = base - scenes.one_number(Runner((run.directory / str(row["file"])).read_bytes()), "heldout")
        low = row.get("heldout_drop_low", math.nan)
        contradicted = rule.is_contradicted(lost, None if math.isnan(low) else low)
        drops = f"{100 * row['drop']:.1f}, {100 * lost:.1f}{' (contradicted)' if contradicted else ''}"
        cells.append(f"{row['sqnr_db']:.0f} dB, {row['penalty']:.1f}, {drops}")
    return f"| {' | '.join([*cells, str(len(passed))])} |"


def table_of(evaluator: str, runs: Sequence[autoselect.Run], model: Path) -> str:
    """A row for each draw."""
    heads = ["draw", "float, held out", "allowed drop"]
    heads += [f"`{name}`: closeness, penalty, loses on search, held out" for name in PICKS]
    heads.append("others contradicted before it")
    lines = [f"## {evaluator}\n", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(row_of(draw, run, model) for draw, run in enumerate(runs)), ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="Of train.py.")
    parser.add_argument("--runs", type=Path, default=Path("one-number-runs"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--evaluator", action="append", default=[], choices=EVALUATORS)
    parser.add_argument("--images", type=int, default=80, help="Of a search.")
    parser.add_argument("--name", default="tables", help="Of the table's file.")
    options = parser.parse_args(arguments)
    os.environ[scenes.IMAGES] = str(options.images)
    tables = []
    for title in options.evaluator or EVALUATORS:
        runs = [
            search(
                options.model,
                EVALUATORS[title],
                draw,
                options.runs / f"{title.replace(', ', '-').replace(' ', '-')}-{draw}",
            )
            for draw in range(DRAWS)
        ]
        tables.append(table_of(title, runs, options.model))
    write_text(options.results / f"{options.name}.md", "\n".join(tables))
    print("\n".join(tables))


if __name__ == "__main__":
    main()
