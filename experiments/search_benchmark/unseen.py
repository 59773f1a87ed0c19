"""Runs what searches found on many samples that no search ever saw, and keeps each candidate's rows of evidence.

Candidates that lose far more than anybody allows on the search samples are left out: no figure looks at them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from bench import finished_runs
from cases import BenchmarkCase, all_cases

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.events import ignore
from autoselect.cases.files import FLOAT
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.prepare import Case, prepare_case
from autoselect.cases.settings import make_settings
from autoselect.cases.settled import Facts, settle
from autoselect.data.kinds import Samples
from autoselect.data.specs import load_object
from autoselect.domain.recipe import Recipe
from autoselect.isolation.pool import WorkerPool
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.runs.records import Scores, TrialRecord
from autoselect.scoring.metrics import make_metric
from autoselect.study.recording.optuna_study import read_records

MOST = 0.06
"""Share of float's score, or of 1, beyond which a candidate's drop on the search samples is of no interest."""


def records_of(folder: Path) -> list[TrialRecord]:
    """All trials of a run in their order."""
    return read_records(folder / "study.journal")


def within_reach(scores: Scores) -> bool:
    """Whether a candidate may keep a drop that somebody allows."""
    return scores.drop <= MOST * max(abs(scores.metric + scores.drop), 1.0)


def candidates(runs: Path, case: str) -> Iterator[tuple[str, Recipe]]:
    """The distinct candidates of all finished runs of a case."""
    known = set()
    for _, run in finished_runs(runs, case):
        for record in records_of(run.directory):
            if record.scores and record.recipe and within_reach(record.scores) and record.scores.sha256 not in known:
                known.add(record.scores.sha256)
                yield record.scores.sha256, record.recipe


def opened(chosen: BenchmarkCase, pool: WorkerPool, root: Path, evaluation: Samples | None = None) -> Case:
    """Prepare a case as a search does, with the samples that it scores on or others."""
    sources = chosen.sources if evaluation is None else {**chosen.sources, "evaluation": evaluation}
    said = make_settings(metric=chosen.metric, allow_overlap=evaluation is not None, **chosen.options)
    ingredients = Ingredients(
        model=chosen.model or Path(), metric=make_metric(chosen.metric), evaluator=None, **sources
    )
    case = prepare_case(
        ingredients,
        settle(said, Facts()),
        root=root,
        pool=pool,
        quantizer=pool,
        cache_root=cache_directory(),
        listener=ignore,
    )
    case.references.wait("search", pool, ignore)
    return case


def observe(chosen: BenchmarkCase, runs: Path, rows: Path, workers: int, every: int = 1) -> None:
    """Keep the rows of the float model and of each candidate of a case that has none yet, on each so manieth sample."""
    folder = rows / chosen.name
    folder.mkdir(parents=True, exist_ok=True)
    left = [(sha, recipe) for sha, recipe in candidates(runs, chosen.name) if not (folder / f"{sha}.npy").exists()]
    if not left and (folder / f"{FLOAT}.npy").exists():
        return
    with tempfile.TemporaryDirectory(prefix="unseen-") as work:
        root = Path(work)
        with WorkerPool(workers, log=root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            samples = load_object(f"parts:{chosen.data}_unseen", purpose="the unseen samples")
            case = opened(chosen, pool, root / "case", evaluation=lambda: islice(samples(), 0, None, every))
            np.save(folder / f"{FLOAT}.npy", pool.call(score_jobs.observe, case.files.root, FLOAT, "search")[:, 0])
            for place in range(0, len(left), workers):  # A few at a time: their files are removed again.
                _observe_some(pool, case, left[place : place + workers], folder)
    print(f"{time.strftime('%H:%M:%S')} {chosen.name}: {len(left)} candidates observed", flush=True)


def _observe_some(pool: WorkerPool, case: Case, some: Sequence[tuple[str, Recipe]], folder: Path) -> None:
    root = case.files.root
    built = [(sha, pool.call(build_jobs.build, root, recipe.to_json()).sha256) for sha, recipe in some]
    for sha, again in built:
        if sha != again:
            raise SystemExit(f"{sha} was built by another version: its bytes are others now. Run bench.py again.")
    running = [(sha, pool.submit(score_jobs.observe, root, sha, "search")) for sha, _ in built]
    for sha, future in running:
        np.save(folder / f"{sha}.npy", future.result()[:, 0])
        for kept in root.glob(f"*/{sha}.*"):
            kept.unlink()


def main(arguments: Sequence[str] | None = None) -> None:
    """Observe the candidates of all finished runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="--output of bench.py.")
    parser.add_argument("--rows", type=Path, required=True, help="Folder of the rows; what is there stays.")
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All with runs by default.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="Run each so manieth sample; the same for all rows.")
    options = parser.parse_args(arguments)
    for name, case in all_cases({}).items():
        if finished_runs(options.runs, name) and (not options.case or name in options.case):
            observe(case, options.runs, options.rows, options.workers, options.every)


if __name__ == "__main__":
    main()
