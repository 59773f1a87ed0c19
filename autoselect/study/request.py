"""One search as it is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from autoselect.cases.ingredients import Ingredients
from autoselect.cases.settings import SearchSettings
from autoselect.domain.objectives import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One search as asked for.

    Attributes:
        ingredients: What the user brings.
        settings: How to search.
        sources: Where the ingredients came from, in words, for the manifest.
        metric_name: Name of the metric or evaluator, as in the tables.
        direction: Of the metric.
    """

    ingredients: Ingredients
    settings: SearchSettings
    sources: dict[str, str | None]
    metric_name: str
    direction: Direction
