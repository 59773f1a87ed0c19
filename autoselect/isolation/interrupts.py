"""Ctrl-C and SIGTERM: one thing, and held back while what must not be cut in two is done."""

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


@contextlib.contextmanager
def ends_like_ctrl_c() -> Iterator[None]:
    """Let a SIGTERM do what Ctrl-C does: ``timeout``, job queues and containers stop a command with one.

    A handler that somebody else has set stays. Only the main thread of a process can set one.
    """
    is_main = threading.current_thread() is threading.main_thread()
    does_ctrl_c = is_main and callable(signal.getsignal(signal.SIGINT))  # A script may ignore it.
    if not does_ctrl_c or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
