"""The default proposer: the candidate that is expected to add most to the hypervolume.

What a proposal costs is known exactly, or learned where it has to be measured; its loss is uncertain. Thousands of
proposals, made by graph moves, are weighed by their expected gain; at each fourth ask by what may be recommended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from autoselect.domain.pareto import non_dominated
from autoselect.study.proposing import constants, mutation
from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.failures import Failures
from autoselect.study.proposing.hypervolume_gain import FrontVolume, Weight, fit_link, reference_corner
from autoselect.study.proposing.likeness import Likeness
from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.observations import Seen, noise_of
from autoselect.study.proposing.problem import Problem, as_it_is
from autoselect.study.proposing.proposers import all_masks, by_sensitivity, prefixes
from autoselect.study.proposing.recommending import Recommending
from autoselect.study.proposing.surrogate import Surrogate, learn, one_thread

_Weighed = Callable[[Sequence[Mask]], tuple[list[Mask], np.ndarray]]


class SurrogateProposer:
    """Proposes by expected hypervolume gain.

    Until there is something to learn from, it opens with all-integer, all left out, and prefixes of the rankings from
    both ends: leaving out the worst, and keeping only the harmless.
    """

    def __init__(self, problem: Problem, seed: int, budget: int | None = None) -> None:
        """Start without knowledge.

        Args:
            problem: What is known before any score.
            seed: Of all chance.
            budget: Candidates in all, if that is known: the last of them try to correct biases in sequence.
        """
        self._problem = problem
        self._end_from = math.inf if budget is None else (1.0 - constants.END_SHARE) * budget
        self._rng = np.random.default_rng(seed)
        self._surrogate = Surrogate(problem)
        self._pool: dict[Mask, None] = {}
        self._promising: list[Mask] = []
        self._failures = Failures(problem, ())
        self._chosen: tuple[Mask, ...] = ()  # with an earlier proposal, for the next asks
        self._large = len(problem.units) >= constants.LARGE
        self._add(self._ladders())
        self._whole = problem.count <= 1 << constants.ENUMERATED
        if self._whole:
            self._add(all_masks(problem))

    def _most(self, proposals: int) -> int:
        """A number of proposals, or half of it on a large graph."""
        return proposals // 2 if self._large else proposals

    def _drawn(self, masks: list[Mask], most: int) -> list[Mask]:
        """The masks, or so many of them at random."""
        if len(masks) <= most:
            return masks
        return [masks[i] for i in self._rng.choice(len(masks), most, replace=False)]

    def _ladders(self) -> list[Mask]:
        states = range(len(self._problem.states))
        ends = [Mask(), *(self._problem.in_state(self._problem.everything, place) for place in states)]
        masks = [
            *ends,
            *(other for end in ends for other in mutation.repaired(end, self._problem)),
            *(near for end in ends for near in self._drawn(mutation.single_flips(end, self._problem), constants.RUNGS)),
        ]
        for ranking in [by_sensitivity(self._problem), *self._problem.ladders]:
            masks += self._rungs(ranking, self._problem.noise, self._problem.sensitivities)
        kinds: dict[str, Units] = {}
        for i, unit in enumerate(self._problem.units):
            kinds[unit.op_type] = kinds.get(unit.op_type, 0) | 1 << i
        masks += [self._problem.in_state(units, place) for units in kinds.values() for place in states]
        masks += [end.without(units) for units in kinds.values() for end in ends[1:]]
        return masks + [self._problem.unclipped(mask) for mask in masks] if self._problem.clipped else masks

    def _rungs(self, ranking: Sequence[int], noise: np.ndarray, integers: np.ndarray) -> list[Mask]:
        """Prefixes of a ranking: from one end the worst left out, from the other only the harmless in integers.

        Each in each state, and with the error of what is left out balanced against that of the others.
        """
        steps = (
            np.linspace(1, len(ranking), min(len(ranking), self._most(constants.RUNGS))).round().astype(int).tolist()
        )
        ladder = list(prefixes(ranking))
        rungs = [ladder[count] for count in steps]
        masks = [self._problem.in_state(units, place) for place in range(len(noise)) for units in rungs]
        return masks if len(noise) == 1 else masks + [self._problem.balanced(units, noise, integers) for units in rungs]

    def _add(self, masks: Iterable[Mask]) -> None:
        for mask in masks:
            self._pool.setdefault(mask)

    def propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        """The next proposal: an opening, what may be recommended, or what is expected to gain most.

        None if all sets are known, or if no draw finds a new one.
        """
        with one_thread():
            return self._propose(seen, pending)

    def _propose(self, seen: Sequence[Seen], pending: Sequence[Mask]) -> Mask | None:
        taken = {s.mask for s in seen} | set(pending)
        keys = {self._problem.key(mask) for mask in taken}
        self._failures = Failures(self._problem, seen)
        openings = self._opening()
        opening = next((mask for mask in openings if self._is_new(mask, taken, keys)), None)
        learned = [s for s in seen if math.isfinite(s.log_divergence)]
        scored = [s for s in seen if s.loss is not None]
        if opening is not None and len(seen) + len(pending) < len(openings):
            return opening
        if len(learned) < 2 or len(scored) < 2:
            return opening if opening is not None else self._anything(taken, keys)
        while self._chosen:
            mask, *rest = self._chosen
            self._chosen = tuple(rest)
            if self._is_new(mask, taken, keys):
                return mask
        learn(self._surrogate, learned, self._most(constants.LEARNED))
        ask = _Ask(self, seen, pending, taken, keys)
        if len(seen) + len(pending) >= self._end_from and (corrected := ask.best_in_sequence()) is not None:
            return corrected
        best = ask.best()
        if best is not None:
            self._chosen = ask.further(best, len(pending) // constants.UNDER_WAY)
        return best

    def _opening(self) -> list[Mask]:
        """A few candidates that span the trade-off."""
        ranking = by_sensitivity(self._problem)
        noise, integers = self._problem.noise, self._problem.sensitivities
        # Everything in float is the float model again, whose figures are known.
        masks = [
            Mask(),
            *(
                self._problem.in_state(self._problem.everything, p)
                for p, units in enumerate(self._problem.noisy)
                if units
            ),
        ]
        masks += [self._problem.unclipped(mask) for mask in masks]
        for share in constants.OPENING:
            units = sum(1 << i for i in ranking[: round(share * len(ranking))])
            masks.append(self._problem.unclipped(self._problem.balanced(units, noise, integers)))
        return list(dict.fromkeys(map(self._problem.hold, masks)))

    def _is_new(self, mask: Mask, taken: set[Mask], keys: set[object]) -> bool:
        """Whether it may run, the target takes it, and it is neither known nor equal to what is known once built."""
        if self._failures.is_known(mask):
            return False
        forecast = self._problem.forecast(mask)
        return mask not in taken and forecast.key not in keys and forecast.refusal is None

    def _anything(self, taken: set[Mask], keys: set[object]) -> Mask | None:
        for mask in map(self._problem.hold, self._pool):
            if self._is_new(mask, taken, keys):
                return mask
        for _ in range(1000):
            units = self._any_units()
            further, offered = [self._any_units() & form for form in self._problem.forms[1:]], self._problem.offered
            mask = Mask(units, further, offered[int(self._rng.integers(len(offered)))] if len(offered) > 1 else 0)
            mask = self._problem.hold(mask)
            if self._is_new(mask, taken, keys):
                return mask
        return None

    def _any_units(self) -> Units:
        drawn = int.from_bytes(self._rng.bytes((len(self._problem.units) + 7) // 8), "little")
        return drawn & self._problem.everything


class _Ask:
    """One question to a proposer: what all its steps look at."""

    def __init__(
        self,
        owner: SurrogateProposer,
        seen: Sequence[Seen],
        pending: Sequence[Mask],
        taken: set[Mask],
        keys: set[object],
    ) -> None:
        self._owner, self._taken, self._keys = owner, taken, keys
        self._problem, self._surrogate = owner._problem, owner._surrogate
        scored = [s for s in seen if s.loss is not None]
        self._costs, self._failures = CostModel(owner._problem, seen), owner._failures
        # Dropped ones count as well: without them what is scored would look better than what is proposed.
        learned = [s for s in seen if math.isfinite(s.log_divergence) and math.isfinite(s.likely_loss)]
        figures = np.array([(s.log_divergence, s.likely_loss, s.share) for s in learned]).T
        self._link = fit_link(*figures)
        self._likeness = Likeness(owner._problem, self._link, [s.mask for s in learned], *figures[:2])
        self._noise = noise_of(scored)
        # Below the noise no loss can be told from another. Of an evaluator's, equally close candidates show it.
        unsure = self._noise or float(np.median(self._link.spreads)) * any(s.elsewhere for s in scored)
        self._weight = Weight(max(owner._problem.rule.allowed_drop, unsure))
        points = self._costs.points(scored)
        latent = self._link.latent(*np.array([(s.log_divergence, s.loss, s.noise) for s in scored], float).T)
        points[:, 0] = self._weight.of(latent)
        self._corner = reference_corner(np.vstack([points, *self._far_end(scored)]))
        points = points[[s.feasible for s in scored]] / self._corner
        self._parents, self._ranked = [s.mask for s in scored], list[Mask]()
        if len(points):
            keep = non_dominated(points)
            feasible = [s.mask for s in scored if s.feasible]
            self._parents = [mask for mask, on_front in zip(feasible, keep, strict=True) if on_front]
        self._points = np.vstack([points, self._believed(pending)])
        self._volume = FrontVolume(self._points)
        turn = (len(seen) + len(pending)) % constants.RECOMMENDING == 0
        self._recommending = Recommending.of(self._problem, self._costs, scored) if turn else None

    def _far_end(self, scored: Sequence[Seen]) -> list[np.ndarray]:
        """The candidate with all in the exact state, scored or not: volumes count as far as its costs.

        Not where another state alone loses no more than is allowed: nobody then needs more of the exact one than lies
        within what was scored.
        """
        *others, end = (self._problem.in_state(self._problem.everything, p) for p in self._problem.by_cost)
        enough = any(
            s.mask._replace(repairs=0) in others and s.loss is not None and s.loss <= self._weight.allowed
            for s in scored
        )
        return [] if enough or not others else [np.array([0.0, *(cost[0] for cost in self._costs.expected([end]))])]

    def _believed(self, masks: Sequence[Mask]) -> np.ndarray:
        """The points at which the surrogate expects candidates, in units of the corner, shape (n, n_objectives)."""
        if not masks:
            return np.zeros((0, len(self._corner)))
        belief = self._surrogate.believe(masks)
        beyond, _ = self._likeness.beyond(masks, belief.mean)
        losses = self._weight.of(self._link.losses(belief) + beyond[:, None]).mean(axis=1)
        return np.asarray(np.column_stack([losses, *self._costs.expected(masks)]) / self._corner)

    def best(self) -> Mask | None:
        self._breed()
        masks, gains = self._weighed(list(self._owner._pool))
        if not masks:
            return self._owner._anything(self._taken, self._keys)
        chosen = self._to_recommend(masks) or self._climbed(masks, gains, self._weighed)[0]
        self._owner._pool.setdefault(chosen)
        self._remember(masks, gains)
        return chosen

    def _climbed(self, masks: Sequence[Mask], gains: np.ndarray, weighed: _Weighed) -> tuple[Mask, float]:
        """The best of the masks, or a neighbour of it that is better."""
        chosen, gain = masks[int(np.argmax(gains))], float(np.max(gains))
        for _ in range(constants.CLIMBED):
            near, near_gains = weighed([*mutation.repaired(chosen, self._problem), *self._flips(chosen)])
            if not near or near_gains.max() <= gain:
                break
            chosen, gain = near[int(np.argmax(near_gains))], float(near_gains.max())
        return chosen, gain

    def _to_recommend(self, masks: Sequence[Mask]) -> Mask | None:
        """The proposal that is expected to lower the recommended penalty most; None if little is expected."""
        if not self._recommending:
            return None
        chosen, gain = self._climbed(*self._lowering(masks), self._lowering)
        return chosen if gain >= constants.LEAST_LOWERED else None

    def _lowering(self, masks: Sequence[Mask]) -> tuple[list[Mask], np.ndarray]:
        """The masks that are new, and how much each is expected to lower what the recommended candidate costs."""
        fresh = self._fresh(masks)
        if not (fresh and self._recommending):
            return [], np.zeros(0)
        lowered = self._recommending.lowering(fresh, self._surrogate.believe(fresh))
        return fresh, lowered * self._failures.chances(fresh)

    def _fresh(self, masks: Sequence[Mask]) -> list[Mask]:
        held = masks if self._problem.hold is as_it_is else dict.fromkeys(map(self._problem.hold, masks))
        return [m for m in held if self._owner._is_new(m, self._taken, self._keys)]

    def further(self, chosen: Mask, count: int) -> tuple[Mask, ...]:
        """The next best ``count`` proposals, each chosen as if those before it were under way."""
        proposals = [chosen]
        for _ in range(count):
            self._taken, self._keys = self._taken | {proposals[-1]}, self._keys | {self._problem.key(proposals[-1])}
            self._points = np.vstack([self._points, self._believed(proposals[-1:])])
            self._volume = FrontVolume(self._points)
            masks, gains = self._weighed(self._ranked[: constants.PARENTS * count])
            if not masks:
                break
            proposals.append(masks[int(np.argmax(gains))])
        return tuple(proposals[1:])

    def _flips(self, mask: Mask) -> list[Mask]:
        return self._owner._drawn(mutation.single_flips(mask, self._problem), self._owner._most(constants.FLIPPED))

    def best_in_sequence(self) -> Mask | None:
        """The most promising member of the front, with biases corrected in sequence; None if all of these are known."""
        later = self._problem.in_sequence
        tried = [m._replace(repairs=later[m.repairs]) for m in self._parents if m.repairs in later]
        masks, gains = self._weighed(list(dict.fromkeys(tried)))
        return masks[int(np.argmax(gains))] if masks else None

    def _breed(self) -> None:
        """Add children of the front, and of what was promising at the last ask, and the ladder of what was learned.

        If many units each ruin the answer, probes alone may rank them wrongly, and no small step from the integer
        side shows it. From the float side each candidate does, and the ladder of the terms then goes both ways.
        """
        terms, noise = self._surrogate.terms, self._surrogate.noise
        rungs = self._owner._rungs(np.argsort(-terms, kind="stable").tolist(), noise, terms)
        plain = self._problem.without_sequence
        for place in dict.fromkeys([0, *(plain.get(parent.repairs, parent.repairs) for parent in self._parents)]):
            self._owner._add(rung._replace(repairs=place) for rung in rungs)
        for parent in self._parents:
            self._owner._add(mutation.repaired(parent, self._problem))
            self._owner._add(mutation.restated(parent, self._problem, noise) if len(noise) > 1 else ())
        expected = [mask for mask in self._owner._promising if mask not in self._taken]
        for number in range(self._owner._most(constants.CHILDREN)):
            parents = self._parents if number % 2 or not expected else expected
            if parents:
                mask = mutation.child(parents, self._problem, noise, self._owner._rng)
                self._owner._pool.setdefault(mask)

    def _weighed(self, masks: Sequence[Mask]) -> tuple[list[Mask], np.ndarray]:
        """The masks that are not known, nor equal to known ones once built, with their expected gains."""
        fresh = self._fresh(masks)
        if not fresh:
            return [], np.zeros(0)
        belief = self._surrogate.believe(fresh)
        beyond, left = (values[:, None] for values in self._likeness.beyond(fresh, belief.mean))
        expected = self._link.losses(belief) + beyond
        losses = self._weight.of(expected)
        limit = self._problem.constraints.max_drop
        if limit is not None:
            # Beyond the reference corner, so that no volume is gained.
            losses = np.where(expected > limit, 1e3 * self._corner[0], losses)
        spreads = np.sqrt(np.maximum((self._link.deviations(belief) * left) ** 2 - self._noise**2, 0.0))
        costs = zip(self._costs.expected(fresh), self._corner[1:], strict=True)
        gains = self._volume.expected_gain(
            losses / self._corner[0],
            self._weight.of_spread(spreads, expected) / self._corner[0],
            *(cost / worst for cost, worst in costs),
        )
        chances = self._failures.chances(fresh)
        allowed = np.array([self._problem.within_limits(mask) for mask in fresh]) & (chances > 0.0)
        # Behind all that keep the limits, but in order: where none does, the gain still leads somewhere.
        # Barred candidates come last: no gain is above the corner's volume, which is 1.
        return fresh, np.where(allowed, gains * chances, gains - 2.0)

    def _remember(self, masks: Sequence[Mask], gains: np.ndarray) -> None:
        """Keep what is worth weighing again, and what is worth breeding from."""
        self._ranked = [masks[i] for i in np.argsort(-gains, kind="stable")]
        self._owner._promising = self._ranked[: constants.PARENTS]
        if len(self._owner._pool) > constants.POOL and not self._owner._whole:
            self._owner._pool = dict.fromkeys(self._ranked[: constants.POOL // 2])
