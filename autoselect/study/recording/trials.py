"""One trial of the Optuna study as a record: the only place that knows how a record is kept in a trial."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from optuna.trial import FrozenTrial, TrialState

from autoselect.domain.recipe import Recipe
from autoselect.runs.records import Partial, Scores, TrialRecord

_TOLD = {TrialState.COMPLETE: "scores", TrialState.PRUNED: "partial", TrialState.FAIL: "error"}
"""The attribute that says what came of a finished trial."""

_Found = TypeVar("_Found", Scores, Partial)

_NAME = re.compile(r"[0-9A-Za-z_-]{1,64}")
"""What a model's hash may look like: files are named after it."""


def opening_attributes(origin: str, recipe: Recipe) -> dict[str, Any]:
    """What a trial keeps from its start, as user attributes; the number is its own."""
    return {"origin": origin, "recipe": recipe.to_json()}


def recipe_of(trial: FrozenTrial) -> Recipe | None:
    """The recipe that a trial opened with; None for one that somebody else asked for."""
    kept = trial.user_attrs.get("recipe")
    return None if kept is None else Recipe.from_json(kept)


def attributes_of(record: TrialRecord) -> dict[str, Any]:
    """What a finished trial keeps of its record beside what it opened with, as user attributes."""
    attributes: dict[str, Any] = {"forecast_error": record.forecast_error} if record.forecast_error else {}
    if record.error is not None:
        return {**attributes, "error": record.error, "error_kind": record.error_kind, "error_nodes": record.error_nodes}
    if record.scores is not None:
        return {**attributes, "scores": asdict(record.scores), "reused": record.reused, "violations": record.violations}
    if record.partial is not None:
        return {**attributes, "partial": asdict(record.partial), "reused": record.reused}
    return attributes


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """Read a record back; None for a trial that was not finished here: abandoned, or told by somebody else."""
    kept: Mapping[str, Any] = trial.user_attrs
    if _TOLD.get(trial.state) not in kept:  # A process may die between what it notes and what it tells.
        return None
    scores, partial = (kept.get(name) if _TOLD[trial.state] == name else None for name in ("scores", "partial"))
    for part in (scores, partial):
        if part and not _NAME.fullmatch(str(part["sha256"])):
            raise ValueError(f"trial {trial.number} names its model {part['sha256']!r}, which is no hash")
    return TrialRecord(
        number=trial.number,
        origin=kept["origin"],
        recipe=recipe_of(trial),
        scores=_read(Scores, scores),
        reused=bool(kept.get("reused", False)),
        violations=kept.get("violations", {}),
        error=kept.get("error"),
        error_kind=kept.get("error_kind"),
        error_nodes=tuple(kept.get("error_nodes", ())),
        partial=_read(Partial, partial),
        forecast_error=kept.get("forecast_error", ""),
    )


def _read(kind: type[_Found], values: Mapping[str, Any] | None) -> _Found | None:
    """What was kept of a record's part; fields that one of an earlier version lacks are as by default."""
    return kind(**{f.name: values[f.name] for f in fields(kind) if f.name in values}) if values else None
