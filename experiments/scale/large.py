"""A search of many nodes and trials on made-up scores: what an ask, a tell, the journal, a resume and the report cost.

Most candidates come from cheap moves, so that the study grows quickly; the default sampler is asked at some marks.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "study"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "report"))
from made_run import made_run
from synthetic import Synthetic, synthetic

from autoselect.domain.objectives import Objective
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.report.page.page import write_page
from autoselect.runs.records import Scores
from autoselect.study.proposing import mutation
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer
from autoselect.study.recording.optuna_study import Asked, SearchStudy
from autoselect.study.recording.samplers import ProposerSampler

OBJECTIVES = (
    Objective(name="accuracy", direction="maximize"),
    Objective(name="size_bytes", direction="minimize"),
    Objective(name="penalty", direction="minimize"),
)
ASKS = 5
HERE = Path(__file__).resolve().parent


class Quick:
    """The default sampler where it is asked to think; else a child of the newest candidates."""

    def __init__(self, truth: Synthetic) -> None:
        self.thinks, self._truth, self._rng = True, truth, np.random.default_rng(0)
        self._inner, self._made = SurrogateProposer(truth.problem, 0, None), set[Mask]()

    def propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        mask = self._inner.propose(seen, pending) if self.thinks else None
        while mask is None or mask in self._made:
            noise, parents = self._truth.problem.noise, [s.mask for s in seen[-50:]]
            mask = mutation.child(parents, self._truth.problem, self._truth.terms, noise, self._rng)
        self._made.add(mask)
        return mask


def scores_of(asked: Asked, truth: Synthetic) -> Scores:
    seen = truth.seen(truth.problem.mask_of(asked.nodes))
    assert seen.loss is not None
    whole = {"segments": 2, "float_ops": len(asked.nodes), "crossing_tensors": 2, "crossing_bytes": 8}
    return Scores(
        sha256=f"{asked.number:064x}",
        metric=1.0 - seen.loss,
        drop=seen.loss,
        drop_noise=0.003,
        drop_bound=0.02,
        sqnr_db=-10.0 * seen.log_divergence / np.log(10.0),
        divergence=float(np.exp(seen.log_divergence)),
        size_bytes=int(seen.size_bytes),
        penalty=seen.penalty,
        float_macs_share=0.5,
        samples=1000,
        build_seconds=0.1,
        score_seconds=0.4,
        inference_seconds=0.3,
        fallbacks={},
        **whole,
    )


def opened(path: Path, truth: Synthetic, space: BoundSpace) -> tuple[SearchStudy, Quick]:
    proposer = Quick(truth)
    sampler = ProposerSampler(proposer, truth.problem, space, fallback=Recipe().fallback)
    return SearchStudy(path, OBJECTIVES, sampler), proposer


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def grown(path: Path, nodes: int, marks: Sequence[int]) -> list[tuple[str, ...]]:
    """Search to the last mark; a row for each mark."""
    truth = synthetic(nodes, 0)
    toggles = tuple(Toggle(name=f"node:n{i}", nodes=frozenset({f"n{i}"})) for i in range(nodes))
    space = BoundSpace(dimensions=toggles)
    study, proposer = opened(path, truth, space)
    rows, number = [], 0
    for mark in marks:
        asks, tells = [], []
        while number < mark:
            proposer.thinks = number < 20 or number >= mark - ASKS
            begun = time.process_time()
            asked = study.ask(space, origin="surrogate")
            assert asked is not None
            middle = time.process_time()
            scores = scores_of(asked, truth)
            told = time.process_time()
            study.tell_scores(asked, Recipe(denylisted_nodes=asked.nodes), scores, reused=False, violations={})
            asks.append(middle - begun)
            tells.append(time.process_time() - told)
            number += 1
        peak, begun = peak_mib(), time.process_time()
        again, _ = opened(path, truth, space)
        assert len(again.records()) == mark
        resume = time.process_time() - begun
        del again
        ask, tell = median(asks[-ASKS:]), median(tells)
        figures = (ask, tell, path.stat().st_size / 1e6, resume, peak)
        rows.append((str(nodes), str(mark), *(f"{value:.3g}" for value in figures)))
        print(" | ".join(rows[-1]), flush=True)
    return rows


def page(nodes: int, trials: int) -> tuple[str, ...]:
    """Write a report of that size, and open it in Chromium where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        run = made_run(Path(folder) / "run", nodes=nodes, trials=trials)
        begun = time.process_time()
        path = write_page(run, Path(folder) / "report.html")
        written = time.process_time() - begun
        return (str(nodes), str(trials), f"{path.stat().st_size / 1e6:.1f}", f"{written:.1f}", seconds_to_open(path))


def seconds_to_open(path: Path) -> str:
    """Until the page has run its scripts and drawn."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        return "no browser here"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(120_000)
        begun = time.perf_counter()
        page.goto(path.as_uri(), wait_until="load")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        seconds = time.perf_counter() - begun
        browser.close()
    return f"{seconds:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write large.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1000, 5000], help="Marks.")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    rows = []
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory() as folder:
            rows += grown(Path(folder) / "study.journal", nodes, options.trials)
    head = ("nodes", "trials", "an ask, s", "a tell, s", "journal, MB", "resume, s", "peak memory, MiB")
    text = table(head, rows)
    pages = [page(nodes, trials) for nodes in options.nodes for trials in options.trials]
    text += "\n" + table(("nodes", "trials", "report.html, MB", "written in, s", "opened in, s"), pages)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "large.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
