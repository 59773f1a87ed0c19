"""Ctrl-C, held back while what must not be cut in two is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let a SIGINT that comes inside take effect at the end; only the main thread is ever interrupted by one.

    What the body raises comes first: it is raised, and the interrupt is dropped.

    Raises:
        KeyboardInterrupt: At the end, or whatever the handler of before does.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _number, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(signal.SIGINT, came[-1])
