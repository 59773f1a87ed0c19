"""Which candidate is recommended: the one that is expected to cost least, by what the samples tell of its loss.

The rule, as :doc:`/explanation` has it::

    price = penalty / float's + DETAIL * (bytes / float's + error / outputs)
    cost  = (1 - p) * price + p * max(price, break_price) + EXCESS * log(1 + excess / allowed drop)

with p, the chance that the candidate loses more than allowed, and excess, what it is expected to lose beyond that. The
loss of a candidate is a normal quantity. Its mean is the expected drop, or 0 if that is negative. Its standard
deviation is such that the loss exceeds the mean by more than ``bound - drop`` in 5 % of cases. If no bound is of the
candidate's own samples and its outputs are far from float's, its score does not count: see :data:`FAR_DB`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

BREAK_PRICE = 2.0
"""Price of a model that breaks the limit, in penalties of the float model: the user ships float instead, which costs 1,
and has searched for nothing, which counts as much again.

At a break price of 2, searches that are simulated on three cases recommend a model that breaks the limit in
5.9 % on average, and recommended models have a mean penalty of 19.3, where float has 80; at 1.5 it
is 7.5 % at 18.0, at 3 it is 5.0 % at 20.5 (``experiments/evidence``).
"""

DETAIL = 0.02
"""What bytes and error count beside the penalty: a file as large as float's, or outputs that are all error, cost this
share of float's penalty. It parts candidates that cost the accelerator the same."""

EXCESS = 0.05
"""What parts candidates that are sure to break the limit: the one that breaks it least comes first."""

FAR_DB = 20.0
"""Outputs that are further than this from float's, an error of a hundredth of their power, do not go with a score like
float's: few samples cannot tell. Of 112 candidates of eight cases that are as far, none keeps a limit of 1 % of float's
score (``experiments/one_number``)."""

_ONE_SIDED = NormalDist().inv_cdf(0.95)
_NORMAL = NormalDist()
_LEAST = 1e-12
"""Scale of a quantity that is 0, so that it can be divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a candidate once it is scored.

    Attributes:
        id: The candidate's.
        drop: Loss of the metric against the float model, in its units, as expected on other samples; negative where it
            is better.
        bound: What that loss is at most, with a confidence of 95 %; infinite where nothing is known of it.
        fidelity: How close the outputs are to the float model's, as a signal-to-noise ratio in decibels; infinite where
            unknown.
        size_bytes: Size of the file, or what it takes packed if an objective of the run is that.
        penalty: Fragmentation penalty, 0 for an all-integer model of 8 bits.
        left_ops: Ops that the accelerator does not run: where no compiler decides, those that compute in float.
        is_bounded: Whether the bound is of the candidate's own samples. A bound that is guessed from other candidates,
            or infinite, proves nothing.
    """

    id: str
    drop: float
    bound: float
    fidelity: float
    size_bytes: float
    penalty: float
    left_ops: int = 0
    is_bounded: bool = True

    @property
    def risk(self) -> tuple[bool, float]:
        """Sort key by possible loss: finite bounds come first, then candidates without one by their expected loss.

        A gain counts as a loss of 0.
        """
        is_unknown = math.isinf(self.bound)
        return is_unknown, max(self.drop if is_unknown else self.bound, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is asked of a candidate, and what it costs.

    Attributes:
        allowed_drop: What it may lose, in the metric's units.
        float_penalty: Penalty of the float model.
        float_size_bytes: Size of the float model.
        break_price: What breaking the limit costs, see :data:`BREAK_PRICE`.
        usual_drop: The drop that is allowed where no limit is set, for which :data:`FAR_DB` holds; 0 where unknown.
    """

    allowed_drop: float
    float_penalty: float
    float_size_bytes: float
    break_price: float = BREAK_PRICE
    usual_drop: float = 0.0

    @property
    def far_db(self) -> float:
        """Closeness below which outputs are far from float's: the error may grow as the allowed drop does."""
        times = self.allowed_drop / self.usual_drop if self.usual_drop > 0.0 else 1.0
        return FAR_DB - 20.0 * math.log10(max(times, 1.0))

    def is_far(self, standing: Standing) -> bool:
        """Whether the outputs are far from float's, and nobody knows how sure the score is that says otherwise."""
        return not standing.is_bounded and standing.fidelity < self.far_db

    def loss(self, standing: Standing) -> float:
        """What the candidate is taken to lose: of what is far as much as its error says, and as its score at least."""
        if not self.is_far(standing):
            return standing.drop
        error: float = 10.0 ** ((self.far_db - standing.fidelity) / 20.0)
        return max(standing.drop, self.allowed_drop * error)

    @property
    def price_of_float(self) -> float:
        """What shipping the float model costs."""
        return self.price(penalty=self.float_penalty, size_bytes=self.float_size_bytes)

    def certifies(self, standing: Standing) -> bool:
        """Whether the candidate's own samples prove that it keeps the limit."""
        return standing.is_bounded and standing.bound <= self.allowed_drop

    def chance_to_break(self, standing: Standing) -> float:
        """How likely the candidate loses more than allowed.

        The loss is normal, see the module. If the bound is infinite, the chance is a half as long as the expected drop
        is within the allowed one; beyond, it rises with the expected drop towards 1. What is far is sure to do so.
        """
        if self.is_far(standing):
            return 1.0
        if math.isinf(standing.bound):
            allowed = max(self.allowed_drop, _LEAST)
            return 1.0 - 0.5 * allowed / max(standing.drop, allowed)
        return _NORMAL.cdf(-self._room(standing))

    def is_contradicted(self, drop: float, low: float | None) -> bool:
        """Whether held-out samples say that a candidate loses more than the allowed drop.

        They do if the whole interval of its loss lies beyond the allowed drop. If no interval is known, they do if the
        loss is more than twice the allowed drop.

        Args:
            drop: Loss of the candidate against the float model on held-out samples, in the metric's units.
            low: Lower end of the 95 % interval of that loss; None if no interval is known.
        """
        return drop > 2.0 * self.allowed_drop if low is None else low > self.allowed_drop

    def price(self, *, penalty: float, size_bytes: float, fidelity: float = math.inf) -> float:
        """What a candidate costs that keeps the limit, in float's penalties.

        Args:
            penalty: The candidate's.
            size_bytes: Size of its file.
            fidelity: Signal-to-noise ratio of its outputs, dB.
        """
        error = float(10.0 ** (-fidelity / 20.0))
        return penalty / (self.float_penalty or 1.0) + DETAIL * (size_bytes / (self.float_size_bytes or 1.0) + error)

    def cost(self, standing: Standing) -> float:
        """What the candidate is expected to cost, in float's penalties."""
        own = self.price(penalty=standing.penalty, size_bytes=standing.size_bytes, fidelity=standing.fidelity)
        chance = self.chance_to_break(standing)
        beyond = EXCESS * math.log1p(self._excess(standing) / max(self.allowed_drop, _LEAST))
        return (1.0 - chance) * own + chance * max(own, self.break_price) + beyond

    def recommended(self, standings: Iterable[Standing]) -> Standing:
        """The candidate that is expected to cost least.

        Args:
            standings: At least one.
        """
        return min(standings, key=self.order)

    def order(self, standing: Standing) -> tuple[float, float, str]:
        """Sort key by preference: the recommended candidate comes first."""
        return self.cost(standing), standing.penalty, standing.id

    def _excess(self, standing: Standing) -> float:
        """What the candidate is expected to lose beyond the allowed drop; of what is far, what its error says."""
        if self.is_far(standing):
            return self.loss(standing) - self.allowed_drop
        if math.isinf(standing.bound):
            return max(standing.drop - self.allowed_drop, 0.0)
        room = self._room(standing)
        return max(self._spread(standing) * (_NORMAL.pdf(room) - room * _NORMAL.cdf(-room)), 0.0)

    def _spread(self, standing: Standing) -> float:
        return max((standing.bound - standing.drop) / _ONE_SIDED, _LEAST)

    def _room(self, standing: Standing) -> float:
        """How far the expected loss is below the allowed one, in standard deviations."""
        return (self.allowed_drop - max(standing.drop, 0.0)) / self._spread(standing)
