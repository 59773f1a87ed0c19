"""Runs a command that ends with its caller, however that ends; imports the standard library only.

The command runs under a guard: this file as a program, in a session of its own. The guard holds one end of a pipe, the
caller the other. The system closes the caller's end when it dies, of SIGKILL too; then the guard kills the command and
all that it started, itself included.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence


def run_tethered(command: Sequence[str], *, timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as :func:`subprocess.run` does, and keep what it prints (as text).

    Raises:
        subprocess.TimeoutExpired: If it took longer.
    """
    tail, tether = os.pipe()
    guard = [sys.executable, "-I", "-S", __file__, str(tail), *command]
    with os.fdopen(tail), os.fdopen(tether, "wb") as held:
        process = subprocess.Popen(
            guard,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=(tail,),
            start_new_session=True,
        )
        with process, held:  # The tether is let go before the guard is waited for.
            out, err = process.communicate(timeout=timeout_seconds)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _guard(tail: int, command: list[str]) -> None:
    """Run the command, and end as it ends."""
    threading.Thread(target=_kill_all_at_the_end_of, args=(tail,), daemon=True).start()
    code = subprocess.run(command, check=False).returncode
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _kill_all_at_the_end_of(tail: int) -> None:
    os.read(tail, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2:])
