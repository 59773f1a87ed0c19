"""Searches by one number, simulated on many draws of images: what is recommended with and without closeness."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "evidence")]
import rows  # noqa: E402 - found by the path above
import scenes  # noqa: E402

import autoselect  # noqa: E402
from autoselect.domain.rule import Rule, Standing  # noqa: E402
from autoselect.runs.files import write_text  # noqa: E402
from autoselect.runs.records import Scores  # noqa: E402
from autoselect.study.finishing.certainty import expected_drops, link_of  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

RESULTS = HERE / "results"
DRAWS = 500
SIZES = (10, 20, 40, 80, 250)
LIMITS = (0.01, 0.02, 0.05)
"""Shares of float's score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Candidates with what each image adds to their score.

    Attributes:
        title: In the table.
        parts: Of each candidate, shape (n_candidates, n_images, ...).
        of_float: Of the float model, shape (n_images, ...).
        score: Makes a score of the parts of some images.
        sqnr_db: Closeness of each candidate.
        penalty: Of each, then float's.
    """

    title: str
    parts: np.ndarray
    of_float: np.ndarray
    score: Callable[[np.ndarray], float]
    sqnr_db: np.ndarray
    penalty: np.ndarray
    float_penalty: float


def segmentation(runs: Path, model: Path) -> Case:
    """Members of the fronts of run.py, on the search and held-out images of two draws."""
    files: dict[str, tuple[Path, float, float]] = {}
    for folder in sorted(runs.glob("one-number-[0-9]")):
        run = autoselect.load_run(folder)
        for row in run.front.to_dict("records"):
            files[row["sha256"]] = (folder / row["file"], row["sqnr_db"], row["penalty"])
    contents = [model.read_bytes(), *(path.read_bytes() for path, _, _ in files.values())]
    counts = []
    for content in contents:
        runner, found = Runner(content), []
        for draw in (0, 1):
            os.environ[scenes.DRAW] = str(draw)
            found += [scenes.confusions(runner, split) for split in ("search", "heldout")]
        counts.append(np.concatenate(found).astype(np.float32))
    _, sqnr_db, penalty = zip(*files.values(), strict=True)
    return Case(
        title="segmentation per tensor, mean IoU",
        parts=np.stack(counts[1:]),
        of_float=counts[0],
        score=scenes.mean_iou,
        sqnr_db=np.array(sqnr_db),
        penalty=np.array(penalty),
        float_penalty=80.0,
    )


def of_evidence(name: str) -> Case:
    """A case of the experiment on evidence, as if an evaluator returned the share of hits."""
    kept = rows.read(name)
    return Case(
        title=rows.CASES[name].title,
        parts=kept.hits,
        of_float=kept.float_hits,
        score=lambda hits: float(hits.mean()),
        sqnr_db=kept.decibels.mean(axis=1),
        penalty=np.array([s.penalty for s in kept.scores]),
        float_penalty=kept.float_penalty,
    )


def standings(case: Case, chosen: np.ndarray) -> tuple[list[Standing], float]:
    """The candidates as a search sees them that has one number of these images, and float's score."""
    base = case.score(case.of_float[chosen])
    drops = [base - case.score(parts[chosen]) for parts in case.parts]
    empty = dict.fromkeys(Scores.__dataclass_fields__, 0)
    scores = [
        replace(
            Scores(**{**empty, "fallbacks": {}, "compiled": {}, "quantities": {}}),  # type: ignore[arg-type]
            sha256=f"{place:010d}",
            drop=drop,
            drop_noise=0.0,
            drop_bound=math.nan,
            sqnr_db=float(near),
            divergence=float(10.0 ** (-near / 10.0)),
            penalty=float(penalty),
            off_chip=None,
        )
        for place, (drop, near, penalty) in enumerate(zip(drops, case.sqnr_db, case.penalty, strict=True))
    ]
    found = expected_drops(scores, link_of(scores))
    figures = zip(scores, found.drops.tolist(), found.beyond.tolist(), strict=True)
    return [replace(s.standing, drop=drop, bound=drop + beyond) for s, drop, beyond in figures], base


def simulated(case: Case, size: int, limit: float) -> list[str]:
    """Cells of one row: broken limits, those broken twice over, and mean penalty; without closeness, then with it."""
    rng, whole = np.random.default_rng(0), case.score(case.of_float)
    truth = np.array([whole - case.score(parts) for parts in case.parts])
    broken: dict[bool, list[tuple[bool, bool, float]]] = {False: [], True: []}
    for _ in range(DRAWS):
        chosen = rng.choice(len(case.of_float), size, replace=False)
        found, base = standings(case, chosen)
        rule = Rule(
            allowed_drop=limit * base,
            float_penalty=case.float_penalty,
            float_size_bytes=1.0,
            usual_drop=0.01 * base,
        )
        for counts, outcomes in broken.items():
            seen = found if counts else [replace(m, is_bounded=True) for m in found]
            place = int(rule.recommended(seen).id)
            lost = truth[place] / (limit * whole)
            outcomes.append((lost > 1.0, lost > 2.0, case.penalty[place]))
    cells = []
    for outcomes in broken.values():
        once, twice, penalty = np.mean(np.array(outcomes, dtype=np.float64), axis=0)
        cells += [f"{100 * once:.1f}", f"{100 * twice:.1f}", f"{penalty:.1f}"]
    return cells


def table_of(cases: Sequence[Case]) -> str:
    """A row for each case, number of images and limit."""
    heads = ["case", "images", "limit, % of float's score"]
    for name in ("by the number", "with closeness"):
        heads += [f"{name}: breaks the limit, %", "twice over, %", "penalty"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for case in cases:
        for size in (size for size in SIZES if size < len(case.of_float) / 2):
            for limit in LIMITS:
                cells = [case.title, str(size), f"{100 * limit:.0f}", *simulated(case, size, limit)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="Of train.py.")
    parser.add_argument("--runs", type=Path, default=Path("one-number-runs"), help="Of run.py.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    cases = [segmentation(options.runs, options.model), *map(of_evidence, rows.CASES)]
    told = table_of(cases)
    write_text(options.results / "simulated.md", told)
    print(told)


if __name__ == "__main__":
    main()
