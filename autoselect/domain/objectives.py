"""What a candidate is judged by; directions become losses here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autoselect.domain.words import SHARES
from autoselect.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

Direction = Literal["maximize", "minimize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One objective: its name and whether more or less is better."""

    name: str
    direction: Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Limits that the user sets; None where there is none.

    Attributes:
        max_drop: Largest loss of the metric against the float model, in the metric's own units.
        max_size_bytes: Largest file.
        max_penalty: Largest penalty for fragmentation.
    """

    max_drop: float | None = None
    max_size_bytes: float | None = None
    max_penalty: float | None = None

    def violations(self, *, drop: float, size_bytes: float, penalty: float) -> dict[str, float]:
        """How far each limit is passed, relative to the limit: at most 0 where it is met."""
        return {
            "max_drop": _excess(drop, self.max_drop),
            "max_size": _excess(size_bytes, self.max_size_bytes),
            "max_penalty": _excess(penalty, self.max_penalty),
        }

    @property
    def any(self) -> bool:
        """True where at least one limit is set."""
        return any(v is not None for v in (self.max_drop, self.max_size_bytes, self.max_penalty))


def _excess(value: float, limit: float | None) -> float:
    if limit is None:
        return -1.0
    excess = (value - limit) / (abs(limit) or 1.0)
    return excess if excess > 1e-9 else min(excess, 0.0)


def refuse_per_cent(metric: str, max_drop: float | None) -> None:
    """Refuse an allowed drop that no model can break, as who gives 5 for 5 % does.

    Raises:
        UsageError: If scores of the metric are from 0 to 1, and the drop is 1 or more.
    """
    if metric in SHARES and max_drop is not None and max_drop >= 1.0:
        hint = f"; {max_drop:.4g} % is {max_drop / 100.0:.4g}" if max_drop < 100.0 else ""
        raise UsageError(
            f"max_drop (--max-drop): scores of {metric} are from 0 to 1, so that every model keeps {max_drop:.4g}. "
            f"Give a share below 1{hint}."
        )


def losses(values: np.ndarray, objectives: Sequence[Objective]) -> np.ndarray:
    """Turn values into losses: shape (n_trials, n_objectives), lower is better in every column."""
    import numpy as np  # the command line names its options without it

    signs = np.array([1.0 if o.direction == "minimize" else -1.0 for o in objectives])
    return np.asarray(np.asarray(values, dtype=np.float64) * signs)


def drop_from(reference: float, score: float, direction: Direction) -> float:
    """How much worse than the reference a score is, in the metric's units; negative where it is better."""
    return reference - score if direction == "maximize" else score - reference


def score_at(reference: float, drop: float, direction: Direction) -> float:
    """The score that is so much worse than the reference; what :func:`drop_from` takes back."""
    return reference - drop if direction == "maximize" else reference + drop
