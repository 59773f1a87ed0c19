"""Which runtimes run which mixed models, beside what autoselect's table says of them.

Each runtime is installed into an environment of its own, in ``--work``; one that is there is used again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

from autoselect.domain.graph import Graph
from autoselect.domain.runtimes import read_runtime, why_refused
from autoselect.tflite.tflite_file import TfliteFile

HERE = Path(__file__).resolve().parent
RUNTIMES = {
    "2.1.0": "ai-edge-litert==2.1.0",
    "2.1.2": "ai-edge-litert==2.1.2",
    "2.1.3": "ai-edge-litert==2.1.3",
    "2.3.0": "ai-edge-litert==2.3.0",
    "tensorflow-2.19": "tensorflow-cpu==2.19.0",
    "tensorflow-2.20": "tensorflow-cpu==2.20.0",
    "tensorflow-2.21": "tensorflow-cpu==2.21.0",
}
"""Requirements of pip by the names that ``--runtime`` takes."""


def python_of(requirement: str, work: Path) -> Path:
    """The Python of an environment that has a runtime."""
    folder = work / requirement
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", requirement], check=True)
        done.touch()
    return python


def answers(requirement: str, models: Path, work: Path) -> dict[str, str]:
    """By file why a runtime does not run it; empty if it does."""
    command = [str(python_of(requirement, work)), str(HERE / "load.py"), str(models)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    why: dict[str, str] = json.loads(printed.splitlines()[-1])["why"]
    return why


def row_of(name: str, graphs: dict[str, Graph], why: dict[str, str]) -> dict[str, object]:
    """How many models a runtime runs, and in how many the table of autoselect says otherwise."""
    runtime = read_runtime(name)
    said = {file: why_refused(graph, runtime) for file, graph in graphs.items()}
    ops = Counter(reason.split(" has no ")[1].split(",")[0] for reason in said.values() if reason)
    return {
        "runtime": runtime.name,
        "models": len(why),
        "run": sum(not reason for reason in why.values()),
        "refused_by_table": "; ".join(f"{op}: {count}" for op, count in sorted(ops.items())),
        "said_otherwise": sum(bool(why[file]) != bool(said[file]) for file in graphs),
    }


def main() -> None:
    """Write runtimes.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="Folder that make.py wrote.")
    parser.add_argument("--runtime", action="append", choices=RUNTIMES, help="Repeat it. All by default.")
    parser.add_argument("--work", type=Path, required=True, help="Folder of the environments.")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    graphs = {file.name: TfliteFile(file.read_bytes()).graph for file in sorted(options.models.glob("*.tflite"))}
    rows = []
    for name in options.runtime or RUNTIMES:
        rows.append(row_of(name, graphs, answers(RUNTIMES[name], options.models, options.work)))
        print(rows[-1], flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(options.output / "runtimes.csv", index=False)


if __name__ == "__main__":
    main()
