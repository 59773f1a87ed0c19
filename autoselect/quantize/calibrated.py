"""A calibrated model as all of this room takes it: its bytes, and the key to its names."""

from __future__ import annotations

from dataclasses import dataclass

from autoselect.quantize.names import NameMap


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedModel:
    """A calibrated float model under canonical names, with the key to its own names."""

    content: bytes
    names: NameMap
