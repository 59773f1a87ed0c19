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
from collections.abc import Mapping, Sequence
from typing import IO


def run_tethered(command: Sequence[str], *, timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as :func:`subprocess.run` does, and keep what it prints (as text).

    Raises:
        subprocess.TimeoutExpired: If it took longer.
    """
    with Tethered(command) as running:  # The tether is let go before the guard is waited for.
        out, err = running.process.communicate(timeout=timeout_seconds)
    return subprocess.CompletedProcess(command, running.process.returncode, out, err)


class Tethered:
    """A command that runs; a context manager, at whose end it is killed if it still does.

    Attributes:
        process: The guard, which ends as the command does, with what the command prints (as text).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        errors: IO[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            command: The program and its arguments.
            errors: Where it writes to stderr; by default a pipe.
            environment: Of the process; this one's by default.
        """
        tail, tether = os.pipe()
        self._tether = os.fdopen(tether, "wb")
        with os.fdopen(tail):
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(tail), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors or subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                pass_fds=(tail,),
                start_new_session=True,
            )

    def __enter__(self) -> Tethered:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it runs, and wait for its end."""
        self.kill()
        with self.process:
            pass

    def kill(self) -> None:
        """Kill the command and all that it started; nothing happens if it has ended."""
        self._tether.close()


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
