"""What candidates cost in the objectives of a run: exact where the graph tells, learned where it is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoselect.domain.quantities import BY_COLUMN
from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask, sides
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem


class CostModel:
    """Costs by column, of candidates that were built and of those that were not.

    A measured column is taken for a sum of one term an atom and state around its mean, fitted by ridge regression:
    latency and cycles are sums over ops. Before anything is measured it is 0 for all.
    """

    def __init__(self, problem: Problem, seen: Sequence[Seen]) -> None:
        """Learn what the problem cannot forecast."""
        self._problem = problem
        measured = [column for column in problem.costs if not BY_COLUMN[column].from_graph]
        self._learned = {column: _fitted(column, seen, problem) for column in measured}

    def points(self, scored: Sequence[Seen]) -> np.ndarray:
        """Losses and costs of scored candidates, shape (n, 1 + n_costs); measured values where there are any."""
        columns = [[s.loss for s in scored], *(self._of_seen(scored, column) for column in self._problem.costs)]
        return np.array(columns, dtype=np.float64).T

    def _of_seen(self, scored: Sequence[Seen], column: str) -> list[float]:
        if column in ("size_bytes", "penalty"):
            return [getattr(s, column) for s in scored]
        expected = self._column([s.mask for s in scored], column)
        return [s.quantities.get(column, float(value)) for s, value in zip(scored, expected, strict=True)]

    def expected(self, masks: Sequence[Mask]) -> list[np.ndarray]:
        """The expected values of candidates for each cost, shape (n,)."""
        return [self._column(masks, column) for column in self._problem.costs]

    def _column(self, masks: Sequence[Mask], column: str) -> np.ndarray:
        if column in self._learned:
            mean, centre, terms, low = self._learned[column]
            inside = sides(masks, len(self._problem.atoms), len(self._problem.states))
            return np.maximum(mean + (inside - centre) @ terms, low)
        forecasts = [self._problem.forecast(mask) for mask in masks]
        if column == "size_bytes":
            return np.array([float(f.size_bytes) for f in forecasts])
        return np.array([f.penalty if column == "penalty" else f.figures[column] for f in forecasts])


_Fit = tuple[float, np.ndarray, np.ndarray, float]
"""Mean of the measured values, centre of the candidates, their terms, and the least value that is believed."""


def _fitted(column: str, seen: Sequence[Seen], problem: Problem) -> _Fit:
    """Fit a column to what was measured."""
    known = [s for s in seen if column in s.quantities]
    rows = sides([s.mask for s in known], len(problem.atoms), len(problem.states))
    if not known:
        return 0.0, np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0.0
    values = np.array([s.quantities[column] for s in known])
    mean, centre = float(values.mean()), rows.mean(axis=0)
    inside = rows - centre
    system = inside @ inside.T + constants.RIDGE * np.eye(len(known))
    terms = inside.T @ np.linalg.solve(system, values - mean)
    # The line says nothing far beyond what was measured, and no cost is far below the least measured one.
    return mean, centre, terms, constants.LEAST_COST * float(values.min())
