"""Builds and scores random candidates of a case on all cores: what a search could have found; knows no sampler.

Candidates with equal bytes are scored once. Rows are appended as they come, and a second start goes on where the
first ended.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from itertools import chain, combinations, compress, product
from pathlib import Path
from typing import Any

import numpy as np
from cases import BenchmarkCase, chosen_cases

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.events import ignore
from autoselect.cases.files import FLOAT
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.prepare import Case, prepare_case
from autoselect.cases.settings import make_settings
from autoselect.cases.settled import Facts, Settled, settle
from autoselect.data.kinds import Samples
from autoselect.domain.layers import LayerTable
from autoselect.domain.objectives import drop_from
from autoselect.domain.recipe import Recipe
from autoselect.domain.search_space import Toggle
from autoselect.errors import TrialError
from autoselect.isolation.pool import WorkerPool, result_of
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.runs.files import write_bytes
from autoselect.scoring.metrics import make_metric
from autoselect.study.setup.baselines import recipe_for
from autoselect.study.setup.problem import units_of
from autoselect.study.setup.space_file import bind, read_space

COLUMNS = ("sha256", "mask", "metric", "drop", "sqnr_db", "size_bytes", "penalty", "segments", "float_ops")
FEW_MASKS = 4096
"""Cases whose search space has at most so many sets are swept whole."""

RANKINGS = ("rmse_per_scale", "mean_squared_error", "range", "sqnr_db")
LEAST_DROP = {"accuracy": 0.01, "agreement": 0.01, "psnr": 0.1}
"""The drop's reference lies at least this far out, so that noise on a model that loses nothing does not fill it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A prepared case with workers at hand, and the float model's figures."""

    case: Case
    settings: Settled
    pool: WorkerPool
    direction: Any
    float_score: float
    float_built: build_jobs.BuildReply

    @property
    def root(self) -> Path:
        """The case folder."""
        return self.case.files.root

    @property
    def choices(self) -> list[frozenset[str]]:
        """What the case's search space lets move together."""
        file, units = read_space(self.settings.search_space), units_of(self.case)
        space = bind(file, self.case.layers, keep_float=frozenset(), keep_int=frozenset(), units=units)
        return [dimension.nodes for dimension in space.dimensions if isinstance(dimension, Toggle)]

    def recipe(self, mask: Sequence[bool]) -> Recipe:
        """The recipe that denylists the nodes marked in ``mask``."""
        names = frozenset(n.name for n, on in zip(self.case.layers.nodes, mask, strict=True) if on)
        return recipe_for(names, self.settings.template, {})

    def row(self, mask: str, built: build_jobs.BuildReply, score: score_jobs.ScoreReply) -> dict[str, object]:
        """One row of the sweep."""
        drop = drop_from(self.float_score, score.value, self.direction)
        figures = {name: built.fragmentation[name] for name in ("penalty", "segments", "float_ops")}
        own = {"sha256": built.sha256, "mask": mask, "metric": score.value, "drop": drop, "sqnr_db": score.sqnr_db}
        return own | {"size_bytes": built.size_bytes} | figures


def opened(chosen: BenchmarkCase, pool: WorkerPool, root: Path, evaluation: Samples | None = None) -> Opened:
    """Prepare a case as a search does, with the samples that it scores on or others."""
    sources = chosen.sources if evaluation is None else {**chosen.sources, "evaluation": evaluation}
    metric = make_metric(chosen.metric)
    said = make_settings(metric=chosen.metric, allow_overlap=evaluation is not None, **chosen.options)
    settings = settle(said, Facts())
    ingredients = Ingredients(model=chosen.model or Path(), metric=metric, evaluator=None, **sources)
    case = prepare_case(
        ingredients, settings, root=root, pool=pool, quantizer=pool, cache_root=cache_directory(), listener=ignore
    )
    case.references.wait("search", pool, ignore)
    return Opened(
        case=case,
        settings=settings,
        pool=pool,
        direction=metric.direction,
        float_score=pool.call(score_jobs.score, root, FLOAT, "search", False).value,
        float_built=pool.call(build_jobs.describe_float, root),
    )


def masks(layers: LayerTable, choices: Sequence[frozenset[str]], seed: int) -> Iterator[tuple[bool, ...]]:
    """Which nodes to denylist: all sets of choices where these are few, else ends, runs and random sets.

    Args:
        layers: Of the case.
        choices: What its search space lets move together.
        seed: Of the random sets.
    """
    count = len(layers.nodes)
    if 2 ** len(choices) <= FEW_MASKS:
        names = [node.name for node in layers.nodes]
        for on in product((False, True), repeat=len(choices)):
            denylisted = frozenset().union(*compress(choices, on))
            yield tuple(name in denylisted for name in names)
        return
    ends = [ends_of(place_ranking, count) for place_ranking in rankings(layers)]
    structured = chain(chain.from_iterable(ends), contiguous(count))
    at_random = random_masks(rankings(layers), count, np.random.default_rng(seed))
    for mask in structured:
        yield mask
        yield next(at_random)
    yield from at_random


def rankings(layers: LayerTable) -> list[list[int]]:
    """Places of the nodes in graph order and by each statistic."""
    place = {node.name: i for i, node in enumerate(layers.nodes)}
    return [list(range(len(place))), *[[place[name] for name in layers.ranked_by(by)] for by in RANKINGS]]


def ends_of(ranking: Sequence[int], count: int) -> Iterator[tuple[bool, ...]]:
    """All prefixes and suffixes of a ranking."""
    for k in range(count + 1):
        yield _mask(ranking[:k], count)
        yield _mask(ranking[k:], count)


def contiguous(count: int) -> Iterator[tuple[bool, ...]]:
    """All contiguous runs, and all but such a run; long models have so many that only every few ends are taken."""
    step = max(1, count // 32)
    for first, last in combinations(range(0, count + 1, step), 2):
        inside = range(first, min(last, count))
        yield _mask(inside, count)
        yield _mask(set(range(count)) - set(inside), count)


def random_masks(ranked: list[list[int]], count: int, rng: np.random.Generator) -> Iterator[tuple[bool, ...]]:
    """In turn: a random density, one to three random runs, a random density among the ends of a ranking."""
    while True:
        yield tuple(bool(v) for v in rng.random(count) < rng.random())
        runs = [sorted(rng.integers(0, count + 1, 2)) for _ in range(rng.integers(1, 4))]
        yield _mask({i for first, last in runs for i in range(first, last)}, count)
        ranking = ranked[rng.integers(len(ranked))]
        end = list(ranking if rng.random() < 0.5 else reversed(ranking))[: rng.integers(1, count + 1)]
        density = rng.random()
        yield _mask([i for i in end if rng.random() < density], count)


def _mask(places: Sequence[int] | set[int] | range, count: int) -> tuple[bool, ...]:
    chosen = set(places)
    return tuple(i in chosen for i in range(count))


def cut_half_line(table: Path) -> None:
    """Remove what a killed sweep left of a row."""
    content = table.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        write_bytes(table, whole)


class Sweep:
    """Keeps the workers busy and the table growing."""

    def __init__(self, opened_case: Opened, table: Path) -> None:
        self.opened, self.table = opened_case, table
        self.known: dict[str, dict[str, object]] = {}
        self.masks: set[str] = set()
        if table.exists():
            cut_half_line(table)
            with table.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    self.known[row["sha256"]] = dict(row)
                    self.masks.add(row["mask"])
        self.running: dict[Future[Any], tuple[str, build_jobs.BuildReply | None]] = {}
        self.scoring: set[str] = set()
        self.failed = 0

    def run(self, proposals: Iterator[tuple[bool, ...]], distinct: int, seconds: float, slots: int) -> None:
        """Go on until there are so many distinct candidates, no more masks, or no more time."""
        self.table.parent.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + seconds
        with self.table.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            self._fill(proposals, slots)
            while self.running:
                done, _ = wait(self.running, return_when=FIRST_COMPLETED)
                rows = [self._advance(future, *self.running.pop(future)) for future in done]
                writer.writerows(row for row in rows if row is not None)
                file.flush()
                if len(self.known) < distinct and time.monotonic() < end:
                    self._fill(proposals, slots)

    def _fill(self, proposals: Iterator[tuple[bool, ...]], slots: int) -> None:
        while len(self.running) < slots:
            mask = next(proposals, None)
            if mask is None:
                return
            text = "".join("1" if on else "0" for on in mask)
            if text not in self.masks:
                self.masks.add(text)
                recipe = self.opened.recipe(mask).to_json()
                self.running[self.opened.pool.submit(build_jobs.build, self.opened.root, recipe)] = (text, None)

    def _advance(self, future: Future[Any], mask: str, built: build_jobs.BuildReply | None) -> dict[str, object] | None:
        """Take what a worker did; a row where that was a score."""
        try:
            reply = result_of(future)
        except TrialError as exc:
            self.failed += 1
            print(f"failed: {mask}: {exc}", flush=True)
            return None
        if built is None:
            if reply.sha256 not in self.scoring and reply.sha256 not in self.known:
                self.scoring.add(reply.sha256)
                scored = self.opened.pool.submit(score_jobs.score, self.opened.root, reply.sha256, "search", False)
                self.running[scored] = (mask, reply)
            return None
        row = self.known[built.sha256] = self.opened.row(mask, built, reply)
        for kept in self.opened.root.glob(f"*/{built.sha256}.*"):  # Thousands of them would fill the disk.
            kept.unlink()
        if len(self.known) % 100 == 0:
            print(f"{time.strftime('%H:%M:%S')} {len(self.known)} distinct of {len(self.masks)} masks", flush=True)
        return row


def sweep(chosen: BenchmarkCase, options: argparse.Namespace) -> None:
    """Sweep one case."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        root = Path(folder)
        with WorkerPool(options.workers, log=root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            case = opened(chosen, pool, root / "case")
            table = options.output / f"sweep_{chosen.name}.csv"
            work = Sweep(case, table)
            names = [n.name for n in case.case.layers.nodes]
            table.parent.mkdir(parents=True, exist_ok=True)
            table.with_suffix(".nodes.json").write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")
            proposals = masks(case.case.layers, case.choices, options.seed)
            work.run(proposals, options.distinct, options.seconds, options.workers + 1)
            print(f"{chosen.name}: {len(work.known)} distinct, {len(work.masks)} masks, {work.failed} failed")


def references(chosen: BenchmarkCase, workers: int) -> None:
    """Print the line of ``REFERENCES`` of one case, and what it was made of."""
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        root = Path(folder)
        with WorkerPool(workers, log=root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            case = opened(chosen, pool, root / "case")
            count = len(case.case.layers.nodes)
            drops = {}
            recipes = {
                "fiq": case.recipe((False,) * count),
                "drq": replace(case.recipe((True,) * count), fallback="drq"),
            }
            for name, recipe in recipes.items():
                built = pool.call(build_jobs.build, case.root, recipe.to_json())
                value = pool.call(score_jobs.score, case.root, built.sha256, "search", False).value
                drops[name] = drop_from(case.float_score, value, case.direction)
    worst = max(drops.values())
    drop = worst + max(0.1 * max(worst, 0.0), LEAST_DROP[chosen.metric])
    size, penalty = case.float_built.size_bytes, 1.1 * float(case.float_built.fragmentation["penalty"])
    print(f"# {chosen.name}: {count} nodes, drops {drops}, float {case.float_score:.6g}, {size} bytes", flush=True)
    print(f'    "{chosen.name}": Reference(drop={drop:.6g}, size_bytes={size}, penalty={penalty:.6g}),', flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Sweep the chosen cases, or print their reference points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("sweep", "references"))
    parser.add_argument("--case", action="append", default=[], help="A case; repeat it. All by default.")
    parser.add_argument("--model", action="append", default=[], help="NAME=PATH of a model trained elsewhere.")
    parser.add_argument("--output", type=Path, default=Path("sweeps"), help="Folder of the tables.")
    parser.add_argument("--distinct", type=int, default=2000, help="Stop at so many distinct candidates.")
    parser.add_argument("--seconds", type=float, default=3600.0, help="Stop after so long.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    for chosen in chosen_cases(options.case, options.model):
        if options.what == "references":
            references(chosen, options.workers)
        else:
            sweep(chosen, options)


if __name__ == "__main__":
    main()
