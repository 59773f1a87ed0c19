"""What candidates cost in the objectives of a run: exact where the graph tells, learned where it is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autoselect.domain.quantities import BY_COLUMN
from autoselect.study.proposing import constants
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.problem import Problem


class CostModel:
    """Costs by column, of candidates that were built and of those that were not.

    A measured column is taken for its forecast, if there is one, and a sum of one term a unit and state around a mean,
    fitted by ridge regression: latency and cycles are sums over ops. Before anything is measured that is 0 for all. So
    is what a compiler adds to forecast penalties, if candidates are compiled.
    """

    def __init__(self, problem: Problem, seen: Sequence[Seen]) -> None:
        """Learn what the problem cannot forecast."""
        self._problem = problem
        measured = [column for column in problem.costs if not BY_COLUMN[column].from_graph]
        self._learned = {column: self._fit(column, seen) for column in measured}
        unforeseen = [(s.mask, s.unforeseen) for s in seen if math.isfinite(s.unforeseen)]
        self._unforeseen = _fitted(unforeseen, problem, least=1.0) if unforeseen else None

    def _fit(self, column: str, seen: Sequence[Seen]) -> _Fit:
        """What was measured of a column beyond its forecast."""
        observations = [s for s in seen if column in s.quantities]
        if not BY_COLUMN[column].is_packed:
            measurements = [(s.mask, s.quantities[column]) for s in observations]
            return _fitted(measurements, self._problem, least=constants.LEAST_COST)
        beyond = [(s.mask, s.quantities[column] - self._forecast(s.mask, column)) for s in observations]
        return _fitted(beyond, self._problem, least=-math.inf)

    def _forecast(self, mask: Mask, column: str) -> float:
        """What a packed size is without what is learned of it."""
        return self._problem.forecast(mask).figures[column]

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

    def stored(self, masks: Sequence[Mask]) -> list[float]:
        """What candidates are expected to take where they are stored, see ``quantities.stored_bytes``."""
        packed = next((column for column in self._problem.costs if BY_COLUMN[column].is_packed), "size_bytes")
        return [float(value) for value in self._column(masks, packed)]

    def penalties(self, masks: Sequence[Mask]) -> np.ndarray:
        """The expected penalties of candidates, shape (n,)."""
        forecast = np.array([self._problem.forecast(mask).penalty for mask in masks])
        return forecast if self._unforeseen is None else forecast + self._by(self._unforeseen, masks)

    def _by(self, fit: _Fit, masks: Sequence[Mask]) -> np.ndarray:
        mean, centre, terms, low = fit
        return np.asarray(np.maximum(mean + (self._problem.sides(masks) - centre) @ terms, low))

    def _column(self, masks: Sequence[Mask], column: str) -> np.ndarray:
        if column in self._learned:
            learned = self._by(self._learned[column], masks)
            packed = BY_COLUMN[column].is_packed
            return learned + [self._forecast(mask, column) for mask in masks] if packed else learned
        if column == "penalty":
            return self.penalties(masks)
        forecasts = [self._problem.forecast(mask) for mask in masks]
        return np.array([float(f.size_bytes) if column == "size_bytes" else f.figures[column] for f in forecasts])


_Fit = tuple[float, np.ndarray, np.ndarray, float]
"""Mean of the measured values, centre of the candidates, their terms, and the least value that is believed."""


def _fitted(measurements: Sequence[tuple[Mask, float]], problem: Problem, *, least: float) -> _Fit:
    """Fit a column to what was measured; no value below this share of the least measured one is believed.

    ``least`` is minus infinity if every value is believed.
    """
    rows = problem.sides([mask for mask, _ in measurements])
    if not measurements:
        return 0.0, np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), min(least, 0.0)
    values = np.array([value for _, value in measurements])
    mean, centre = float(values.mean()), rows.mean(axis=0)
    inside = rows - centre
    system = inside @ inside.T + constants.RIDGE * np.eye(len(measurements))
    terms = inside.T @ np.linalg.solve(system, values - mean)
    # The line says nothing far beyond what was measured, and no cost is far below the least measured one.
    return mean, centre, terms, least * float(values.min()) if math.isfinite(least) else least
