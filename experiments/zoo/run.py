"""Runs the zoo: every model in a process of its own, one row each; writes ``zoo.json`` and ``table.md``.

What is not run again stays, if it was found with the same amounts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tables
from models import MODELS

STEPS = ("ends", "forecasts", "mixes", "search", "litert")
"""What each process does with its model once it is taken in."""

HERE = Path(__file__).resolve().parent
_SECONDS = 7200.0
"""After which a model counts as hung."""


def examined(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a child process finds; if it dies, what it had found by then."""
    sheet = options.output / "sheets" / f"{list(MODELS).index(name):02}.json"
    sheet.parent.mkdir(parents=True, exist_ok=True)
    sheet.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "examine.py"), name, "--output", str(sheet), "--steps", *options.steps]
    command += [f"--{key}={amount}" for key, amount in _amounts(options).items()]
    begun = time.perf_counter()
    with sheet.with_suffix(".log").open("wb") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=log, timeout=_SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            code = None
    found = json.loads(sheet.read_text(encoding="utf-8")) if sheet.exists() else {}
    ended = "took too long" if code is None else f"exit code {code}" if code else None
    return {**found, "ended": ended, "seconds": round(time.perf_counter() - begun, 1)}


def main() -> None:
    """Examine the chosen models and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="MODEL")
    parser.add_argument("--but-largest", action="store_true", help="Leave out what takes minutes and gigabytes.")
    parser.add_argument("--quick", action="store_true", help="Few samples, recipes and mixes, no search.")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="Do only these anew.")
    parser.add_argument("--recipes", type=int, default=50, help="For each granularity, interface, and with repairs.")
    parser.add_argument("--mixes", type=int, default=24)
    parser.add_argument("--trials", type=int, default=24, help="Of the search.")
    parser.add_argument("--calibration", type=int, default=24)
    parser.add_argument("--evaluation", type=int, default=24)
    options = parser.parse_args()
    if options.quick:
        options.recipes, options.mixes, options.steps = 3, 4, STEPS[:3]
        options.calibration, options.evaluation = 6, 2
    chosen = [
        name
        for name, model in MODELS.items()
        if (not options.only or name in options.only) and not (model.large and options.but_largest)
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        row = write(options, name, examined(name, options))
        print(tables.line(name, row), flush=True)


def write(options: argparse.Namespace, name: str, row: dict[str, Any]) -> dict[str, Any]:
    """Put a row into both files, with what was not found anew; other processes may have written theirs meanwhile."""
    path = options.output / "zoo.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = before["models"] if before.get("amounts") == _amounts(options) else {}
    rows[name] = row if set(STEPS) == set(options.steps) else {**rows.get(name, {}), **row}
    found = {name: rows[name] for name in MODELS if name in rows}
    content = json.dumps({"amounts": _amounts(options), "models": found}, indent=1)
    path.write_text(content + "\n", encoding="utf-8")
    (options.output / "table.md").write_text(tables.table(found), encoding="utf-8")
    return rows[name]


def _amounts(options: argparse.Namespace) -> dict[str, int]:
    return {key: getattr(options, key) for key in ("recipes", "mixes", "trials", "calibration", "evaluation")}


if __name__ == "__main__":
    main()
