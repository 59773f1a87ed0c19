"""Compares what is built with what was forecast of it; knows no scores."""

from __future__ import annotations

from collections.abc import Sequence

from autoselect.cases.build_jobs import BuildReply
from autoselect.domain.recipe import Recipe
from autoselect.domain.states import further_of, left_out_of
from autoselect.runs.records import TrialRecord
from autoselect.study.proposing.observations import Reader
from autoselect.study.proposing.problem import Problem


class ForecastCheck:
    """Tells builds that are unlike their forecasts, and keeps the sampler from taking others for their twins."""

    def __init__(self, problem: Problem, template: Recipe) -> None:
        """Check a search.

        Args:
            problem: Forecasts, and is told what it forecast wrongly.
            template: What the search's recipes have in common. Of others, some baselines, nothing was forecast.
        """
        self._problem, self._reader = problem, Reader(problem=problem, template=template)

    def difference(self, recipe: Recipe, built: BuildReply) -> str:
        """How a build is unlike its forecast, in words; empty if it is alike, or if nothing was forecast of it.

        A candidate that is unlike is :meth:`distrusted <distrust>` from then on.
        """
        if not self._reader.is_ours(recipe):
            return ""
        forecast = self._problem.forecast_of(left_out_of(recipe), further_of(recipe), recipe.repairs)
        kinds = zip(self._problem.order, forecast.kinds, strict=False)
        differences = [f"{n!r} is {built.kinds[n]}, not {k}" for n, k in kinds if built.kinds.get(n, k) != k]
        if built.size_bytes != forecast.size_bytes:
            differences.insert(0, f"it has {built.size_bytes} bytes, not {forecast.size_bytes}")
        if differences:
            self.distrust(recipe)
        return ", ".join([*differences[:3], *([f"and {len(differences) - 3} more"] if len(differences) > 3 else [])])

    def distrust(self, recipe: Recipe) -> None:
        """Let the sampler take no other candidate for a twin of this one."""
        self._problem.distrust(self._reader.mask(recipe))


def unlike_forecasts(records: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The first record of each recipe that was built unlike its forecast."""
    first_records: dict[str, TrialRecord] = {}
    for record in records:
        if record.forecast_error and record.recipe is not None:
            first_records.setdefault(record.recipe.fingerprint, record)
    return list(first_records.values())


def warnings_of(records: Sequence[TrialRecord]) -> list[str]:
    """What a user should know of them: one sentence or none."""
    unlike = unlike_forecasts(records)
    if not unlike:
        return []
    first, recipes = unlike[0], {r.recipe.fingerprint for r in records if r.recipe is not None}
    return [
        f"{len(unlike)} of {len(recipes)} candidates differ from their forecast; trials.csv says how "
        f"(forecast_error). The first is {first.id}: {first.forecast_error}. Their figures are those of the files. "
        "Please report this with the model."
    ]
