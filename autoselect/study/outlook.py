"""What a search would be like: how large it is, what a trial costs and how long it takes; it tries nothing."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from autoselect.cases import build_jobs, score_jobs
from autoselect.cases.events import Listener, Noted, StageStarted, ignore
from autoselect.cases.feedback import question_of
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.result import Result
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import EXACT, SIXTEEN
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.runs.folder import RunFolder
from autoselect.study import references
from autoselect.study.proposing.problem import Unit
from autoselect.study.request import Request
from autoselect.study.run import opened, warned
from autoselect.study.setup.baselines import all_in_16_bits, recipe_for
from autoselect.study.setup.probing import Prober, probe_count
from autoselect.study.setup.problem import units_of
from autoselect.study.setup.repair_choice import seconds_expected
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
        build_seconds: To build a candidate, as a mean over the all-integer model and, if units may have 16 bits, the
            all-16-bit one; NaN if the first is refused, like the times that follow.
        score_seconds: To score it on the search samples.
        inference_seconds: Of one sample.
        phase_seconds: About what each phase takes at most: ``prepare``, ``repairs``, ``probes``, ``trials``,
            ``heldout``. Racing ends many trials early; preparing takes less the next time, from the cache.
        search_seconds: Their sum. A timeout counts, which does not end ``heldout``.
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
    phase_seconds: Mapping[str, float]
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
        build, score, inference, size, refused = _measured(case, settings, pool, space)
        samples, each = case.counts.get("search", 0), settings.processes
        held_out = _MEMBERS * case.counts.get("heldout", 0) / samples if samples else 0.0
        units = units_of(case)
        kept = sum(path.stat().st_size for path in folder.root.rglob("*") if path.is_file())
        states = 1 + len({*settings.states} - {EXACT})  # in integers, and each state that errs
        repairs = math.nan if refused else seconds_expected(case, settings, pool, space)
        phases = {
            "prepare": prepared,
            "repairs": repairs / each,
            "probes": probe_count(len(units)) * states * _seconds_of_probe(units, case, settings, pool) / each,
            "trials": settings.trials * (build + score) / each,
            "heldout": held_out * score / each,
        }
        before = math.fsum(phases.values()) - phases["heldout"]
        return Outlook(
            size_bytes=case.files.float_model.stat().st_size,
            nodes=len(case.layers.nodes),
            units=len(units),
            states=2 + len(space.further),
            candidates=space.size,
            samples=case.counts,
            warnings=told.warnings,
            notes=(*case.notes, question) if question else case.notes,
            refused=refused,
            build_seconds=build,
            score_seconds=score,
            inference_seconds=inference,
            phase_seconds=phases,
            search_seconds=min(before, settings.timeout or math.inf) + phases["heldout"],
            trials=settings.trials,
            workers=settings.processes,
            disk_bytes=kept + settings.trials * size,
        )


def _seconds_of_probe(units: Sequence[Sequence[str]], case: Case, settings: SearchSettings, pool: Workers) -> float:
    """Seconds of one probe, that of the unit in the middle; the first also runs the float model."""
    prober = Prober(case=case, settings=settings, pool=pool, listener=ignore, found={})
    nodes = frozenset(units[len(units) // 2] if units else ())
    unit = Unit(nodes=nodes, op_type="", position=0, sensitivity=0.0)
    seconds = math.nan
    for _ in range(2):
        begun = time.perf_counter()
        with contextlib.suppress(TrialError):
            result_of(prober.submitted("", [unit]))
        seconds = time.perf_counter() - begun
    return seconds


def _measured(
    case: Case, settings: SearchSettings, pool: Workers, space: BoundSpace
) -> tuple[float, float, float, int, str]:
    """Seconds to build and to score, and of one inference; bytes of the model, or why there is none.

    Seconds are means over the all-integer and the all-16-bit model, between which candidates lie.
    """
    call = partial(pool.call, timeout_seconds=settings.trial_timeout)
    recipes, found = [settings.template], list[tuple[build_jobs.BuildReply, score_jobs.ScoreReply]]()
    if SIXTEEN in settings.states:
        left_out, wide = all_in_16_bits(case.layers, space)
        recipes.append(recipe_for(left_out, settings.template, {SIXTEEN: wide}))
    for recipe in recipes:
        try:
            # The first build also reads what all candidates are made of.
            for _ in range(2):
                built = call(build_jobs.build, case.files.root, recipe.to_json())
            found.append((built, call(score_jobs.score, case.files.root, built.sha256, "search", False)))
        except TrialError as exc:
            if not found:
                return math.nan, math.nan, math.nan, 0, str(exc)
    builds, scores = zip(*found, strict=True)
    return (
        fmean(built.seconds for built in builds),
        fmean(scored.seconds for scored in scores),
        fmean(scored.inference_seconds / scored.samples if scored.samples else math.nan for scored in scores),
        max(built.size_bytes for built in builds),
        "",
    )
