"""Runs the float model over the samples that candidates are scored on, or takes its outputs from the cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from autoselect.cases import prepare_jobs
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.files import CaseFiles
from autoselect.cases.scoring_samples import PARTS
from autoselect.cases.versions import versions
from autoselect.errors import PreparationError, TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.runs import cache
from autoselect.scoring.metric_base import Metric


class References:
    """Runs of the float model over the search part, and over the held-out part for metrics that compare with it."""

    def __init__(
        self,
        files: CaseFiles,
        metric: Metric | None,
        hashes: Mapping[str, str],
        timeout_seconds: float,
        pool: Workers,
        cache_root: Path | None,
    ) -> None:
        """Start those that the cache does not have."""
        parts = () if metric is None else PARTS if metric.needs_reference else PARTS[:1]
        self._running: list[tuple[Future[None] | None, Path, Path | None]] = []
        for part in parts:
            split = json.loads(files.split(part).read_text(encoding="utf-8"))
            what = {"what": "float outputs", "hashes": dict(hashes), "split": split, "versions": versions()}
            kept = None if cache_root is None else cache_root / cache.signature(what)
            target, future = files.reference(part), None
            if kept is None or not cache.fetch(kept, target):
                job = prepare_jobs.run_reference
                future = pool.submit(job, files.root, part, target, timeout_seconds=timeout_seconds)
            self._running.append((future, target, kept))

    def wait(self, listener: Listener) -> None:
        """Wait for all of them.

        Raises:
            PreparationError: If one failed.
        """
        if self._running:
            listener(StageStarted(stage="reference", total=len(self._running)))
        for future, target, kept in self._running:
            if future is not None:
                try:
                    result_of(future)
                except TrialError as exc:
                    raise PreparationError(f"Running the float model failed. {exc}") from exc
                if kept is not None:
                    cache.keep(target, kept)
            listener(StepFinished(stage="reference"))
