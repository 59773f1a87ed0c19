"""A search of many nodes and trials on made-up scores: what an ask, a tell, the journal, a resume and the report cost.

Most trials are cheap moves that are put into the study whole, so that it grows quickly. At some marks the default
sampler is asked, and told.
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
from optuna.trial import create_trial

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "study"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "report"))
from made_run import made_run
from synthetic import Synthetic, synthetic

from autoselect.domain.objectives import Objective
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.report.page.page import write_page
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study.proposing import mutation
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.proposers import random_masks
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.recording.samplers import ProposerSampler
from autoselect.study.recording.trials import attributes_of, opening_attributes

OBJECTIVES = (
    Objective(name="accuracy", direction="maximize"),
    Objective(name="size_bytes", direction="minimize"),
    Objective(name="penalty", direction="minimize"),
)
ASKS = 5
HERE = Path(__file__).resolve().parent


def record_of(number: int, mask: Mask, truth: Synthetic) -> TrialRecord:
    nodes, seen = truth.problem.nodes_of(mask), truth.seen(mask)
    assert seen.loss is not None
    whole = {"segments": 2, "float_ops": len(nodes), "crossing_tensors": 2, "crossing_bytes": 8}
    scores = Scores(
        sha256=f"{number:064x}",
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
    recipe = Recipe(denylisted_nodes=nodes)
    return TrialRecord(number=number, origin="surrogate", recipe=recipe, scores=scores, reused=False, violations={})


def opened(path: Path, truth: Synthetic, space: BoundSpace) -> SearchStudy:
    proposer = SurrogateProposer(truth.problem, 0, None)
    return SearchStudy(path, OBJECTIVES, ProposerSampler(proposer, truth.problem, space, Recipe()))


def added(study: SearchStudy, record: TrialRecord, space: BoundSpace) -> None:
    """Put a finished trial into the study as it would be after an ask and a tell."""
    scores = record.scores
    assert scores is not None
    assert record.recipe is not None
    parameters = study._parameters(record.recipe, space)
    values = [scores.metric, float(scores.size_bytes), scores.penalty]
    trial = create_trial(
        params={name: value for name, (value, _) in parameters.items()},
        distributions={name: distribution for name, (_, distribution) in parameters.items()},
        values=values,
        user_attrs=opening_attributes(record.origin, record.recipe) | attributes_of(record),
    )
    study._study.add_trial(trial)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def grown(path: Path, nodes: int, marks: Sequence[int]) -> list[tuple[str, ...]]:
    """Search to the last mark; a row for each mark."""
    truth = synthetic(nodes, 0)
    toggles = tuple(Toggle(name=f"node:n{i}", nodes=frozenset({f"n{i}"})) for i in range(nodes))
    space = BoundSpace(dimensions=toggles)
    study, rng, rows = opened(path, truth, space), np.random.default_rng(0), []
    masks = [seen.mask for seen in truth.run(random_masks(truth.problem, 0), 20)]
    for number, mask in enumerate(masks):
        added(study, record_of(number, mask, truth), space)
    for mark in marks:
        while len(masks) < mark - ASKS:
            mask = mutation.child(masks[-50:], truth.problem, truth.problem.noise, rng)
            if mask not in masks[-1000:]:
                added(study, record_of(len(masks), mask, truth), space)
                masks.append(mask)
        asks, tells = [], []
        for _ in range(ASKS):
            begun = time.process_time()
            asked = study.ask(space, Recipe())
            asks.append(time.process_time() - begun)
            assert asked is not None
            masks.append(truth.problem.mask_of(asked.recipe.denylisted_nodes))
            record = record_of(asked.number, masks[-1], truth)
            assert record.scores is not None
            begun = time.process_time()
            study.tell(asked, scores=record.scores, reused=False, violations={})
            tells.append(time.process_time() - begun)
        peak, begun = peak_mib(), time.process_time()
        again = opened(path, truth, space)
        assert len(again.records()) == mark
        resume = time.process_time() - begun
        del again
        figures = (median(asks), median(tells), path.stat().st_size / 1e6, resume, peak)
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
    """Write large.md and pages.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--trials", type=int, nargs="+", default=[100, 1000, 5000], help="Marks.")
    parser.add_argument("--only", choices=("large", "pages"), help="Grow a study, or write reports; both by default.")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.only != "pages":
        rows = []
        for nodes in options.nodes:
            with tempfile.TemporaryDirectory() as folder:
                rows += grown(Path(folder) / "study.journal", nodes, options.trials)
        head = ("nodes", "trials", "an ask, s", "a tell, s", "journal, MB", "resume, s", "peak memory, MiB")
        kept(table(head, rows), options.output / "large.md")
    if options.only != "large":
        rows = [page(nodes, trials) for nodes in options.nodes for trials in options.trials]
        head = ("nodes", "trials", "report.html, MB", "written in, s", "opened in, s")
        kept(table(head, rows), options.output / "pages.md")


def kept(text: str, path: Path) -> None:
    """Write a table, and show it."""
    path.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
