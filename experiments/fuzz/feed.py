"""Sends mutants of one model through inspect, evaluate, intake with a build, and diagnose; one JSON line for each.

This process is the parent that no mutant may kill; models are run in its workers.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mutants import mutants

import autoselect
from autoselect.errors import AutoselectError, WorkerDied
from autoselect.isolation.pool import WorkerPool, shared
from autoselect.quantize.preparing import converter
from autoselect.tflite import reader

PATIENCE_SECONDS = 30.0
MEMORY_BYTES = 12 << 30
"""Address space of each process: TensorFlow takes some 3 GiB of it."""
WANTED = ("inspect", "evaluate", "build", "diagnose")


class ImpatientPool(WorkerPool):
    """Workers whose jobs are stopped after half a minute."""

    def submit(self, function: Callable[..., Any], *args: Any, timeout_seconds: float = PATIENCE_SECONDS) -> Any:
        return super().submit(function, *args, timeout_seconds=min(timeout_seconds, PATIENCE_SECONDS))


def mean_of_output(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float(np.nan_to_num(y_pred).mean().clip(-1e6, 1e6))


def samples(content: bytes) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    inputs = reader.read_interface(content).inputs
    return [[rng.random(spec.shape, dtype=np.float32) for spec in inputs] for _ in range(2)]


def steps(content: bytes, fed: list[list[np.ndarray]], out: Path) -> dict[str, Callable[[], object]]:
    labelled = [(sample, np.zeros(1, dtype=np.float32)) for sample in fed]
    return {
        "inspect": lambda: json.dumps(autoselect.inspect(content), default=str),
        "evaluate": lambda: autoselect.evaluate(
            content, evaluation=labelled, metric=mean_of_output, direction="minimize"
        ),
        "build": lambda: autoselect.build(
            autoselect.Recipe(), model=content, calibration=fed, output=out / "built.tflite", cache=False
        ),
        "diagnose": lambda: autoselect.diagnose(
            content, calibration=fed, figures=False, output=out / f"diagnosis-{time.monotonic_ns()}"
        ),
    }


def outcome(step: Callable[[], object]) -> tuple[str, str]:
    try:
        step()
    except AutoselectError as exc:
        if _is_death(exc):
            return "child killed", str(exc)
        return ("refused" if exc.exit_code in range(2, 6) else "failed"), f"{type(exc).__name__}: {exc}"
    except Exception:  # noqa: BLE001 - what nobody foresaw is what is looked for
        return "traceback", traceback.format_exc()
    return "passed", ""


def _is_death(exc: BaseException | None) -> bool:
    return exc is not None and (isinstance(exc, WorkerDied) or _is_death(exc.__cause__))


def peak_bytes() -> int:
    return 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> None:
    model, first, count, seed, jail = Path(sys.argv[1]), *map(int, sys.argv[2:5]), Path(sys.argv[5])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    content = model.read_bytes()
    fed = samples(content)
    with (
        ImpatientPool(1, log=jail / "worker.log", warm_up=converter.import_tensorflow) as pool,
        shared(pool),
        (jail / "told.jsonl").open("a", encoding="utf-8") as told,
    ):
        for number, (kind, mutant) in enumerate(mutants(content, count, seed)):
            if number < first:
                continue
            print(json.dumps({"number": number, "kind": kind}), file=told, flush=True)
            found, begun = {}, time.perf_counter()
            for name, step in steps(mutant, fed, jail / "out").items():
                found[name] = outcome(step)
            row = {"number": number, "kind": kind, "seconds": time.perf_counter() - begun, "found": found}
            print(
                json.dumps({**row, "parent_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}),
                file=told,
                flush=True,
            )
    with (jail / "told.jsonl").open("a", encoding="utf-8") as told:
        print(json.dumps({"peak_bytes": peak_bytes()}), file=told)


if __name__ == "__main__":
    main()
