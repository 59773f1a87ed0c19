"""A folder that a worker makes, or the cache has; knows no job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

from autoselect.isolation.pool import result_of
from autoselect.runs import cache


class CachedFolder:
    """A folder on its way: from the cache at once, else from a worker, and then kept."""

    def __init__(
        self,
        folder: Path,
        what: Mapping[str, object],
        cache_root: Path | None,
        submit: Callable[[], Future[None]],
    ) -> None:
        """Fetch it, or have it made.

        Args:
            folder: To be filled.
            what: Everything that decides its content.
            cache_root: Folder of the cache; None does without.
            submit: Starts the job that fills it.
        """
        self._folder = folder
        self._kept = None if cache_root is None else cache_root / cache.signature(what)
        is_there = self._kept is not None and cache.fetch(self._kept, folder)
        self._future = None if is_there else submit()

    def wait(self) -> None:
        """Wait until it is filled.

        Raises:
            TrialError: If the worker died, or its job failed.
        """
        if self._future is None:
            return
        result_of(self._future)
        self._future = None
        if self._kept is not None:
            cache.keep(self._folder, self._kept)
