"""What runs inside a worker process; knows signals, modules and a log, not what the jobs do."""

from __future__ import annotations

import contextlib
import functools
import gc
import glob
import multiprocessing
import os
import signal
import site
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import loky

from autoselect.errors import AutoselectError, JobFailed, WorkerDied, first_line

T = TypeVar("T")

ENDED_WITH_ZERO = 256
"""No real exit code: the pool overlooks a process that ends with 0."""
_LIBRARY_SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "-1",
    "OMP_NUM_THREADS": "1",
}

_SAFE_PATH = {"PYTHONSAFEPATH": "while a worker starts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the jobs of one piece of work see of the process that asked for them.

    Attributes:
        number: Of the piece of work; one worker may serve several, one after the other.
        log: File for what native libraries print.
        folder: Working directory.
        path: Where modules are looked for.
    """

    number: int
    log: str
    folder: str
    path: tuple[str, ...]


def safe_path() -> dict[str, str]:
    """The environment variable with which a new worker does not import from the working directory, or an empty dict.

    A file ``random.py`` in the working directory would stand in for Python's own module while the worker starts.
    Without such a file the dict is empty. It is empty, too, if the installed packages lie in the working directory,
    since the worker would not find them. Python 3.10 ignores the variable.
    """
    with contextlib.suppress(OSError):
        names = sys.stdlib_module_names.intersection(name.removesuffix(".py") for name in os.listdir())
        files = (file for name in names for file in (f"{name}.py", os.path.join(name, "__init__.py")))
        if any(map(os.path.isfile, files)) and not os.path.samefile(Path(loky.__file__).parents[1], os.curdir):
            return _SAFE_PATH
    return {}


_at: list[Place] = []  # where it works now
_to_warm_up: list[bytes] = []  # what this process still has to run before its first job
_kept: list[Any] = []


def kept(most: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorate a function whose last ``most`` results a worker keeps, until it is given to another piece of work."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        cached = functools.lru_cache(maxsize=most)(function)
        _kept.append(cached)
        return cached

    return decorate


def start(place: Place, warm_up: bytes | None) -> None:
    """Begin a worker's life, which ends with that of the process that started it."""
    threading.Thread(target=_end_after, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with contextlib.suppress(OSError):  # Linux: where memory runs out, this process is killed, and not its parent.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    # Processes of a job's own begin as anywhere else: a child that is told the pool's own method dies at once.
    multiprocessing.set_start_method(None, force=True)
    os.environ.update({k: v for k, v in _LIBRARY_SETTINGS.items() if k not in os.environ})
    if _SAFE_PATH.items() <= os.environ.items():  # Programs that a job starts find what lies beside them.
        del os.environ["PYTHONSAFEPATH"]
    _settle(place)
    if warm_up is not None:
        _to_warm_up.append(warm_up)


def _end_after(parent: int) -> None:
    """Wait until the parent process is gone, and end this one; a job that holds Python's lock delays that.

    Args:
        parent: Number of the parent process.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _settle(place: Place) -> None:
    """Work where the jobs come from, and forget what belonged to the piece of work before."""
    if [place] == _at:
        return
    target = os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(target, stream)
    os.close(target)
    os.chdir(place.folder)
    sys.path[:] = place.path
    if _at:
        for cached in _kept:
            cached.cache_clear()
        for name in _modules_of_the_user():
            del sys.modules[name]
    _at[:] = [place]


def _modules_of_the_user() -> list[str]:
    """Modules that lie where people write code: one of the same name may be another one by now.

    If packages are installed nobody does, and native code among them cannot be loaded twice.
    """
    others = (path for path in sys.path if glob.glob(os.path.join(glob.escape(path), "*.dist-info")))
    folders = (sys.prefix, sys.base_prefix, site.getuserbase(), str(sys.modules["autoselect"].__path__[0]), *others)
    installed = tuple(os.path.join(os.path.abspath(folder), "") for folder in folders)
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if name != "__main__"}
    return [name for name, file in files.items() if file and file.endswith(".py") and not file.startswith(installed)]


def warm() -> None:
    """Warm this process up, if that is still to be done."""
    if not _to_warm_up:
        return
    try:
        cloudpickle.loads(_to_warm_up[0])()
    except AutoselectError:
        raise
    except BaseException as exc:  # SystemExit too: it is the failure of one job, not of the process or its parent
        raise WorkerDied(f"The worker process could not warm up: {type(exc).__name__}: {exc}") from exc
    _to_warm_up.clear()
    gc.freeze()  # what was imported stays; walking through it at every collection doubles the time of parsing a model


def run(place: Place, job: bytes, timeout_seconds: float) -> Any:
    """Run one job."""
    warm()
    _set_timer(timeout_seconds)
    try:
        _settle(place)
        function, args = cloudpickle.loads(job)
        return function(*args)
    except AutoselectError:
        raise
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        raise WorkerDied(death_notice(abs(code))) from exc
    except BaseException as exc:  # Errors of libraries become autoselect's; no KeyboardInterrupt here is the user's.
        traceback.print_exc()  # into the log
        raise JobFailed(f"{type(exc).__name__}: {first_line(exc)}") from exc
    finally:
        _set_timer(0)


def _set_timer(seconds: float) -> None:
    """Let the system end this process after so many seconds, whatever it is doing by then; 0 calls that off."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, min(seconds, 1e8))


TOOK_TOO_LONG = "The worker process took longer than its time limit (--trial-timeout) and was stopped."


def death_notice(exit_code: int | None) -> str:
    """Say how a process ended."""
    if exit_code == ENDED_WITH_ZERO:
        exit_code = 0
    if exit_code is None or exit_code >= 0:
        return f"The worker process ended by itself with exit code {exit_code}."
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if name == "SIGALRM":
        return TOOK_TOO_LONG
    meaning = {
        "SIGSEGV": "a segmentation fault in native code",
        "SIGABRT": "native code gave up",
        "SIGKILL": "it was killed, most often for lack of memory",
        "SIGFPE": "an arithmetic fault in native code",
        "SIGILL": "an instruction that this CPU lacks",
    }.get(name, "native code or the system ended it")
    return f"The worker process died of {name}: {meaning}."
