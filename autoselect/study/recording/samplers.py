"""The samplers that a search may use: the project's own proposers and Optuna's, as one kind of thing."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import Repairs, label
from autoselect.domain.search_space import ALTERNATIVE, BoundSpace, Cut, Dimension, Value
from autoselect.domain.states import SIXTEEN, further_of, left_out_of
from autoselect.errors import UsageError
from autoselect.study.proposing.failures import Failures
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.observations import Reader, Seen, of_losses, with_divergences
from autoselect.study.proposing.problem import Problem
from autoselect.study.proposing.proposers import Proposer, random_masks
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer
from autoselect.study.recording.trials import recipe_of, record_of
from autoselect.study.setup.baselines import recipe_for

PROPOSERS: dict[str, Callable[[Problem, int, int | None], Proposer]] = {
    "surrogate": SurrogateProposer,
    "random": lambda problem, seed, _: random_masks(problem, seed),
}
"""The project's own proposers, by name; experiments add theirs."""

_OPTUNAS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
}

SAMPLERS: tuple[str, ...] = (*PROPOSERS, *_OPTUNAS)

_EITHER = (False, True)

REPAIRS = "repairs"
"""A parameter of the study if candidates may have one of several sets of repairs."""


def distributions_of(
    space: BoundSpace, sets: Sequence[Repairs], dimensions: Sequence[Dimension] | None = None
) -> dict[str, BaseDistribution]:
    """The parameters of a study: all dimensions of the space, or these, with their further states, and the repairs."""
    distributions: dict[str, BaseDistribution] = {}
    if space.alternatives:
        distributions[ALTERNATIVE] = CategoricalDistribution([name for name, _ in space.alternatives])
    chosen = space.dimensions if dimensions is None else dimensions
    for dimension in (*chosen, *itertools.chain(*space.further_toggles.values())):
        distributions[dimension.name] = (
            IntDistribution(0, dimension.at_most) if isinstance(dimension, Cut) else CategoricalDistribution(_EITHER)
        )
    if len(sets) > 1:
        distributions[REPAIRS] = CategoricalDistribution([label(repairs) for repairs in sets])
    return distributions


def setting_of(recipe: Recipe, space: BoundSpace, sets: Sequence[Repairs]) -> dict[str, Value]:
    """The parameters that mean a recipe; none if the space cannot express it."""
    nodes, further = left_out_of(recipe), further_of(recipe)
    setting = space.encode(nodes, further[SIXTEEN])
    if setting is None:
        return {}
    repairs: dict[str, Value] = {REPAIRS: label(recipe.repairs)} if len(sets) > 1 else {}
    return setting | space.encode_further(nodes, further) | repairs


def suggested(setting: Mapping[str, Any], space: BoundSpace, template: Recipe, sets: Sequence[Repairs]) -> Recipe:
    """The recipe that parameters mean, with the template's repairs if there is nothing to choose."""
    chosen = (repairs for repairs in sets if label(repairs) == setting.get(REPAIRS))
    common = replace(template, repairs=next(chosen, sets[0] if len(sets) > 1 else template.repairs))
    return recipe_for(space.decode(setting), common, space.decode_further(setting))


def check_sampler(name: str) -> None:
    """Refuse a name that no sampler has.

    Raises:
        UsageError: If there is none.
    """
    if name not in {**PROPOSERS, **_OPTUNAS}:
        raise UsageError(f"There is no sampler {name!r}. Samplers: {', '.join(SAMPLERS)}.")


def sampler_in_use(name: str, problem: Problem | None) -> str:
    """The sampler that proposes if this name is asked for: ``tpe`` if one of ``PROPOSERS`` has no problem to look at.

    Raises:
        UsageError: If there is none of that name.
    """
    check_sampler(name)
    return "tpe" if name in PROPOSERS and problem is None else name


def make_sampler(
    name: str,
    *,
    seed: int,
    problem: Problem | None,
    space: BoundSpace,
    template: Recipe,
    budget: int | None,
) -> optuna.samplers.BaseSampler:
    """Make a sampler by name.

    Args:
        name: One of ``SAMPLERS``.
        seed: Of all chance.
        problem: What is known before any score; None takes ``tpe`` instead of the project's own.
        space: The dimensions of the study.
        template: What the search's recipes have in common; others are no news to the project's own.
        budget: Candidates in all.

    Raises:
        UsageError: If there is none of that name.
    """
    name = sampler_in_use(name, problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name in PROPOSERS and problem is not None:
            proposer = PROPOSERS[name](problem, seed, budget)
            return ProposerSampler(proposer, problem, space, template)
        return _OPTUNAS[name](seed)


class ProposerSampler(optuna.samplers.BaseSampler):
    """A proposer as an Optuna sampler, for the search's own study and for anyone's.

    The study's objectives are the metric and the problem's costs, in their order; its parameters are the space's
    dimensions. Trials that the search has told carry more (user attributes ``scores`` or ``partial``), which is used
    where it is there.
    """

    def __init__(self, proposer: Proposer, problem: Problem, space: BoundSpace, template: Recipe | None = None) -> None:
        """Wrap a proposer; without a ``template`` trials of any recipes count."""
        self._proposer, self._problem, self._space = proposer, problem, space
        self._reader = Reader(problem=problem, template=template)
        self._finished: dict[str, dict[int, Seen | None]] = {}  # by study
        self._independent = optuna.samplers.RandomSampler(seed=0)

    def propose(self, study: optuna.Study, template: Recipe) -> Recipe | None:
        """The next candidate; None if nothing is left to try."""
        mask = self._proposer.propose(*self._known(study))
        if mask is None:
            return None
        nodes, states = self._space.held(self._problem.nodes_of(mask), self._problem.further_of(mask))
        return recipe_for(nodes, replace(template, repairs=self._problem.repair_sets[mask.repairs]), states)

    def rules_out(self, study: optuna.Study, recipe: Recipe) -> bool:
        """Whether a candidate has what others could not be run for."""
        return Failures(self._problem, self._known(study)[0]).is_known(self._reader.mask(recipe))

    def _known(self, study: optuna.Study) -> tuple[list[Seen], list[Mask]]:
        """What is scored, and what is under way."""
        trials = study.get_trials(deepcopy=False)
        finished = self._finished.setdefault(study.study_name, {})
        for trial in trials:  # Each is read once: what is finished never changes.
            if trial.state.is_finished() and trial.number not in finished:
                finished[trial.number] = self._seen(trial)
        seen = [s for _, s in sorted(finished.items()) if s is not None]
        pending = [self._pending(t) for t in trials if t.state == TrialState.RUNNING]
        return with_divergences(seen), [mask for mask in pending if mask is not None]

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All dimensions of the space."""
        return distributions_of(self._space, self._problem.repair_sets)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The setting that means the next candidate; none where nothing is left, so that chance decides."""
        recipe = self.propose(study, Recipe())
        return {} if recipe is None else setting_of(recipe, self._space, self._problem.repair_sets)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Parameters that are none of the space's."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _pending(self, trial: FrozenTrial) -> Mask | None:
        """A trial under way; None if it is none of the search's own recipes, or has said nothing yet."""
        recipe = recipe_of(trial)
        if recipe is not None:
            return self._reader.mask(recipe) if self._reader.is_ours(recipe) else None
        return self._mask(trial) if trial.params else None

    def _mask(self, trial: FrozenTrial) -> Mask:
        return self._reader.mask(suggested(trial.params, self._space, Recipe(), self._problem.repair_sets))

    def _seen(self, trial: FrozenTrial) -> Seen | None:
        record = record_of(trial)
        if record is not None:
            return self._reader.seen(record)
        if trial.values is None:
            return None
        loss, *costs = trial.values
        return of_losses(self._mask(trial), loss, dict(zip(self._problem.costs, costs, strict=True)), self._problem)
