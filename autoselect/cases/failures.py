"""Tells what is wrong with one candidate from what is wrong with all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from autoselect.cases.files import FLOAT
from autoselect.errors import AutoselectError, MetricError, ScoreError


@contextlib.contextmanager
def score_errors(sha256: str) -> Iterator[None]:
    """Make what goes wrong inside the failure of one candidate, unless it goes wrong for all.

    Args:
        sha256: The candidate (or the float model).

    Raises:
        ScoreError: If the interpreter refuses the candidate, or the metric has no value for it.
        MetricError: If the metric has no value for the float model.
        AutoselectError: Any other, as it was raised.
    """
    try:
        yield
    except MetricError as exc:
        if sha256 == FLOAT:
            raise
        raise ScoreError(f"The metric has no value for this candidate. {exc}") from exc
    except AutoselectError:
        raise
    except (ValueError, RuntimeError, MemoryError) as exc:
        raise ScoreError(f"The candidate could not be scored: {type(exc).__name__}: {exc}") from exc
