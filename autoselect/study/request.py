"""One search: what was said of it, and what is known of it so far."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from autoselect.cases.ingredients import Ingredients
from autoselect.cases.settings import SearchSettings
from autoselect.cases.settled import Facts, Settled, kept_of, settle
from autoselect.data.specs import code_hash
from autoselect.domain.objectives import Direction
from autoselect.domain.pinned import NO_PINS, Pins
from autoselect.domain.recipe import Recipe
from autoselect.scoring.user_metric import UserMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One search.

    Attributes:
        ingredients: What the user brings.
        said: How to search, as far as the user said it.
        sources: Where the ingredients came from, in words, for the manifest.
        metric_name: Name of the metric or evaluator, as in the tables.
        direction: Of the metric.
        members: Recipes of other runs to score; nothing is then proposed beside them and the baselines.
        by_hand: Recipes that a user made, to be scored as trials of a run that there is; nothing is then proposed.
        pins: What every candidate to come keeps of nodes, of which earlier trials may have tried other states.
        facts: What model, target, machine and the search itself say so far.
    """

    ingredients: Ingredients
    said: SearchSettings
    sources: dict[str, str | None]
    metric_name: str
    direction: Direction
    members: tuple[Recipe, ...] = ()
    by_hand: tuple[Recipe, ...] = ()
    pins: Pins = NO_PINS
    facts: Facts = field(default_factory=Facts)

    @property
    def settings(self) -> Settled:
        """How to search, with nothing left open."""
        return settle(self.said, self.facts)

    def knowing(self, **facts: Any) -> Request:
        """This search with further facts."""
        return replace(self, facts=replace(self.facts, **facts))

    def kept(self) -> dict[str, Any]:
        """The settings for the manifest."""
        return kept_of(self.said, self.facts)

    @property
    def user_code(self) -> str | None:
        """A hash of the code of the user's metric or evaluator; None for a metric of the catalogue."""
        metric, evaluator = self.ingredients.metric, self.ingredients.evaluator
        if isinstance(metric, UserMetric):
            return code_hash(metric.function())
        return None if evaluator is None else code_hash(evaluator)
