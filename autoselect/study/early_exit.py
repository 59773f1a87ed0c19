"""Whether a search has anything to do once its baselines are scored."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path

from autoselect.cases import evidence_jobs
from autoselect.domain.picks import DEFAULT_DROPS
from autoselect.domain.quantities import BY_COLUMN
from autoselect.domain.words import asked, lost_at_most
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.runs.records import Scores
from autoselect.study.loop import Stop
from autoselect.study.recording.optuna_study import SearchStudy
from autoselect.study.request import Request
from autoselect.study.yardstick import Yardstick


def stop_of(request: Request, yardstick: Yardstick, root: Path, pool: Workers, study: SearchStudy) -> Stop:
    """The search has nothing to do where the all-integer model of 8 bits is sure to be as good as is asked for."""
    settings = request.settings
    if request.members:
        return lambda _: "nothing is proposed beside the members of other runs"

    def reason(scored: Sequence[Scores]) -> str | None:
        if not settings.early_exit or settings.keep_float:
            return None
        if request.metric_name in DEFAULT_DROPS and settings.max_drop is None:
            return None  # Float is perfect by such a metric, and nobody said how close is close enough.
        if not all(BY_COLUMN[column].integers_are_best for column in settings.cost_columns):
            return None
        narrow = {r.scores.sha256 for r in study.records() if r.scores and r.recipe and not r.recipe.int16_nodes}
        integers = (s for s in scored if s.float_ops == 0 and s.sha256 in narrow)
        integer = min(integers, key=lambda s: (s.drop, s.sha256), default=None)
        if integer is None or max(yardstick.violations(integer).values()) > 0.0:
            return None
        # NaN with an evaluator: of one number nobody knows how sure it is. For metrics that are no means it is measured
        # for this one model, unless it is of an earlier process, which found it not good enough.
        bound = integer.drop_bound
        if math.isnan(bound) and integer.samples:
            with contextlib.suppress(TrialError):
                paired = pool.call(evidence_jobs.paired, root, integer.sha256)
                bound = math.nan if paired is None else paired.bound
        if not bound <= yardstick.allowed_drop:
            return None
        return (
            "the all-integer model is good enough: with 95 % confidence it "
            f"{lost_at_most(bound, request.metric_name)}; {asked(yardstick.allowed_drop, request.metric_name)}"
        )

    return reason
