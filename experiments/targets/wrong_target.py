"""What a model chosen for one target costs on another, against one chosen for it.

Run after ``run.py``, with the same folder: ``python experiments/targets/wrong_target.py OUT``.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import autoselect
from autoselect.compilers.opening import compiler_of
from autoselect.errors import TargetRefusal
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target, refusal
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

PICK = "recommended"
SECONDS = 300.0


@cache
def cost(model: Path, target: str) -> float | None:
    """Penalty of a model on a target, of the compiled model where there is a compiler; None where it is refused."""
    content, profile = model.read_bytes(), read_target(target)
    if profile.compiler is None:
        graph = reader.read_graph(fb.parse(content))
        return None if refusal(graph, profile) else on_target(graph, profile).penalty
    if not profile.asks_compiler and refusal(reader.read_graph(fb.parse(content)), profile):
        return None
    try:
        return compiler_of(profile).compile(content, timeout_seconds=SECONDS).cost
    except TargetRefusal:
        return None


def cell(chosen_for: autoselect.Run, right: autoselect.Run, target: str) -> str:
    """Cost of the wrong run's pick over that of the cheapest member of the right front that is as close to float."""
    name = chosen_for.summary["picks"][PICK]
    wrong = cost(chosen_for.model_path(PICK), target)
    if wrong is None:
        return "refused"
    score = float(chosen_for.front[chosen_for.front["id"] == name]["agreement"].iloc[0])
    rivals = right.front[right.front["agreement"] >= score]
    costs = [cost(right.model_path(i), target) for i in rivals["id"]]
    best = min((c for c in costs if c is not None), default=None)
    if best is None:
        return "none as close"
    return f"{wrong / best:.2f}" if best > 0 else f"{wrong:.3g} : 0"


def main() -> None:
    """Print the matrix: rows are the target that the search had, columns the one that the model runs on."""
    out = Path(sys.argv[1])
    runs = {p.name: autoselect.load_run(p) for p in sorted(out.iterdir()) if (p / "summary.json").exists()}
    single = {name: run for name, run in runs.items() if "," not in name}
    print("| searched for | " + " | ".join(f"on `{name}`" for name in single) + " |")
    print("|---" * (len(single) + 1) + "|")
    for name, run in runs.items():
        cells = [cell(run, right, target) for target, right in single.items()]
        print(f"| `{name}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
