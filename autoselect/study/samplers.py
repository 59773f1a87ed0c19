"""The samplers that a search may use."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import optuna

from autoselect.errors import UsageError


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=seed)


def _nsga2(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=20)


def _random(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.RandomSampler(seed=seed)


SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": _tpe,
    "nsga2": _nsga2,
    "random": _random,
}


def make_sampler(name: str, *, seed: int) -> optuna.samplers.BaseSampler:
    """Make a sampler by name.

    Raises:
        UsageError: If there is none of that name.
    """
    if name not in SAMPLERS:
        raise UsageError(f"There is no sampler {name!r}. Samplers: {', '.join(SAMPLERS)}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return SAMPLERS[name](seed)
