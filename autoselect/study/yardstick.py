"""What candidates are measured by: float's figures and limits."""

from __future__ import annotations

from dataclasses import dataclass

from autoselect.domain.objectives import Constraints, Direction, drop_from, score_at
from autoselect.domain.rule import BREAK_PRICE, Rule
from autoselect.runs.records import Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """What a candidate's score is compared with.

    ``allowed_drop`` is what a recommended model may lose, in the metric's units; ``break_price`` what breaking that
    limit costs, in float's penalties. ``usual_drop`` is what it may lose where no limit is set; 0 where unknown.
    ``least_penalty`` is the least difference between two models' penalties that makes one the cheaper, in the target's
    unit.
    """

    float_score: float
    float_size_bytes: int
    float_penalty: float
    direction: Direction
    constraints: Constraints
    allowed_drop: float
    break_price: float = BREAK_PRICE
    usual_drop: float = 0.0
    least_penalty: float = 0.5

    @property
    def rule(self) -> Rule:
        """The rule by which a candidate is recommended."""
        return Rule(
            allowed_drop=self.allowed_drop,
            float_penalty=self.float_penalty,
            float_size_bytes=self.float_size_bytes,
            break_price=self.break_price,
            usual_drop=self.usual_drop,
        )

    def drop(self, score: float) -> float:
        """Loss against float, in the metric's units."""
        return drop_from(self.float_score, score, self.direction)

    def score(self, drop: float) -> float:
        """The score that is worse than float's by a drop."""
        return score_at(self.float_score, drop, self.direction)

    def steps(self, spacing: float) -> dict[str, float]:
        """The least difference that counts, by cost; with other costs every difference counts."""
        # A smaller difference is no reason to take one of two models.
        return {"size_bytes": spacing * 0.01 * self.float_size_bytes, "penalty": spacing * self.least_penalty}

    def violations(self, scores: Scores) -> dict[str, float]:
        """How far each constraint is exceeded; at most 0 if it is met."""
        return self.constraints.violations(drop=scores.drop, size_bytes=scores.size_bytes, penalty=scores.penalty)
