"""What a proposer learns of each trial: one reader of trial records for all that look at a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoselect.domain.evidence import agreed
from autoselect.domain.quantities import BY_COLUMN
from autoselect.domain.recipe import Recipe
from autoselect.domain.states import further_of, left_out_of
from autoselect.runs.records import BY_HAND, Partial, Scores, TrialRecord
from autoselect.study.proposing.mask import Mask, Units
from autoselect.study.proposing.problem import Problem

_LOG_PER_DB = math.log(10.0) / 10.0
_NEAREST, _FARTHEST = -25.0, 10.0
"""Log divergences beyond these are as good as equal and as wrong as can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One candidate that was scored, or dropped after part of the samples.

    Attributes:
        mask: What it left out.
        loss: Loss of the metric against float; None if it was dropped.
        estimated_loss: Of a dropped one, what the samples that were run say of its loss; NaN if unknown.
        log_divergence: Natural log of error power over signal power of the outputs; NaN if unknown.
        share: Share of the samples that were run, 0..1.
        size_bytes: As built; NaN if it could not be.
        penalty: As built; NaN if it could not be.
        unforeseen: How much more that is than was forecast, as the target's compiler says; NaN if it said nothing.
        feasible: False if it breaks one of the user's limits.
        quantities: What was measured of it, by column.
        noise: Standard error of the loss; NaN if unknown.
        bound: What the loss is at most on other samples, with a confidence of 95 %; NaN if unknown.
        elsewhere: Whether the divergence is of other samples than the loss, as with an evaluator.
        split: The units of which only some nodes are as the mask says: a recipe may name single nodes.
        failing: Places of the units because of which it could not be run, the failing one first, where that is known.
    """

    mask: Mask
    loss: float | None = None
    log_divergence: float = math.nan
    share: float
    size_bytes: float = math.nan
    penalty: float = math.nan
    unforeseen: float = math.nan
    feasible: bool = True
    quantities: Mapping[str, float] = field(default_factory=dict)
    estimated_loss: float = math.nan
    noise: float = math.nan
    bound: float = math.nan
    elsewhere: bool = False
    split: Units = 0
    failing: tuple[int, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether it could not be built or run."""
        return self.share == 0.0

    @property
    def likely_loss(self) -> float:
        """The loss, or what is known of it; NaN if nothing is."""
        return self.estimated_loss if self.loss is None else self.loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads records of one search as its proposer sees them.

    Attributes:
        problem: What the masks mean.
        template: What the search's recipes have in common but for repairs; candidates of another fallback, other scales
            of weights, other types of inputs and outputs, or repairs that are none of the problem's sets, are no news.
            None takes any.
    """

    problem: Problem
    template: Recipe | None = None

    def seen(self, record: TrialRecord) -> Seen | None:
        """What one trial says; None if it says nothing of the search's own recipes.

        What a user made of parts of units says nothing of whole ones.
        """
        recipe = record.recipe
        if recipe is None or not (record.scores or record.partial or record.error) or not self._has_our_form(recipe):
            return None
        if record.scores is None and record.partial is None:
            split, failing = self._split(recipe), self.problem.units_of(record.error_nodes)
            return Seen(mask=self.mask(recipe), share=0.0, feasible=False, split=split, failing=failing)
        if not self.is_ours(recipe) or (record.origin == BY_HAND and self._split(recipe)):
            return None
        if record.scores is not None:
            return replace(_of_scores(self.mask(recipe), record.scores, record.feasible), split=self._split(recipe))
        assert record.partial is not None
        return replace(_of_partial(self.mask(recipe), record.partial), split=self._split(recipe))

    def told(self, records: Sequence[TrialRecord]) -> list[tuple[TrialRecord, Seen]]:
        """All candidates with a score, or with one on part of the samples, in order."""
        pairs = [(record, self.seen(record)) for record in records if record.scores or record.partial]
        news = [(record, seen) for record, seen in pairs if seen is not None]
        return list(zip([record for record, _ in news], with_divergences([seen for _, seen in news]), strict=True))

    def mask(self, recipe: Recipe) -> Mask:
        """What a recipe leaves out, as far as units can express it."""
        return self.problem.mask_of(left_out_of(recipe), further_of(recipe), recipe.repairs)

    def _split(self, recipe: Recipe) -> Units:
        return self.problem.split_by(left_out_of(recipe), *further_of(recipe).values())

    def is_ours(self, recipe: Recipe) -> bool:
        """Whether a recipe is one of the search's own, but for some baselines."""
        if self.template is None:
            return True
        alike = recipe.fallback == self.template.fallback or not left_out_of(recipe)
        return self._has_our_form(recipe) and alike and recipe.repairs in self.problem.repair_sets

    def _has_our_form(self, recipe: Recipe) -> bool:
        """Whether scales of weights and types of inputs and outputs are those of the search; a user's may be others."""
        ours = self.template or recipe
        return (recipe.per_channel, recipe.io_type) == (ours.per_channel, ours.io_type)


def of_losses(mask: Mask, loss: float, costs: Mapping[str, float], problem: Problem) -> Seen:
    """A trial that somebody else told: a loss, and what was told of the costs, by column."""
    forecast = problem.forecast(mask)
    return Seen(
        mask=mask,
        loss=loss,
        share=1.0,
        size_bytes=costs.get("size_bytes", forecast.size_bytes),
        penalty=costs.get("penalty", forecast.penalty),
        quantities={column: cost for column, cost in costs.items() if not BY_COLUMN[column].from_graph},
    )


def _of_scores(mask: Mask, scores: Scores, feasible: bool) -> Seen:
    predicted = scores.compiled.get("predicted_cost")
    return Seen(
        mask=mask,
        loss=scores.drop,
        noise=scores.drop_noise,
        bound=scores.drop_bound,
        log_divergence=log_divergence(scores),
        share=1.0,
        elsewhere=not scores.samples,
        size_bytes=scores.size_bytes,
        penalty=scores.penalty,
        unforeseen=math.nan if predicted is None else scores.penalty - float(predicted),
        feasible=feasible,
        quantities=scores.quantities,
    )


def _of_partial(mask: Mask, partial: Partial) -> Seen:
    return Seen(
        mask=mask,
        estimated_loss=partial.drop,
        log_divergence=log_divergence(partial),
        share=partial.samples / partial.total,
        size_bytes=partial.size_bytes,
        penalty=partial.penalty,
        quantities=partial.quantities,
    )


def log_divergence(measurement: Scores | Partial) -> float:
    """Natural log of error power over signal power; NaN if unknown.

    That of the mean power, which is what independent errors add up to; of the mean decibels in records that lack it.
    """
    if math.isnan(measurement.divergence) and math.isnan(measurement.sqnr_db):
        return math.nan
    if math.isnan(measurement.divergence):
        return min(max(-measurement.sqnr_db * _LOG_PER_DB, _NEAREST), _FARTHEST)
    return max(math.log(max(measurement.divergence, 1e-20)), _NEAREST)


def with_divergences(seen: Sequence[Seen]) -> list[Seen]:
    """The observations of an evaluator's search, with losses and divergences that have learned from each other.

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
    """The observations. If no divergence is known (in an Optuna study of your own), the loss stands in for it."""
    losses = [s.loss for s in seen if s.loss is not None]
    if not losses or any(not math.isnan(s.log_divergence) for s in seen):
        return list(seen)
    low, width = min(losses), max(losses) - min(losses)
    return [
        s if s.loss is None else replace(s, log_divergence=math.log((s.loss - low) / width + 0.01) if width else 0.0)
        for s in seen
    ]


def noise_of(scored: Sequence[Seen]) -> float:
    """The usual noise of a loss; 0 if none is known."""
    noises = [s.noise for s in scored if math.isfinite(s.noise)]
    return float(np.median(noises)) if noises else 0.0
