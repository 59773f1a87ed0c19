"""Ctrl-C and SIGTERM: one thing, and held back while what must not be cut in two is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt that comes in the block take effect at its end; only the main thread is ever interrupted.

    An error of the block wins over the interrupt, which is then dropped.

    Raises:
        KeyboardInterrupt: At the end of the block. If another handler was set before, that is called instead.
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
    """Let SIGTERM do in the block what Ctrl-C does: ``timeout``, job queues and containers send it to stop a command.

    It does so too where Ctrl-C is ignored, as in background commands of shell scripts. A handler of SIGTERM that
    somebody else has set stays. In other threads than the main one, which cannot set a handler, nothing changes.
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
