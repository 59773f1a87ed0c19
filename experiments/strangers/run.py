"""Reads every published model in a process of its own; writes ``strangers.json`` and ``table.md``."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "zoo")]
import published  # noqa: E402 - found by the path above
from shown import table  # noqa: E402

CACHE = Path(tempfile.gettempdir()) / "autoselect-strangers"
_SECONDS = 900.0
"""After which a model counts as hung."""
Row = Mapping[str, Any]


def examined(model: published.Published, options: argparse.Namespace) -> dict[str, Any]:
    """What a process finds of a model; if it dies, how far it came."""
    sheet = options.cache / "sheets" / f"{model.path.stem}.json"
    sheet.parent.mkdir(parents=True, exist_ok=True)
    sheet.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "one_model.py"), str(model.path), "--output", str(sheet)]
    command += [f"--samples={options.samples}", f"--recipes={options.recipes}"]
    begun, log = time.perf_counter(), sheet.with_suffix(".log")
    with log.open("wb") as said:
        try:
            code = subprocess.run(command, stdout=said, stderr=said, timeout=_SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            code = None
    row = json.loads(sheet.read_text(encoding="utf-8")) if sheet.exists() else {"step": "start"}
    if code is None:
        row["died"] = f"not finished within {_SECONDS:.0f} s"
    elif code:
        row["died"] = _last_line(log) or f"exit code {code}"
    seconds = round(time.perf_counter() - begun, 1)
    return {"packages": list(model.packages), **row, "seconds": seconds}


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def outcome(row: Row) -> str:
    """How a model ended, in words that are equal for equal reasons."""
    if "died" in row:
        return f"fails at {row['step']}"
    if "refused" in row:
        return f"refused at {row['step']}"
    if row["exact"] < row["recipes"]:
        return "a forecast is not exact"
    return "built" if row["finite"] else "gives no finite outputs"


def reason(row: Row) -> str:
    """What a user reads, on one line."""
    said = " ".join(str(row.get("died") or row.get("refused") or "").split())
    return re.sub(r"(/[\w.-]+)+", "…", said)


def page(rows: Mapping[str, Row], absent: Mapping[str, str]) -> str:
    """Counts by outcome, the models, and what is said of those that are not built."""
    counts = Counter(outcome(row) for row in rows.values())
    lines = [table(("outcome", "models"), [(name, str(count)) for name, count in counts.most_common()]), ""]
    lines += [table(HEAD, [cells(name, row) for name, row in rows.items()]), ""]
    lines += [f"* **{name}.** {reason(row)}" for name, row in rows.items() if outcome(row) != "built"]
    lines += [f"* {package} is not to be had: {why}" for package, why in absent.items()]
    return "\n".join(lines).rstrip() + "\n"


HEAD = ("model", "package", "ops", "nodes", "outcome", "forecasts exact", "nodes in integers", "seconds")


def cells(name: str, row: Row) -> list[str]:
    """One row of the table."""
    kinds = row.get("kinds", {})
    exact = f"{row['exact']} of {row['recipes']}" if "exact" in row else ""
    integers = f"{kinds.get('integer', 0)} of {sum(kinds.values())}" if kinds else ""
    figures = [str(row.get("ops", "")), str(row.get("nodes", "")), outcome(row), exact, integers]
    return [name, row["packages"][0].replace("==", " "), *figures, f"{row['seconds']:.0f}"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fetch, examine all, and write both files; ends with 1 if a model failed otherwise than by a refusal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", action="append", default=[], help="Only models of this one; repeat it.")
    parser.add_argument("--samples", type=int, default=8, help="Random ones, to calibrate with.")
    parser.add_argument("--recipes", type=int, default=8, help="Random candidates of each model.")
    parser.add_argument("--cache", type=Path, default=CACHE, help="Folder of packages and models.")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    models, absent = published.all_models(options.cache, options.package)
    rows: dict[str, dict[str, Any]] = {}
    for model in models:
        name = model.name if model.name not in rows else f"{model.name}, {model.packages[0]}"
        rows[name] = examined(model, options)
        print(f"{name}: {outcome(rows[name])} {reason(rows[name])[:150]}", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    found = json.dumps({"models": rows, "absent": absent}, indent=1, ensure_ascii=False)
    (options.output / "strangers.json").write_text(found + "\n", encoding="utf-8")
    (options.output / "table.md").write_text(page(rows, absent), encoding="utf-8")
    if any("died" in row for row in rows.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
