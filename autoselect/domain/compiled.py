"""What a target's compiler made of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What a compiler made of a model.

    Attributes:
        segments: Custom ops of the accelerator in the compiled file.
        host_ops: Other ops in it, by type.
        crossing_bytes: Bytes of the tensors between the two.
        sram_bytes: Working memory that the compiler allotted.
        flash_bytes: Read-only memory of what the accelerator runs.
        cycles: The compiler's estimate for the accelerator alone.
        cost: Those cycles, and the profile's cost of the host's ops and of the crossings.
        refusal: The compiler's own reason; empty where it compiled. Then all figures are 0.
    """

    segments: int = 0
    host_ops: Mapping[str, int] = field(default_factory=dict)
    crossing_bytes: int = 0
    sram_bytes: int = 0
    flash_bytes: int = 0
    cycles: int = 0
    cost: float = 0.0
    refusal: str = ""
