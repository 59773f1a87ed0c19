"""What a model chosen for one target costs on another, against one chosen for it.

Run after ``run.py``, with the same folder: ``python experiments/targets/wrong_target.py OUT``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import autoselect
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import on_target, refusal
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

PICK = "balanced"


def cost(model: Path, target: str) -> float | None:
    """Predicted penalty of a model on a target; None where the target refuses it."""
    graph, profile = reader.read_graph(fb.parse(model.read_bytes())), read_target(target)
    return None if refusal(graph, profile) else on_target(graph, profile).penalty


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
    print("| searched for | " + " | ".join(f"on `{name}`" for name in runs) + " |")
    print("|---" * (len(runs) + 1) + "|")
    for name, run in runs.items():
        cells = [cell(run, right, target) for target, right in runs.items()]
        print(f"| `{name}` | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
