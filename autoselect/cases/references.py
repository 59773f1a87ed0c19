"""Runs the float model over the samples that candidates are scored on, or takes its outputs from the cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from autoselect.cases import prepare_jobs
from autoselect.cases.cached import CachedFolder
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.files import CaseFiles
from autoselect.cases.scoring_samples import PARTS
from autoselect.cases.versions import versions
from autoselect.errors import PreparationError, TrialError
from autoselect.isolation.door import Workers
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
        self._running: list[CachedFolder] = []
        for part in parts:
            split = json.loads(files.split(part).read_text(encoding="utf-8"))
            what = {"what": "float outputs", "hashes": dict(hashes), "split": split, "versions": versions()}
            target, job = files.reference(part), prepare_jobs.run_reference
            submit = partial(pool.submit, job, files.root, part, target, timeout_seconds=timeout_seconds)
            self._running.append(CachedFolder(target, what, cache_root, submit))

    def wait(self, listener: Listener) -> None:
        """Wait for all of them.

        Raises:
            PreparationError: If one failed.
        """
        if self._running:
            listener(StageStarted(stage="reference", total=len(self._running)))
        for outputs in self._running:
            try:
                outputs.wait()
            except TrialError as exc:
                raise PreparationError(f"Running the float model failed. {exc}") from exc
            listener(StepFinished(stage="reference"))
