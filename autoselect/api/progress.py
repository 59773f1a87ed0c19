"""Progress where there is no command line: bars of tqdm, of which notebooks show their own; logging has the rest."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from autoselect.cases.events import EndedEarly, Event, Listener, StageStarted, StepFinished, TrialFinished, logged


@contextlib.contextmanager
def told_to(listener: Listener, progress: bool | None) -> Iterator[Listener]:
    """The listener of one piece of work: what happens is logged, shown, and told to the caller's.

    Args:
        listener: The caller's.
        progress: Whether bars are shown; None shows them in notebooks. Without tqdm there are none.
    """
    bars = _bars() if progress or (progress is None and "ipykernel" in sys.modules) else None
    if bars is None:
        yield logged(listener)
        return

    def both(event: Event) -> None:
        bars(event)
        listener(event)

    with contextlib.closing(bars):
        yield logged(both)


def _bars() -> Bars | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm would rather have ipywidgets, and does without
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return Bars(tqdm)


class Bars:
    """A listener that shows one bar a stage.

    Args:
        tqdm: What makes a bar: ``tqdm.auto.tqdm``.
    """

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, StageStarted):
            self.close()
            is_main = event.stage == "trials"
            self._bar = self._tqdm(total=event.total, initial=event.done, desc=event.stage, leave=is_main)
        elif isinstance(event, EndedEarly):
            self.close()
        elif self._bar is not None and isinstance(event, StepFinished | TrialFinished):
            self._bar.update(1)

    def close(self) -> None:
        """End the bar of the current stage."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
