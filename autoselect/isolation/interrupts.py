"""Ctrl-C and SIGTERM: one thing, and held back while what must not be cut in two is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt that comes inside take effect at the end; only the main thread is ever interrupted by one.

    What the body raises comes first: it is raised, and the interrupt is dropped.

    Raises:
        KeyboardInterrupt: At the end, or whatever the handler of before does.
    """
    before = {n: handler for n in (signal.SIGINT, signal.SIGTERM) if callable(handler := signal.getsignal(n))}
    if threading.current_thread() is not threading.main_thread() or not before:
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    for number in before:
        signal.signal(number, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        last, frame = came[-1]
        before[signal.Signals(last)](last, frame)


@contextlib.contextmanager
def ends_like_ctrl_c() -> Iterator[None]:
    """Let a SIGTERM do what Ctrl-C does: ``timeout``, job queues and containers stop a command with one.

    It does so where Ctrl-C is ignored, too: shell scripts start their background commands so. A handler that somebody
    else has set stays. Only the main thread of a process can set one.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
