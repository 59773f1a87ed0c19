"""The file of an Optuna study, written once for many entries that belong together; knows no study."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock


class Journal(JournalFileBackend):
    """Optuna's journal file with entries that wait for each other.

    Optuna writes each parameter by itself: takes a lock, appends a line, waits for the disk. With hundreds of nodes
    that would take longer than many an inference.
    """

    def __init__(self, path: str) -> None:
        """Open the file, or start it.

        Its lock is a file, not Optuna's default of a link: a run folder holds no links.
        """
        super().__init__(path, JournalFileOpenLock(path))
        self._waiting: list[dict[str, Any]] | None = None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Append what is written inside at its end, at once; until then the storage does not read it back."""
        self._waiting = []
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            if waiting:
                self.append_logs(waiting)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, or keep them where they wait."""
        if self._waiting is None:
            super().append_logs(logs)
        else:
            self._waiting += logs
