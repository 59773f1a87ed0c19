"""Whether what is forecast for an NPU is what its compiler says; writes a sheet for each model and ``agreement.md``.

Every model is examined in a process of its own. Sheets of models that are not examined again stay.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import npu_tables
from examined import PARTS
from npu_models import MODELS

HERE = Path(__file__).resolve().parent
SOCS = ("SM8750", "SM8450", "SM8735")
_HOURS = 3.0
"""After which a model counts as hung."""


def sheet_of(folder: Path, name: str) -> Path:
    return folder / "models" / f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}.json"


def examined(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a child process finds; if it dies, what it had found by then."""
    sheet = sheet_of(options.output, name)
    sheet.parent.mkdir(parents=True, exist_ok=True)
    if set(options.parts) == set(PARTS):
        sheet.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "examined.py"), name, "--output", str(sheet), "--socs", *options.socs]
    command += ["--parts", *options.parts]
    command += [f"--{key}={getattr(options, key)}" for key in ("recipes", "compiled", "compared", "calibration")]
    begun = time.perf_counter()
    done: subprocess.CompletedProcess[str] | None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600 * _HOURS, check=False)
    except subprocess.TimeoutExpired:
        done = None
    found = json.loads(sheet.read_text(encoding="utf-8")) if sheet.exists() else {"name": name, "died_at": "start"}
    if done is None:
        found["ended"] = "no result in time"
    elif done.returncode:
        said = [row for row in done.stderr.splitlines() if row.strip()]
        found["ended"] = f"exit code {done.returncode}: {said[-1][:300] if said else ''}"
    else:
        found.pop("ended", None)
    spent = round(time.perf_counter() - begun, 1)
    found["seconds"] = spent if set(options.parts) == set(PARTS) else found.get("seconds", spent)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    sheet.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return found


def known(folder: Path) -> dict[str, Mapping[str, Any]]:
    """All sheets that there are."""
    sheets = {name: sheet_of(folder, name) for name in MODELS}
    return {name: json.loads(path.read_text(encoding="utf-8")) for name, path in sheets.items() if path.exists()}


def main(arguments: list[str] | None = None) -> None:
    """Examine the chosen models and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="MODEL")
    parser.add_argument("--but-largest", action="store_true", help="Leave out what takes minutes and gigabytes.")
    parser.add_argument("--quick", action="store_true", help="Few recipes, one chip.")
    parser.add_argument("--socs", nargs="+", default=list(SOCS), help="Chips; costs and order are of the first.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="Other parts of sheets stay.")
    parser.add_argument("--recipes", type=int, default=100, help="Random ones for each chip, beside four whole states.")
    parser.add_argument("--compiled", type=int, default=40, help="Of those, how many are compiled.")
    parser.add_argument("--compared", type=int, default=5, help="Of those, how many have outputs compared.")
    parser.add_argument("--calibration", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="Models at a time.")
    parser.add_argument("--table", action="store_true", help="Write the table of what was found, and nothing else.")
    options = parser.parse_args(arguments)
    if options.quick:
        options.recipes, options.compiled, options.compared, options.calibration = 10, 10, 2, 8
        options.socs = options.socs[:1]
    chosen = [
        name
        for name, model in MODELS.items()
        if (not options.only or name in options.only) and not (model.large and options.but_largest)
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = pool.map(lambda name: examined(name, options), () if options.table else chosen)
        for name, row in zip(chosen, rows, strict=False):
            print(" | ".join([*npu_tables.line(name, row, options.socs), f"{row['seconds']} s"]), flush=True)
            write(options.output)
    write(options.output)


def write(folder: Path) -> None:
    (folder / "agreement.md").write_text(npu_tables.tables(known(folder), SOCS), encoding="utf-8")


if __name__ == "__main__":
    main()
