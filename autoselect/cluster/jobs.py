"""A job as the driver holds it, and how this machine works without a scheduler; knows no worker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(eq=False, slots=True)
class Job:
    """A job on its way; ``losses`` counts the workers that died on it or sent no answer."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    timeout_seconds: float
    future: Future[Any] = field(default_factory=Future)
    losses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """How this machine works where the scheduler is lost: with so many processes."""

    workers: int
    log: Path
    warm_up: Callable[[], object] | None
