"""Runs samplers x cases x seeds; each run in a folder of its own, finished runs are skipped, others start again.

Each run is a process of its own with one worker, so that the order of trials, and with it the whole run, depends on
the seed alone; ``--jobs`` runs go on at the same time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baseline_samplers import BASELINES, known
from cases import BenchmarkCase, chosen_cases

import autoselect
from autoselect.cases.events import Event, StageStarted
from autoselect.runs.files import write_json
from autoselect.study.setup.probing import probe_samples

DEFAULT = "surrogate+search"
SAMPLERS = (DEFAULT, f"{DEFAULT}+full", f"{DEFAULT}+repairs+int16", "tpe", "nsga2", "random", *BASELINES)
"""What is compared: the default sampler also without races, and with all that a search tries."""
FALLBACKS = ("drq", "float", "search")
"""Behind a sampler's name: in place of the case's fallback, as ``surrogate+search+repairs``."""
REPAIRED, INT16, FULL = "repairs", "int16", "full"
"""Behind it, too: with repairs, with 16-bit units, and without races. Without the first two there are none, so that
samplers choose from the same candidates."""
SEEDS = 3
FINISHED = "benchmark.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run."""

    case: BenchmarkCase
    sampler: str
    seed: int
    trials: int
    root: Path
    workers: int

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.root / self.case.name / self.sampler / f"seed_{self.seed}"

    @property
    def finished(self) -> bool:
        """Whether it ran to its end with as many trials."""
        note = self.folder / FINISHED
        return note.exists() and json.loads(note.read_text(encoding="utf-8"))["trials"] == self.trials

    def command(self) -> list[str]:
        """The command of its process."""
        own = ["--one", "--case", self.case.name, "--sampler", self.sampler, "--seed", str(self.seed)]
        model = ["--model", f"{self.case.name}={self.case.model}"]
        sizes = ["--trials", str(self.trials), "--workers", str(self.workers), "--output", str(self.root)]
        return [sys.executable, str(Path(__file__).resolve()), *own, *model, *sizes]


def finished_runs(root: Path, case: str) -> list[tuple[dict[str, Any], autoselect.Run]]:
    """Every finished run of a case, with what was noted of it."""
    notes = sorted(root.glob(f"{case}/*/seed_*/{FINISHED}"))
    return [(json.loads(note.read_text(encoding="utf-8")), autoselect.load_run(note.parent)) for note in notes]


class Probes:
    """Counts the samples that a search runs before its first trial to see what each unit does alone."""

    def __init__(self, search_samples: int) -> None:
        self.samples, self._each = 0, probe_samples(search_samples)

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, StageStarted) and event.stage == "probes":
            self.samples += (event.total or 0) * self._each


def options_of(name: str) -> dict[str, Any]:
    """What a sampler's name and the words behind it say to a search.

    Raises:
        SystemExit: If a word means nothing.
    """
    sampler, *words = name.split("+")
    if unknown := sorted(set(words) - {*FALLBACKS, REPAIRED, INT16, FULL}):
        raise SystemExit(f"{name}: nothing is known of {', '.join(unknown)}.")
    told = {"sampler": sampler, "repairs": REPAIRED in words, "int16": INT16 in words, "racing": FULL not in words}
    fallbacks = [word for word in words if word in FALLBACKS]
    return told | ({"fallback": fallbacks[0]} if fallbacks else {})


def perform(task: Task) -> None:
    """Run one search; what a killed run left is removed first."""
    if task.folder.exists():
        shutil.rmtree(task.folder)
    start, probes = time.perf_counter(), Probes(task.case.samples)
    with known():
        run = autoselect.search(
            task.case.model,
            **task.case.sources,
            metric=task.case.metric,
            trials=task.trials,
            seed=task.seed,
            workers=task.workers,
            early_exit=False,  # Samplers are compared, also where there is nothing to find.
            output=task.folder,
            listener=probes,
            **dict(task.case.options) | options_of(task.sampler),
        )
    shutil.rmtree(task.folder / "front", ignore_errors=True)  # Model files of hundreds of runs would fill the disk.
    note = {
        "case": task.case.name,
        "sampler": task.sampler,
        "seed": task.seed,
        "trials": task.trials,
        "seconds": round(time.perf_counter() - start, 1),
        "search_samples": run.summary["evaluated"]["search"],
        "probe_samples": probes.samples,
        "counts": run.summary["counts"],
        "versions": run.manifest["versions"],
    }
    write_json(task.folder / FINISHED, note)


def start(task: Task) -> bool:
    """Run a task in a process of its own; False if it failed."""
    begun = time.perf_counter()
    done = subprocess.run(task.command(), capture_output=True, text=True, check=False)
    what = f"{task.case.name} {task.sampler} seed {task.seed}"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        print(f"failed: {what}: {lines[-1]}", flush=True)
        return False
    print(f"{time.strftime('%H:%M:%S')} {what}: {time.perf_counter() - begun:.0f} s", flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all that is not finished; exit code 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All with a model by default.")
    parser.add_argument("--model", action="append", default=[], help="NAME=PATH of a model trained elsewhere.")
    parser.add_argument(
        "--sampler", action="append", default=[], help=f"A sampler, or NAME+{REPAIRED}; repeat it. All by default."
    )
    parser.add_argument(
        "--seed",
        action="append",
        type=int,
        default=[],
        help="A seed; repeat it. 0 to 2 by default; samplers that draw nothing have one run.",
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1, help="Of each run.")
    parser.add_argument("--jobs", type=int, default=2, help="Runs at a time.")
    parser.add_argument("--output", type=Path, default=Path("benchmark-runs"), help="Folder of the runs.")
    parser.add_argument("--one", action="store_true", help="Perform the one run named here, in this process.")
    options = parser.parse_args(arguments)
    seeds = options.seed or list(range(SEEDS))
    tasks = [
        Task(
            case=case,
            sampler=sampler,
            seed=seed,
            trials=options.trials,
            root=options.output.resolve(),
            workers=options.workers,
        )
        for seed in seeds
        for case in chosen_cases(options.case, options.model)
        for sampler in options.sampler or SAMPLERS
        if sampler not in BASELINES or seed == seeds[0]
    ]
    if options.one:
        perform(tasks[0])
        return
    left = [task for task in tasks if not task.finished]
    print(f"{len(tasks)} runs, {len(tasks) - len(left)} of them finished", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        if not all(list(pool.map(start, left))):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
