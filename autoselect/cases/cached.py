"""A folder that a worker makes, or the cache has; knows no job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from autoselect.isolation.pool import result_of
from autoselect.runs import cache


def cached_folder(
    folder: Path, what: Mapping[str, object], cache_root: Path | None, submit: Callable[[], Future[None]]
) -> Callable[[], None]:
    """Fill a folder from the cache at once, else have a worker fill it, and keep that.

    Returns:
        Waits until it is filled; raises a TrialError if the worker died, or its job failed.
    """
    kept = None if cache_root is None else cache_root / cache.signature(what)
    if kept is not None and cache.fetch(kept, folder):
        return lambda: None
    future = submit()

    @functools.cache
    def wait() -> None:
        result_of(future)
        if kept is not None:
            cache.keep(folder, kept)

    return wait
