"""The searches whose run folders are kept here, and what they are made of; run as a script, it makes the folders anew.

A kept folder says ``{root}`` where it was made with a path of this repository.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import autoselect
from autoselect.embedded import data, make_windows

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
AGAIN = f"PYTHONPATH=. python {Path(__file__).relative_to(ROOT)}"
EXPECTED = "expected.json"
KEPT = ("manifest.json", "summary.json", "study.journal", "*.csv", "front/*.recipe.json")
"""No model, picture or page: a kept folder is one that a user has thinned out, and text throughout."""
ROW = ("number", "id", "state", "origin", "drop", "size_bytes", "penalty", "segments", "float_ops", "fingerprint")


def calibration() -> Iterator[list[np.ndarray]]:
    for window in make_windows(np.random.default_rng(9), 20)[0]:
        yield [window[np.newaxis]]


def search_pairs() -> Iterator[tuple[np.ndarray, int]]:
    yield from zip(*make_windows(np.random.default_rng(7), 80), strict=True)


def heldout_pairs() -> Iterator[tuple[np.ndarray, int]]:
    yield from zip(*make_windows(np.random.default_rng(8), 80), strict=True)


def hits(runner: Any) -> float:
    """An evaluator."""
    outputs = [(next(iter(runner(x[np.newaxis]).values())), y) for x, y in search_pairs()]
    return float(np.mean([output[0].argmax() == y for output, y in outputs]))


_MADE_OF: dict[str, Any] = {
    "model": Path(data.__file__).with_name("pump_monitor.tflite"),
    "calibration": "golden_cases:calibration",
    "trials": 5,
    "seed": 1,
    "workers": 1,
}
_SAMPLES = {"evaluation": "golden_cases:search_pairs", "heldout": "golden_cases:heldout_pairs"}
CASES: dict[str, dict[str, Any]] = {
    "embedded": {**_MADE_OF, **_SAMPLES},
    "evaluator": {**_MADE_OF, "evaluator": "golden_cases:hits", "repairs": False, "trials": 4},
    "space": {
        **_MADE_OF,
        **_SAMPLES,
        "metric": "agreement",
        "repairs": ["bias"],
        "search_space": str(HERE / "op_types.toml"),
        "target": "tflm",
        "sampler": "random",
        "per_channel": False,
    },
}


def facts(run: autoselect.Run) -> dict[str, Any]:
    """What is kept of a run's tables beside its folder, as JSON has it."""
    front = [name for name in run.front.columns if name.startswith("heldout_") or name in ("id", "pick", "file")]
    rows = {
        "trials": run.trials[[*ROW, run.manifest["metric"]["name"]]],
        "front": run.front[front],
        "layers": run.layer_statistics[["tensor_name", "op_name", "rmse/scale"]],
    }
    found = {name: json.loads(table.to_json(orient="split", index=False)) for name, table in rows.items()}
    return {"status": run.status, "picks": run.picks, "verdict": run.summary["verdict"], **found}


def placed(name: str, folder: Path) -> Path:
    """A copy of a kept folder, with the paths of this machine: what was moved is where the manifest says."""
    shutil.copytree(HERE / name, folder, ignore=shutil.ignore_patterns(EXPECTED))
    _rewritten(folder, "{root}", str(ROOT))
    return folder


def _rewritten(folder: Path, old: str, new: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def _make(name: str, scratch: Path) -> None:
    run = autoselect.search(**CASES[name], output=scratch / name)
    kept = HERE / name
    shutil.rmtree(kept, ignore_errors=True)
    for path in [found for pattern in KEPT for found in run.directory.glob(pattern)]:
        (kept / path.relative_to(run.directory)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, kept / path.relative_to(run.directory))
    _rewritten(kept, str(ROOT), "{root}")
    (kept / EXPECTED).write_text(json.dumps(facts(run), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for case in CASES:
            _make(case, Path(scratch))
