"""What is broken in each node in plain 8-bit integers, and its cheapest cure, as a table of the run folder."""

from __future__ import annotations

import math
from concurrent.futures import Future

from autoselect.cases import cure_jobs
from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.domain.recipe import Recipe
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.quantize.diagnosing.cures import decibels
from autoselect.runs.files import write_table
from autoselect.runs.folder import RunFolder

CURE_COLUMNS = ("tensor_name", "weights_sqnr_db", "activations_sqnr_db", "broken", "cure", "reason")
"""Columns of ``cures.csv``."""

Cures = dict[str, cure_jobs.Cured]


def start_cures(case: Case, settings: Settled, pool: Workers) -> Future[Cures]:
    """Measure cures on the all-integer model without repairs, because repairs may be the cures."""
    recipe, int16 = Recipe(per_channel=settings.per_channel).to_json(), "int16" in settings.states
    return pool.submit(cure_jobs.cured, case.files.root, recipe, int16, timeout_seconds=settings.trial_timeout)


def write_cures(running: Future[Cures], folder: RunFolder) -> list[str]:
    """Write what was found, in graph order.

    Returns:
        Why nothing was; empty otherwise.
    """
    try:
        cures = result_of(running)
    except TrialError as exc:
        return [f"What is broken in each node could not be measured. {exc}"]
    rows = [
        {
            "tensor_name": name,
            "weights_sqnr_db": _cell(decibels(cure.parts.weights)),
            "activations_sqnr_db": _cell(decibels(cure.parts.activations)),
            "broken": cure.cure.broken,
            "cure": cure.cure.name,
            "reason": cure.cure.reason,
        }
        for name, cure in cures.items()
    ]
    write_table(folder.cures, CURE_COLUMNS, rows)
    return []


def _cell(value: float) -> object:
    return "" if math.isnan(value) else value
