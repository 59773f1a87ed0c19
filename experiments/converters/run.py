"""Converts and searches models out of packages, each in a process; writes ``converters.json`` and ``table.md``."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import nets

HERE = Path(__file__).resolve().parent

HEAD = (
    "| model | package | converted by | s | equal to its source, dB | ops | named | nodes | all-integer, dB | "
    "recommended, dB | float ops | penalty | trials | search, s |"
)
AMOUNTS = ("samples", "trials")


def examined(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own finds of one model, as far as it came."""
    sheet = options.output / "sheet.json"
    sheet.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "examine.py"), name, "--output", str(sheet)]
    for key in ("onnx_python", "torch_python", "search_seconds", *AMOUNTS):
        command += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    begun, ended = time.perf_counter(), None
    with (options.output / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            if code := process.wait(options.seconds):
                ended = f"exit code {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            ended = f"not finished within {options.seconds:.0f} s"
    found = json.loads(sheet.read_text(encoding="utf-8")) if sheet.exists() else {}
    sheet.unlink(missing_ok=True)
    return {**found, "ended": ended, "seconds": time.perf_counter() - begun}


def line(name: str, row: dict[str, Any]) -> str:
    """One row of the table."""
    package = nets.MODELS[name].requirement.replace("==", " ")
    made, found = row.get("converted"), row.get("searched")
    if made is None:
        return f"| {name} | {package} | {row['ended'] or 'refused'} |" + " |" * 11
    named = next((note.split(" ops")[0] for note in made["notes"] if "ops have the name" in note), "")
    equality = ", ".join(f"{one:.0f}" for one in made["equality"]) or "bit for bit"
    cells = [name, package, made["way"], f"{made['seconds']:.0f}", equality, str(made["ops"]), named.split(" ")[0]]
    if found is None:
        return f"| {' | '.join([*cells, '', row['ended'] or 'refused'])} |" + " |" * 5
    best, whole = found["recommended"], found["integer"]
    cells += [str(found["nodes"]), _decibels(whole and whole["heldout"])]
    cells += (
        [_decibels(best["heldout_sqnr_db"]), f"{best['float_ops']:.0f}", f"{best['penalty']:.1f}"]
        if best
        else ["none", "", ""]
    )
    return f"| {' | '.join([*cells, str(found['counts']['trials']), format(found['seconds'], '.0f')])} |"


def _decibels(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.1f}"


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The table, and what a user reads where a model is refused."""
    lines = [HEAD, "|---" * 14 + "|", *(line(name, row) for name, row in rows.items())]
    told = [f"* **{name}.** {_anonymous(row['refused'])}" for name, row in rows.items() if "refused" in row]
    return "\n".join([*lines, "", "What a user reads of those that are refused:", "", *told]) + "\n"


def _anonymous(message: str) -> str:
    return re.sub(r"/\S*/(autoselect-converter-\w+\.log)", r"…/\1", " ".join(message.split()))


def main() -> None:
    """Examine the chosen models; what is not run again stays, if it was found with the same amounts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--onnx-python", required=True, help="Python of an environment with onnx2tf.")
    parser.add_argument("--torch-python", required=True, help="Python of one with litert-torch and torchvision.")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--only", nargs="+", choices=nets.MODELS, metavar="MODEL")
    parser.add_argument("--missing", action="store_true", help="Only those that have no row.")
    parser.add_argument("--samples", type=int, default=20, help="To calibrate, to search on, to hold out: each.")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--search-seconds", type=float, default=480.0, help="Then no further candidate is begun.")
    parser.add_argument("--seconds", type=float, default=900.0, help="Then a model's process is ended.")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    amounts = {key: getattr(options, key) for key in AMOUNTS}
    path = options.output / "converters.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = before["models"] if before.get("amounts") == amounts else {}
    for name in options.only or [name for name in nets.MODELS if not (options.missing and name in rows)]:
        rows[name] = examined(name, options)
        found = {name: rows[name] for name in nets.MODELS if name in rows}
        path.write_text(json.dumps({"amounts": amounts, "models": found}, indent=1) + "\n", encoding="utf-8")
        (options.output / "table.md").write_text(table(found), encoding="utf-8")
        print(line(name, rows[name]), flush=True)


if __name__ == "__main__":
    main()
