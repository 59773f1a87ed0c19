"""Measures how long each stage of a search takes, from the events that it sends anyway."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from autoselect.cases.events import Event, Listener, StageStarted
from autoselect.errors import RunFolderError
from autoselect.runs.folder import RunFolder, read_json


class StageClock:
    """A listener that passes every event on and keeps the time between the starts of stages."""

    def __init__(
        self,
        listener: Listener,
        *,
        before: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without a stage."""
        self._listener, self._clock = listener, clock
        self._spent = dict(before or {})
        self._stage: str | None = None
        self._since = 0.0
        self._begun = clock()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, StageStarted):
            self._spent = self.seconds()
            self._stage, self._since = event.stage, self._clock()
        self._listener(event)

    def elapsed(self) -> float:
        """Seconds since this process began with the search."""
        return self._clock() - self._begun

    def seconds(self) -> dict[str, float]:
        """Seconds by stage until now, the stage under way included."""
        spent = dict(self._spent)
        if self._stage is not None:
            spent[self._stage] = spent.get(self._stage, 0.0) + self._clock() - self._since
        return spent


def earlier_seconds(folder: RunFolder) -> dict[str, float]:
    """What earlier processes wrote down; empty if they were killed before they could."""
    try:
        seconds = read_json(folder.summary, missing="").get("seconds")
    except RunFolderError:
        return {}
    return {str(stage): float(spent) for stage, spent in seconds.items()} if isinstance(seconds, dict) else {}
