"""What a search would be like: how large it is, what a trial costs and how long it takes; it tries nothing."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.events import Listener, Noted, StageStarted
from autoselect.cases.feedback import question_of
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.result import Result
from autoselect.domain.states import EXACT
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.runs.folder import RunFolder
from autoselect.study import references
from autoselect.study.request import Request
from autoselect.study.run import opened, warned
from autoselect.study.setup.probing import probe_count, probe_samples
from autoselect.study.setup.problem import units_of
from autoselect.study.stage_clock import StageClock
from autoselect.tflite import reader

_MEMBERS = 10
"""Usual number of members of a front, which are scored on the held-out samples too."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outlook(Result):
    """What a search would be like.

    Attributes:
        size_bytes: Of the float model.
        nodes: That quantization treats as one each.
        units: Of nodes that move together.
        states: That a unit may be in: integer or left out, or integer, hybrid or float.
        candidates: Different settings of the search space.
        samples: By part: ``calibration``, ``search``, ``heldout``.
        warnings: What the user should know.
        notes: What is good to know, and whether an output looks as if it were fed back.
        refused: Why the all-integer model cannot be built or scored; empty if it can.
        build_seconds: To build the all-integer model; NaN if it is refused, like the times that follow.
        score_seconds: To score it on the search samples.
        inference_seconds: Of one sample.
        prepare_seconds: Spent on preparing; less the next time, from the cache.
        search_seconds: About what the search takes at most: racing ends many trials early. A timeout counts.
        trials: That the search would have.
        workers: That it would use.
        disk_bytes: About what it keeps on the disk while it runs.
    """

    size_bytes: int
    nodes: int
    units: int
    states: int
    candidates: int
    samples: Mapping[str, int]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    refused: str
    build_seconds: float
    score_seconds: float
    inference_seconds: float
    prepare_seconds: float
    search_seconds: float
    trials: int
    workers: int
    disk_bytes: int


def outlook(request: Request, folder: RunFolder, listener: Listener) -> Outlook:
    """Prepare a search, and measure one build and one evaluation instead of going on.

    Raises:
        AutoselectError: What the search would raise before its first trial.
    """
    clock = StageClock(listener)
    with opened(request, folder, clock) as (settled, pool, case, space):
        settings = settled.settings
        if settings.evaluator is not None:
            with contextlib.suppress(TrialError):
                pool.call(score_jobs.score_float, case.files.root, timeout_seconds=settings.trial_timeout)
        told = warned(case, references.clipping_of(case.files.root, pool, settings), clock)
        ends = reader.read_interface(case.files.float_model.read_bytes())
        question = "" if settings.feedback else question_of(ends)
        if question:
            clock(Noted(message=question))
        prepared = sum(clock.seconds().values())
        clock(StageStarted(stage="estimate"))
        build, score, inference, size, refused = _measured(case, settings, pool)
        samples = case.counts.get("search", 0)
        probe = probe_samples(samples) / samples if samples else 0.0
        held_out = _MEMBERS * case.counts.get("heldout", 0) / samples if samples else 0.0
        units = len(units_of(case))
        kept = sum(path.stat().st_size for path in folder.root.rglob("*") if path.is_file())
        probes = probe_count(units) * (1 + len({*settings.states} - {EXACT}))  # in integers, and each state that errs
        work = settings.trials * (build + score) + probes * (build + probe * score)
        searched = min(prepared + work / settings.processes, settings.timeout or math.inf)
        return Outlook(
            size_bytes=case.files.float_model.stat().st_size,
            nodes=len(case.layers.nodes),
            units=units,
            states=2 + len(space.further),
            candidates=space.size,
            samples=case.counts,
            warnings=told.warnings,
            notes=(*case.notes, question) if question else case.notes,
            refused=refused,
            build_seconds=build,
            score_seconds=score,
            inference_seconds=inference,
            prepare_seconds=prepared,
            search_seconds=searched + held_out * score / settings.processes,
            trials=settings.trials,
            workers=settings.processes,
            disk_bytes=kept + settings.trials * size,
        )


def _measured(case: Case, settings: SearchSettings, pool: Workers) -> tuple[float, float, float, int, str]:
    """Seconds to build and to score, and of one inference; bytes of the model, or why there is none."""
    root, limit, unknown = case.files.root, settings.trial_timeout, float("nan")
    try:
        # The first build also reads what all candidates are made of.
        pool.call(build_jobs.build, root, settings.template.to_json(), timeout_seconds=limit)
        built = pool.call(build_jobs.build, root, settings.template.to_json(), timeout_seconds=limit)
        scored = pool.call(score_jobs.score, root, built.sha256, "search", False, timeout_seconds=limit)
    except TrialError as exc:
        return unknown, unknown, unknown, 0, str(exc)
    one = scored.inference_seconds / scored.samples if scored.samples else unknown
    return built.seconds, scored.seconds, one, built.size_bytes, ""
