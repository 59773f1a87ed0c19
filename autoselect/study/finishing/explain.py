"""Why the front is what it is: what each node and each float island of a pick is estimated to buy and known to cost.

What a node buys is the surrogate's estimate. What an island buys and costs is measured where the search tried the pick
without it, else estimated and forecast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoselect.domain.recipe import Recipe
from autoselect.domain.states import left_out_of
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import Scores, TrialRecord
from autoselect.study.proposing.hypervolume_gain import Link, fit_link
from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.observations import Reader, Seen
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.surrogate import Surrogate, learn

SENSITIVITY_COLUMNS = ("tensor_name", "unit", "probe", "estimate")
"""Columns of ``sensitivity.csv``. Both figures are error power over signal power of the model's outputs that the node's
unit gives in integers: before the first trial, and as the surrogate learned it from all trials (empty until then)."""

ISLAND_COLUMNS = (
    "id",
    "island",
    "nodes",
    "size_bytes",
    "penalty",
    "divergence",
    "divergence_without",
    "id_without",
    "drop_without",
    "drop_gain",
)
"""Columns of ``islands.csv``. Size and penalty are what the island adds to the pick: the difference of the two models
if the pick without the island was scored, else of forecasts. The divergences (error power over signal power of the
outputs) and the gain (loss of the metric that the island is expected to avert) are estimates. Id and drop are those of
the pick without the island, if it was scored."""

_FEWEST = 2
"""A surrogate needs so many candidates to learn from."""


def write_explanations(
    folder: RunFolder, problem: Problem, template: Recipe, records: Sequence[TrialRecord], picks: Mapping[str, str]
) -> None:
    """Write ``sensitivity.csv`` and ``islands.csv``; without records only what is known before the first trial.

    Args:
        folder: Of the run.
        problem: What the sampler knew.
        template: What the search's recipes have in common.
        records: All trials.
        picks: Front member's id by pick name.
    """
    candidates = Reader(problem=problem, template=template).told(records)
    learned = [seen for _, seen in candidates if math.isfinite(seen.log_divergence)]
    surrogate = None
    if len(learned) >= _FEWEST:
        surrogate = Surrogate(problem)
        learn(surrogate, learned)
    write_table(folder.sensitivity, SENSITIVITY_COLUMNS, sensitivity_rows(problem, surrogate))
    write_table(folder.islands, ISLAND_COLUMNS, island_rows(problem, surrogate, candidates, set(picks.values())))


def sensitivity_rows(problem: Problem, surrogate: Surrogate | None) -> Iterator[dict[str, object]]:
    """A row for each node that the search may move, in graph order of its units."""
    terms = surrogate.terms.tolist() if surrogate is not None else [""] * len(problem.units)
    for place, (unit, term) in enumerate(zip(problem.units, terms, strict=True)):
        for name in sorted(unit.nodes):
            yield {"tensor_name": name, "unit": place, "probe": unit.sensitivity, "estimate": term}


def island_rows(
    problem: Problem, surrogate: Surrogate | None, candidates: Sequence[tuple[TrialRecord, Seen]], wanted: set[str]
) -> Iterator[dict[str, object]]:
    """A row for each island of the wanted candidates that the units can express."""
    scored = {seen.mask: record.scores for record, seen in candidates if record.scores is not None}
    oracle = _Oracle.made(surrogate, [seen for _, seen in candidates])
    done: set[str] = set()
    for record, seen in candidates:
        if record.id not in wanted or record.id in done or record.recipe is None:
            continue
        if problem.nodes_of(seen.mask) != left_out_of(record.recipe):
            continue
        done.add(record.id)
        for number, island in enumerate(problem.islands(problem.out_of_integers(seen.mask))):
            without = scored.get(seen.mask.without(island))
            row = _island_row(problem, oracle, seen.mask, island, record.scores, without)
            yield {"id": record.id, "island": number, **row}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Oracle:
    """What is expected of candidates that were not scored."""

    surrogate: Surrogate
    link: Link

    @staticmethod
    def made(surrogate: Surrogate | None, seen: Sequence[Seen]) -> _Oracle | None:
        """An oracle, or None if too little is known."""
        points = [(s.log_divergence, s.loss) for s in seen if s.loss is not None and math.isfinite(s.log_divergence)]
        if surrogate is None or len(points) < _FEWEST:
            return None
        return _Oracle(surrogate=surrogate, link=fit_link(*np.array(points, dtype=np.float64).T))

    def of(self, mask: Mask, rest: Mask) -> dict[str, object]:
        """A candidate against the same without an island."""
        belief = self.surrogate.believe([mask, rest])
        losses = self.link.losses(belief).mean(axis=1)
        return {
            "divergence": math.exp(belief.mean[0]),
            "divergence_without": math.exp(belief.mean[1]),
            "drop_gain": float(losses[1] - losses[0]),
        }


def _island_row(
    problem: Problem,
    oracle: _Oracle | None,
    mask: Mask,
    island: Units,
    pick: Scores | None,
    without: Scores | None,
) -> dict[str, object]:
    """What an island of a pick costs and buys.

    Args:
        problem: What the sampler knew.
        oracle: What is expected of the outputs, with the island and without it; None leaves that out.
        mask: The pick.
        island: Its units.
        pick: Scores of the pick. Size and penalty are those of these scores less those of ``without``.
        without: Scores of the pick without the island; size and penalty are forecasts if either is None.
    """
    rest = mask.without(island)
    whole, less = (pick, without) if pick and without else (problem.forecast(mask), problem.forecast(rest))
    row: dict[str, object] = {
        "nodes": json.dumps(sorted(problem.nodes_of(Mask(island)) - problem.pinned)),
        "size_bytes": whole.size_bytes - less.size_bytes,
        "penalty": whole.penalty - less.penalty,
    }
    if oracle is not None:
        row |= oracle.of(mask, rest)
    if pick and without:
        row |= {"id_without": without.sha256[:10], "drop_without": without.drop}
    return row
