"""Worker processes that several calls share, and those of a cluster."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autoselect.cases.events import Warned
from autoselect.cases.versions import versions
from autoselect.errors import UsageError
from autoselect.isolation.machine import default_workers
from autoselect.isolation.pool import WorkerPool, shared
from autoselect.quantize.preparing import converter
from autoselect.study.request import Request
from autoselect.study.setup.preparing import warm_up_of


@contextlib.contextmanager
def keep_workers(workers: int | None = None) -> Iterator[None]:
    """Let all calls inside share worker processes, which import TensorFlow once.

    Without it each call starts processes of its own, which takes some seconds::

        with autoselect.keep_workers():
            autoselect.diagnose(model, calibration=samples)
            autoselect.search(model, calibration=samples, evaluation=(x, y))

    Between calls the processes forget your models, samples and modules, so that changed code is read again. A crash
    costs one job, as always. Calls of several threads may share them. If one ends early, the jobs of the others go on
    or begin anew.

    Args:
        workers: Count of processes, by default as many as the machine has room for; calls inside use these, whatever
            count of workers they ask for.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> with autoselect.keep_workers(1):
        ...     float_ops = autoselect.inspect(embedded.model_path()).ops_by_kind["float"]
        ...     integer_ops = autoselect.inspect(embedded.model_path()).ops_by_kind.get("integer", 0)
        >>> float_ops, integer_ops
        (22, 0)
    """
    with tempfile.TemporaryDirectory(prefix="autoselect-") as folder:
        log = Path(folder) / "worker.log"
        with (
            WorkerPool(workers or default_workers(), log=log, warm_up=converter.import_tensorflow) as pool,
            shared(pool),
        ):
            yield


@contextlib.contextmanager
def workers_of(request: Request) -> Iterator[None]:
    """Let a search work on a cluster, where the settings name one.

    Raises:
        UsageError: If there is none, it may not be used, or Dask is not installed.
    """
    said, settings = request.said, request.settings
    if said.scheduler is None:
        yield
        return
    if "latency_ms" in settings.cost_columns:
        raise UsageError(
            "scheduler: latencies of several machines do not compare. Leave latency out of the objectives."
        )
    try:
        from autoselect.cluster.jobs import Local
        from autoselect.cluster.opening import opened
    except ImportError as exc:
        raise UsageError("scheduler: Dask is missing. Install it with: pip install 'autoselect[distributed]'.") from exc
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autoselect-")))
        warm_up = warm_up_of(settings)
        workers = opened(
            said.scheduler,
            describe=versions,
            local=Local(workers=settings.processes, log=folder / "worker.log", warm_up=warm_up),
            insecure=said.insecure,
            tell=lambda message: said.listener(Warned(message=message)),
        )
        stack.enter_context(shared(stack.enter_context(workers)))
        yield
