"""The samplers that a search may use: the project's own proposers and Optuna's, as one kind of thing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from autoselect.domain.evidence import agreed
from autoselect.domain.quantities import BY_COLUMN
from autoselect.domain.recipe import Fallback, Recipe
from autoselect.domain.search_space import ALTERNATIVE, BoundSpace, Toggle
from autoselect.errors import UsageError
from autoselect.runs.records import Partial, Scores, TrialRecord
from autoselect.study.problem import Mask, Problem
from autoselect.study.proposers import Greedy, Proposer, Seen, exhaustive, heuristic, prefix, random_masks
from autoselect.study.surrogate_proposer import SurrogateProposer

_LOG_PER_DB = math.log(10.0) / 10.0
_NEAREST, _FARTHEST = -25.0, 10.0
"""Log divergences beyond these are as good as equal and as wrong as can be."""

PROPOSERS: dict[str, Callable[[Problem, int, int | None], Proposer]] = {
    "surrogate": SurrogateProposer,
    "random": lambda problem, seed, _: random_masks(problem, seed),
    "prefix": lambda problem, seed, _: prefix(problem, seed),
    "greedy": lambda problem, seed, _: Greedy(problem, seed),
    "heuristic": lambda problem, seed, _: heuristic(problem, seed),
    "exhaustive": lambda problem, seed, _: exhaustive(problem, seed),
}
"""The project's own."""

_OPTUNAS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
}

SAMPLERS: tuple[str, ...] = (*PROPOSERS, *_OPTUNAS)


_CORRECTION, _CORRECTIONS = "bias_correction", ("as the others", "further")
"""A parameter of the study where single candidates may have their biases corrected further than the others have."""


def refined(repairs: tuple[str, ...]) -> tuple[str, ...]:
    """The same repairs with biases corrected node after node."""
    return tuple("bias-sequential" if name == "bias" else name for name in repairs)


def check_sampler(name: str) -> None:
    """Refuse a name that no sampler has.

    Raises:
        UsageError: If there is none.
    """
    if name not in SAMPLERS:
        raise UsageError(f"There is no sampler {name!r}. Samplers: {', '.join(SAMPLERS)}.")


def make_sampler(
    name: str,
    *,
    seed: int,
    problem: Problem | None,
    space: BoundSpace,
    fallback: Fallback,
    budget: int | None,
    repairs: tuple[str, ...] = (),
) -> optuna.samplers.BaseSampler:
    """Make a sampler by name.

    Args:
        name: One of ``SAMPLERS``.
        seed: Of all chance.
        problem: What is known before any score; None takes ``tpe`` instead of the project's own.
        space: The dimensions of the study.
        fallback: Of the search's recipes; candidates of another are no news to the project's own.
        repairs: Of the search's recipes, in the same way.
        budget: Candidates in all.

    Raises:
        UsageError: If there is none of that name.
    """
    check_sampler(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name in PROPOSERS and problem is not None:
            proposer = PROPOSERS[name](problem, seed, budget)
            return ProposerSampler(proposer, problem, space, fallback=fallback, repairs=repairs)
        return _OPTUNAS[name if name in _OPTUNAS else "tpe"](seed)


class ProposerSampler(optuna.samplers.BaseSampler):
    """A proposer as an Optuna sampler, for the search's own study and for anyone's.

    The study's objectives are the metric and the problem's costs, in their order; its parameters are the space's
    dimensions. Trials that the search has told carry more (user attributes ``scores`` or ``partial``), which is used
    where it is there.
    """

    def __init__(
        self,
        proposer: Proposer,
        problem: Problem,
        space: BoundSpace,
        *,
        fallback: Fallback | None = None,
        repairs: tuple[str, ...] | None = None,
    ) -> None:
        """Wrap a proposer; without a ``fallback`` or ``repairs`` trials of any count."""
        self._proposer, self._problem, self._space = proposer, problem, space
        self._fallback, self._repairs = fallback, repairs
        self._independent = optuna.samplers.RandomSampler(seed=0)
        self._next: Mask | None = None

    def prepare(self, study: optuna.Study) -> bool:
        """Choose the next candidate; False where nothing is left to try."""
        trials = study.get_trials(deepcopy=False)
        seen = [s for s in map(self._seen, trials) if s is not None]
        pending = [self._mask(t) for t in trials if t.state == TrialState.RUNNING and t.params]
        self._next = self._proposer.propose(_with_divergences(seen), pending)
        return self._next is not None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All dimensions of the space."""
        found: dict[str, BaseDistribution] = {}
        if self._space.alternatives:
            found[ALTERNATIVE] = CategoricalDistribution([name for name, _ in self._space.alternatives])
        for dimension in self._space.dimensions:
            if isinstance(dimension, Toggle):
                found[dimension.name] = CategoricalDistribution([False, True])
            else:
                found[dimension.name] = IntDistribution(0, dimension.at_most)
        choices = {toggle.name: [False, True] for toggle in self._space.float_toggles}
        return found | {name: CategoricalDistribution(values) for name, values in (choices | self._extra).items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The setting that means the next candidate; none where nothing is left, so that chance decides."""
        if self._next is None and not self.prepare(study):
            return {}
        assert self._next is not None
        mask, self._next = self._next, None
        nodes = self._problem.nodes_of(mask)
        setting = self._space.encode(nodes)
        if setting is None:
            return {}
        in_float = self._space.encode_float(nodes, self._problem.float_nodes_of(mask))
        further = {name: _CORRECTIONS[bool(mask & self._problem.refinement)] for name in self._extra}
        return {**setting, **in_float, **further}

    def suggest_repairs(self, trial: optuna.Trial) -> tuple[str, ...] | None:
        """The repairs of a proposal where they are not those of the search's other recipes."""
        if not self._extra or trial.suggest_categorical(_CORRECTION, _CORRECTIONS) == _CORRECTIONS[0]:
            return None
        return refined(self._repairs or ())

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Parameters that are none of the space's."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    @property
    def _extra(self) -> dict[str, list[str]]:
        """Parameters beside those of the space, with their values."""
        return {_CORRECTION: list(_CORRECTIONS)} if self._problem.refinable else {}

    def _mask(self, trial: FrozenTrial) -> Mask:
        return self._problem.mask_of(
            self._space.decode(trial.params),
            self._space.decode_float(trial.params),
            refined=trial.params.get(_CORRECTION) == _CORRECTIONS[1],
        )

    def _mask_of(self, recipe: Recipe) -> Mask:
        further = self._repairs is not None and self._repairs != recipe.repairs == refined(self._repairs)
        return self._problem.mask_of(recipe.denylisted_nodes, recipe.float_nodes, refined=further)

    def _is_ours(self, recipe: Recipe) -> bool:
        """Whether the candidate says something of the search's own recipes."""
        if self._repairs is not None and recipe.repairs not in (self._repairs, refined(self._repairs)):
            return False
        return self._fallback in (None, recipe.fallback) or not recipe.denylisted_nodes

    def _seen(self, trial: FrozenTrial) -> Seen | None:
        attributes = trial.user_attrs
        if trial.state == TrialState.FAIL and "recipe" in attributes and "error" in attributes:
            return _of_failure(self._mask_of(Recipe.from_json(attributes["recipe"])))
        if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED):
            return None
        mask = self._mask(trial)
        if "recipe" in attributes:
            recipe = Recipe.from_json(attributes["recipe"])
            if not self._is_ours(recipe):
                return None
            mask = self._mask_of(recipe)
        if "scores" in attributes:
            return _of_scores(mask, Scores.from_dict(attributes["scores"]), attributes.get("violations", {}))
        if "partial" in attributes:
            return _of_partial(mask, Partial.from_dict(attributes["partial"]))
        return _of_values(mask, trial, self._problem) if trial.values is not None else None


def seen_of(records: Sequence[TrialRecord], problem: Problem, template: Recipe) -> list[tuple[TrialRecord, Seen]]:
    """What the project's own samplers learn from the records of a search, in their order.

    Records of recipes that differ from the template in more than nodes say nothing of the others.
    """
    told = [(r, r.recipe) for r in records if r.recipe and (r.scores or r.partial)]
    alike = [(r, recipe) for r, recipe in told if recipe.repairs == template.repairs]
    used = [(r, recipe) for r, recipe in alike if recipe.fallback == template.fallback or not recipe.denylisted_nodes]
    seen = []
    for record, recipe in used:
        mask = problem.mask_of(recipe.denylisted_nodes, recipe.float_nodes)
        if record.scores is not None:
            seen.append(replace(_of_scores(mask, record.scores, {}), feasible=record.feasible))
        elif record.partial is not None:
            seen.append(_of_partial(mask, record.partial))
    return list(zip([record for record, _ in used], _with_divergences(seen), strict=True))


def _of_failure(mask: Mask) -> Seen:
    """Nothing is known of it but that it need not be tried again."""
    return Seen(
        mask=mask,
        loss=None,
        log_divergence=math.nan,
        share=0.0,
        size_bytes=math.nan,
        penalty=math.nan,
        feasible=False,
    )


def _of_scores(mask: Mask, scores: Scores, violations: Mapping[str, float]) -> Seen:
    return Seen(
        mask=mask,
        loss=scores.drop,
        log_divergence=_log_divergence(scores.sqnr_db),
        share=1.0,
        elsewhere=not scores.samples,
        size_bytes=scores.size_bytes,
        # Proposals are weighed by what is predicted of them, so those that were compiled are too.
        penalty=float(scores.compiled.get("predicted_cost", scores.penalty)),
        feasible=max(violations.values(), default=0.0) <= 0.0,
        quantities=scores.quantities,
    )


def _of_partial(mask: Mask, partial: Partial) -> Seen:
    return Seen(
        mask=mask,
        loss=None,
        estimated_loss=partial.drop,
        log_divergence=_log_divergence(partial.sqnr_db),
        share=partial.samples / partial.total,
        size_bytes=partial.size_bytes,
        penalty=partial.penalty,
        quantities=partial.quantities,
    )


def _of_values(mask: Mask, trial: FrozenTrial, problem: Problem) -> Seen:
    """A trial that somebody else told: the first value is a loss."""
    loss, *costs = trial.values
    told, known = dict(zip(problem.costs, costs, strict=True)), problem.forecast(mask)
    return Seen(
        mask=mask,
        loss=loss,
        log_divergence=math.nan,
        share=1.0,
        size_bytes=told.get("size_bytes", known.size_bytes),
        penalty=told.get("penalty", known.penalty),
        feasible=True,
        quantities={column: cost for column, cost in told.items() if not BY_COLUMN[column].from_graph},
    )


def _log_divergence(sqnr_db: float) -> float:
    if math.isnan(sqnr_db):
        return math.nan
    return min(max(-sqnr_db * _LOG_PER_DB, _NEAREST), _FARTHEST)


def _with_divergences(seen: Sequence[Seen]) -> list[Seen]:
    """The same, where an evaluator scored with losses and divergences that have learned of each other.

    An evaluator shows no outputs: divergences are then of a few samples other than those that its score is of, whose
    noise is not known. Either says something of what the other will be on samples not seen yet.
    """
    both = [s for s in seen if s.elsewhere and s.loss is not None and math.isfinite(s.log_divergence)]
    if len(both) < 2:
        return _with_losses(seen)
    divergences = np.array([s.log_divergence for s in both])
    losses = np.array([s.loss for s in both])
    pairs = zip(agreed(divergences, losses).tolist(), agreed(losses, divergences).tolist(), strict=True)
    learned = dict(zip(map(id, both), pairs, strict=True))
    return [
        replace(s, log_divergence=learned[id(s)][0], loss=learned[id(s)][1]) if id(s) in learned else s for s in seen
    ]


def _with_losses(seen: Sequence[Seen]) -> list[Seen]:
    """The same; where no divergence is known at all (an optuna study of one's own), the loss stands in for it."""
    losses = [s.loss for s in seen if s.loss is not None]
    if not losses or any(not math.isnan(s.log_divergence) for s in seen):
        return list(seen)
    low, width = min(losses), max(losses) - min(losses)
    return [
        s if s.loss is None else replace(s, log_divergence=math.log((s.loss - low) / width + 0.01) if width else 0.0)
        for s in seen
    ]
