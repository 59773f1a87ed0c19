"""Starts and stops the server of a page; it listens on the loopback address and nowhere else."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autoselect.errors import UsageError

if TYPE_CHECKING:
    import uvicorn

_NEEDED = ("starlette", "uvicorn")
_LOOPBACK = "127.0.0.1"
_END_SECONDS = 3
"""How long requests that are under way may take once the server is to end."""


class Page:
    """A page that is served in the background until it is closed; also a context manager.

    Attributes:
        url: Its address, with the token: who has it can ask, build and score.
    """

    def __init__(self, url: str, server: uvicorn.Server, listening: socket.socket, ends: contextlib.ExitStack) -> None:
        """Serve; use :func:`serve`."""
        self.url = url
        self._server, self._ends = server, ends
        # Not the thread is waited for: if Ctrl-C interrupts Thread.join, CPython 3.11 takes the thread for ended.
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(listening,), name="autoselect-explore", daemon=True).start()

    def _run(self, listening: socket.socket) -> None:
        try:
            self._server.run([listening])
        finally:
            self._ended.set()

    def __enter__(self) -> Page:
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Where it is; without the token, which notebooks would keep."""
        return f"Page({self.url.partition('?')[0]!r})"

    def wait(self) -> None:
        """Return when the server has ended; Ctrl-C gets through."""
        while not self._ended.wait(0.5):
            pass

    def close(self) -> None:
        """End the server, and stop the job that is under way; what it had written is whole."""
        self._server.should_exit = True
        self._ended.wait()
        self._ends.close()


def serve(directory: str | Path, *, port: int | None = None) -> Page:
    """Open a run and serve its page.

    Args:
        directory: The run folder.
        port: By default one that is free.

    Raises:
        UsageError: If the extra is not installed, the port is taken, or candidates of the run can no longer be planned.
        RunFolderError: If the folder holds no run, it is damaged, or another process is working in it.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise UsageError(
            f"The page is served by {' and '.join(_NEEDED)}; not installed: {', '.join(missing)}. "
            "Install what is missing: pip install 'autoselect[explore]'."
        )
    import uvicorn

    from autoselect.explore.guard import new_token
    from autoselect.explore.jobs import Jobs
    from autoselect.explore.orders import Orders
    from autoselect.explore.server import application
    from autoselect.explore.session import Session

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listening(port))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autoselect-explore-")))
        session, token, chosen = Session(Path(directory)), new_token(), int(listening.getsockname()[1])
        jobs = stack.enter_context(contextlib.closing(Jobs(folder, lambda _job: session.refresh())))
        served = application(session, jobs, Orders(session, jobs, folder), token=token, port=chosen)
        config = uvicorn.Config(
            served,
            access_log=False,
            lifespan="off",
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=_END_SECONDS,
            ws="none",
        )
        return Page(f"http://{_LOOPBACK}:{chosen}/?token={token}", uvicorn.Server(config), listening, stack.pop_all())


@contextlib.contextmanager
def _listening(port: int | None) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_LOOPBACK, port or 0))
            listener.listen()
        except PermissionError as exc:
            raise UsageError(f"This user may not listen on port {port}. Choose one from 1024 on with --port.") from exc
        except OSError as exc:
            raise UsageError(
                f"Port {port} is taken by another program ({exc.strerror}). Choose another one with --port, or leave "
                "--port out: then a free one is taken."
            ) from exc
        yield listener
