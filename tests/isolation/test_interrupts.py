from __future__ import annotations

import signal
import threading

import pytest

from autoselect.isolation.interrupts import ends_like_ctrl_c, held_back

pytestmark = pytest.mark.usefixtures("interruptible")


def test_an_interrupt_takes_effect_at_the_end() -> None:
    done = []

    @held_back()
    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("all")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_outermost_one_decides() -> None:
    done = []

    @held_back()
    def work() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            done.append("inside")
        done.append("behind")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inside", "behind"]


def test_an_error_inside_comes_first() -> None:
    @held_back()
    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        raise ValueError("of the body")

    with pytest.raises(ValueError, match="the body"):
        work()


def test_who_ignores_interrupts_still_does() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_have_nothing_to_hold_back() -> None:
    done = []

    @held_back()
    def work() -> None:
        done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


def test_a_sigterm_ends_like_ctrl_c_and_is_held_back_like_it() -> None:
    done = []

    @held_back()
    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        done.append("all")

    with pytest.raises(KeyboardInterrupt), ends_like_ctrl_c():
        work()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_sigterm_that_a_script_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with ends_like_ctrl_c():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_sigterm_ends_what_ctrl_c_does_not() -> None:
    """A shell script starts a background command with Ctrl-C ignored, and stops it with ``kill``."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    done = []

    @held_back()
    def work() -> None:
        signal.raise_signal(signal.SIGTERM)
        done.append("all")

    try:
        with pytest.raises(KeyboardInterrupt), ends_like_ctrl_c():
            work()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["all"]
