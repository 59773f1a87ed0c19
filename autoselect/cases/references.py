"""Runs the float model over the samples that candidates are scored on, or takes its outputs from the cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from autoselect.cases import prepare_jobs
from autoselect.cases.cached import cached_folder
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.files import CaseFiles
from autoselect.cases.scoring_samples import PARTS
from autoselect.cases.versions import versions
from autoselect.errors import PreparationError, ScoreError, TrialError
from autoselect.isolation.door import Workers
from autoselect.quantize.preparing.converter import CHECK_VALUES
from autoselect.scoring.metric_base import Metric


class References:
    """Runs of the float model over the search part, and over the held-out part for metrics that compare with it."""

    def __init__(
        self,
        files: CaseFiles,
        metric: Metric | None,
        hashes: Mapping[str, str],
        timeout_seconds: float,
        cache_root: Path | None,
    ) -> None:
        """Run nothing yet."""
        self._files, self._timeout, self._cache = files, timeout_seconds, cache_root
        self._hashes = {name: digest for name, digest in hashes.items() if name != "target"}
        self._wanted = () if metric is None else PARTS if metric.needs_reference else PARTS[:1]
        self._running: dict[str, Callable[[], None]] = {}

    def start(self, part: str, pool: Workers) -> None:
        """Start the run over a part if it is wanted, not under way and not in the cache."""
        if part not in self._wanted or part in self._running:
            return
        split = json.loads(self._files.split(part).read_text(encoding="utf-8"))
        what = {"what": "float outputs", "hashes": self._hashes, "split": split, "versions": versions()}
        submit = partial(pool.submit, prepare_jobs.run_reference, self._files.root, part, timeout_seconds=self._timeout)
        self._running[part] = cached_folder(self._files.reference(part), what, self._cache, submit)

    def wait(self, part: str, pool: Workers, listener: Listener) -> None:
        """Wait for a part if it is wanted; it is started if it was not.

        Raises:
            PreparationError: If it failed.
        """
        self.start(part, pool)
        if part not in self._running:
            return
        listener(StageStarted(stage="reference", total=1))
        try:
            self._running[part]()
        except TrialError as exc:
            remedy = f" {CHECK_VALUES}" if isinstance(exc, ScoreError) else ""
            raise PreparationError(f"Running the float model failed. {exc}{remedy}") from exc
        listener(StepFinished(stage="reference"))
