"""The embedded case in a size for tests, and what the tests look at."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import autoselect
from autoselect.embedded import data, make_windows, model_bytes
from autoselect.study.setup import repeatability

SEARCH = make_windows(np.random.default_rng(7), 200)
HELDOUT = make_windows(np.random.default_rng(8), 300)
CALIBRATION_COUNT = 30


def calibration() -> Iterator[list[np.ndarray]]:
    windows, _ = make_windows(np.random.default_rng(9), CALIBRATION_COUNT)
    for window in windows:
        yield [window[np.newaxis]]


def search_pairs() -> Iterator[tuple[np.ndarray, int]]:
    yield from zip(*SEARCH, strict=True)


def heldout_pairs() -> Iterator[tuple[np.ndarray, int]]:
    yield from zip(*HELDOUT, strict=True)


MODEL_PATH = Path(data.__file__).with_name("pump_monitor.tflite")

NAMED = {
    "model": MODEL_PATH,
    "calibration": "pump:calibration",
    "evaluation": "pump:search_pairs",
    "heldout": "pump:heldout_pairs",
}
"""Ingredients that a manifest can name, so that a resume finds them again."""

LIVE = {
    "model": model_bytes(),
    "calibration": calibration,
    "evaluation": SEARCH,
    "heldout": HELDOUT,
}
"""The same ingredients as live objects."""


def search(output: Path, **changes: Any) -> autoselect.Run:
    """Without repairs and 16 bits, to try which takes half of a short search, where they are not asked for."""
    repeatability.SECONDS = 0.0  # As for all tests, in the processes that they start too.
    return autoselect.search(**{"workers": 1, "repairs": False, "int16": False, **NAMED, "output": output, **changes})


def journal(folder: Path) -> list[optuna.trial.FrozenTrial]:
    """Every trial of a run's journal, read by Optuna itself."""
    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    return optuna.load_study(study_name="autoselect", storage=storage).trials


def unfinished(folder: Path) -> list[int]:
    return [t.number for t in journal(folder) if not t.state.is_finished()]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree(folder: Path) -> dict[str, str]:
    """Hash of every file of a folder."""
    return {str(p.relative_to(folder)): sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def recipe_nodes(text: str) -> set[str]:
    return set(json.loads(text)["denylisted_nodes"])


def litert_accuracy(content: bytes, samples: tuple[np.ndarray, np.ndarray] = HELDOUT) -> float:
    """Accuracy by LiteRT's own interpreter, for models with float inputs and outputs."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    hits = 0
    for window, label in zip(*samples, strict=True):
        interpreter.set_tensor(source["index"], window[np.newaxis])
        interpreter.invoke()
        hits += int(interpreter.get_tensor(result["index"])[0].argmax() == label)
    return hits / len(samples[1])


def litert_ops(content: bytes) -> list[str]:
    """Op types in order, by LiteRT's own interpreter."""
    interpreter = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    return [op["op_name"] for op in interpreter._get_ops_details()]


def dominates(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """All values are losses."""
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
