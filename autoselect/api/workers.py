"""Worker processes that several calls share."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autoselect.isolation.machine import default_workers
from autoselect.isolation.pool import WorkerPool, shared
from autoselect.quantize.preparing import converter


@contextlib.contextmanager
def keep_workers(workers: int | None = None) -> Iterator[None]:
    """Let all calls inside share worker processes, which import TensorFlow once.

    Without it each call starts processes of its own, which takes some seconds::

        with autoselect.keep_workers():
            autoselect.diagnose(model, calibration=samples)
            autoselect.search(model, calibration=samples, evaluation=(x, y))

    Between calls the processes forget your models, samples and modules, so that changed code is read again. A crash
    costs one job, as always.

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
