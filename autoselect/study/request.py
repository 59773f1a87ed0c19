"""One search as it is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from autoselect.cases.ingredients import Ingredients
from autoselect.cases.settings import SearchSettings
from autoselect.data.specs import code_hash
from autoselect.domain.objectives import Direction
from autoselect.domain.pinned import NO_PINS, Pins
from autoselect.domain.recipe import Recipe
from autoselect.scoring.user_metric import UserMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One search as asked for.

    Attributes:
        ingredients: What the user brings.
        settings: How to search.
        sources: Where the ingredients came from, in words, for the manifest.
        metric_name: Name of the metric or evaluator, as in the tables.
        direction: Of the metric.
        members: Recipes of other runs to score; nothing is then proposed beside them and the baselines.
        by_hand: Recipes that a user made, to be scored as trials of a run that there is; nothing is then proposed.
        pins: What every candidate to come keeps of nodes, of which earlier trials may have tried other states.
    """

    ingredients: Ingredients
    settings: SearchSettings
    sources: dict[str, str | None]
    metric_name: str
    direction: Direction
    members: tuple[Recipe, ...] = ()
    by_hand: tuple[Recipe, ...] = ()
    pins: Pins = NO_PINS

    @property
    def user_code(self) -> str | None:
        """A hash of the code of the user's metric or evaluator; None for a metric of the catalogue."""
        metric, evaluator = self.ingredients.metric, self.ingredients.evaluator
        if isinstance(metric, UserMetric):
            return code_hash(metric.function())
        return None if evaluator is None else code_hash(evaluator)
