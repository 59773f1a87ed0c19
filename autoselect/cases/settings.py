"""Everything a search can be told, checked once; what is kept in the manifest and needed to resume."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from autoselect.domain.objectives import Constraints
from autoselect.domain.quantities import DEFAULT_OBJECTIVES, chosen_objectives, columns_of
from autoselect.domain.recipe import Fallback, IoType, Recipe
from autoselect.errors import RecipeError, UsageError


class SearchSettings(BaseModel):
    """Settings of one search; plain values only, so that a manifest can hold them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str = "accuracy"
    direction: Literal["maximize", "minimize"] | None = None
    output_name: str | None = None
    signature: str | None = None
    shapes: dict[str, tuple[int, ...]] | None = None
    """By input, each axis's size, the batch's included; None takes what the source leaves free from the samples."""
    objectives: tuple[str, ...] = DEFAULT_OBJECTIVES
    latency_threads: Annotated[int, Field(ge=1, le=64)] = 1
    heldout_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    trials: Annotated[int, Field(ge=1)] = 100
    seed: Annotated[int, Field(ge=0)] = 0
    sampler: str = "surrogate"
    search_space: str = "default"
    target: str = "integer-only"
    compiling: bool = True
    fallback: Literal["drq", "float", "search"] = "drq"
    per_channel: bool = True
    io_type: IoType = "float32"
    repairs: bool | tuple[str, ...] = True
    refining: bool = False
    """Whether biases of single candidates may be corrected further; so where the search chose to correct them."""
    keep_float: tuple[str, ...] = ()
    keep_int: tuple[str, ...] = ()
    min_score: float | None = None
    max_drop: float | None = None
    max_size: Annotated[float, Field(gt=0)] | None = None
    max_penalty: Annotated[float, Field(ge=0)] | None = None
    racing: bool = True
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.9
    min_gain: Annotated[float, Field(ge=0, lt=1)] = 0.0003
    early_exit: bool = True
    workers: Annotated[int, Field(ge=1, le=64)] = 2
    allow_overlap: bool = False
    debug_samples: Annotated[int, Field(ge=1)] = 50
    trial_timeout: Annotated[float, Field(gt=0)] = 900.0

    @field_validator("repairs")
    @classmethod
    def _known_repairs(cls, value: bool | tuple[str, ...]) -> bool | tuple[str, ...]:
        """Refuse names that no recipe takes."""
        try:
            return value if isinstance(value, bool) else Recipe(repairs=value).repairs
        except RecipeError as exc:
            raise ValueError(str(exc)) from exc

    @field_validator("objectives")
    @classmethod
    def _known_objectives(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse names of no quantity, and too few or too many."""
        try:
            return chosen_objectives(value)
        except UsageError as exc:
            raise ValueError(str(exc)) from exc

    @property
    def cost_columns(self) -> tuple[str, ...]:
        """Columns of the objectives but the metric."""
        return columns_of(self.objectives)

    @property
    def constraints(self) -> Constraints:
        """The limits."""
        return Constraints(max_drop=self.max_drop, max_size_bytes=self.max_size, max_penalty=self.max_penalty)

    @property
    def template(self) -> Recipe:
        """The recipe that all candidates share but for their nodes; no repairs while those are to be decided.

        Where the search chooses between hybrid and float, a recipe lists what is float.
        """
        repairs = () if isinstance(self.repairs, bool) else self.repairs
        fallback: Fallback = "drq" if self.fallback == "search" else self.fallback
        return Recipe(fallback=fallback, per_channel=self.per_channel, io_type=self.io_type, repairs=repairs)


def make_settings(**values: object) -> SearchSettings:
    """Check settings.

    Raises:
        UsageError: If one is wrong, with its name.
    """
    try:
        return SearchSettings.model_validate(values)
    except ValidationError as exc:
        first = exc.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{name}: {first['msg']}, got {first.get('input')!r}.") from exc
