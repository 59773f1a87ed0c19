"""What a page asks, checked once: JSON in, changes and names out. Knows no run."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoselect.data.texts import first_wrong
from autoselect.domain.recipe import Recipe
from autoselect.errors import RecipeError, UsageError
from autoselect.study.what_if.changes import Changes

Names = list[str]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Wanted(_Strict):
    """Changes as a page says them: names of nodes, globs or op types."""

    deny: Names = []
    in_float: Names = []
    int16: Names = []
    int8: Names = []
    repairs: Names | None = None

    @property
    def changes(self) -> Changes:
        """The changes that the question asks for."""
        return Changes.of(**self.model_dump())


class Question(_Strict):
    """A candidate: a name or a recipe, changes to it, and a target."""

    start: str | int | dict[str, Any] = Field("recommended", alias="from")
    changes: Wanted = Wanted()
    target: str | None = None

    @property
    def named(self) -> str | int | Recipe:
        """What is changed.

        Raises:
            UsageError: If it is no recipe.
        """
        if not isinstance(self.start, dict):
            return self.start
        try:
            return Recipe.from_json(json.dumps(self.start))
        except RecipeError as exc:
            raise UsageError(f"from: {exc}") from exc


class Cheapest(Question):
    """Which single step from it is worth most."""

    goal: Literal["penalty", "size", "drop"]


class Pins(_Strict):
    """What was decided of nodes, for trials to come."""

    keep_float: Names = []
    keep_int: Names = []
    keep_int16: Names = []


class Order(Question):
    """A job; of a search without further trials, what is left of it."""

    kind: Literal["build", "score", "search"]
    pins: Pins = Pins()
    trials: int = Field(20, ge=0, le=100_000)


_Read = TypeVar("_Read", bound=_Strict)


def read(kind: type[_Read], body: bytes) -> _Read:
    """Read what a page asks.

    Raises:
        UsageError: With the place, what was expected, and what came.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as exc:
        raise UsageError(first_wrong(exc).removeprefix(": ")) from exc
