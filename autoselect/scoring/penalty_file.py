"""Reads the constants of the fragmentation penalty from their data file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from autoselect.data.bundled import read_toml
from autoselect.errors import UsageError
from autoselect.scoring.fragmentation import PenaltyWeights


class _Weights(BaseModel):
    model_config = ConfigDict(extra="forbid")

    float_macs: PositiveFloat
    float_ops: PositiveFloat
    crossings: PositiveFloat
    crossing_bytes: PositiveFloat
    segments: PositiveFloat


def penalty_weights(target: str = "integer-only") -> PenaltyWeights:
    """Weights of a bundled target profile, or of a user's own file.

    Raises:
        UsageError: If there is no such file, or a weight is missing, unknown or not positive; with its key.
    """
    content = read_toml(target, folder="targets", kind="target")
    try:
        weights = _Weights.model_validate(content.get("penalty", {}))
    except ValidationError as exc:
        first = exc.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"Target {target!r}, penalty.{key}: {first['msg']}.") from exc
    return PenaltyWeights(**weights.model_dump())
