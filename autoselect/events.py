"""What a ``listener`` is told: one typed event at a time. Any callable that takes one is a listener.

::

    from autoselect import events

    def listener(event: events.Event) -> None:
        if isinstance(event, events.TrialFinished):
            print(event.number, event.score, event.size_bytes)

    autoselect.search(model, ..., listener=listener)

A listener is called in the process and the thread of the search, in order, and should return soon. What it raises ends
the search, as Ctrl-C would: the run folder can be resumed. A ``match`` over :data:`Event` is complete.
"""

from __future__ import annotations

from autoselect.cases.events import (
    EndedEarly,
    Event,
    Listener,
    Noted,
    StageStarted,
    StepFinished,
    TrialFinished,
    Warned,
)

__all__ = ["EndedEarly", "Event", "Listener", "Noted", "StageStarted", "StepFinished", "TrialFinished", "Warned"]
