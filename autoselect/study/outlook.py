"""What a search would be like: how large it is, what a trial costs and how long it takes; it tries nothing."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from autoselect.cases import build_jobs, chip_jobs, score_jobs
from autoselect.cases.divergence import runs_on_kernels
from autoselect.cases.events import Listener, Noted, StageStarted, Warned, ignore
from autoselect.cases.feedback import question_of
from autoselect.cases.prepare import Case
from autoselect.cases.repeat_jobs import RUNS_AT_LEAST
from autoselect.cases.settled import Settled
from autoselect.domain.result import Result
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import EXACT, SIXTEEN
from autoselect.errors import TrialError, UsageError
from autoselect.isolation import machine
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.runs.folder import RunFolder
from autoselect.scoring.racing import first_look
from autoselect.scoring.target_file import read_target
from autoselect.study import references
from autoselect.study.finishing import on_chip
from autoselect.study.forecasts import plain_forecaster
from autoselect.study.proposing.problem import Unit
from autoselect.study.recording.samplers import PROPOSERS
from autoselect.study.remarks import warned
from autoselect.study.request import Request
from autoselect.study.run import opened
from autoselect.study.setup import repeatability
from autoselect.study.setup.baselines import all_in_16_bits, baselines, recipe_for
from autoselect.study.setup.probing import Prober, probe_count
from autoselect.study.setup.problem import units_of
from autoselect.study.setup.repair_choice import seconds_expected
from autoselect.study.stage_clock import StageClock
from autoselect.tflite import reader, wide_kernels


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outlook(Result):
    """What a search would be like.

    Attributes:
        size_bytes: Of the float model.
        metric: Name of what it is scored by.
        float_score: Its score on the search samples, in the metric's units.
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
        phase_seconds: About what each phase takes: ``prepare``, ``repairs``, ``probes``, ``trials``, ``heldout``, each
            by a pace of its own, and ``emulation`` if chips are emulated. Preparing takes less the next time, from the
            cache.
        search_seconds: Their sum. A timeout counts, which ends neither ``heldout`` nor ``emulation``.
        trials: That the search would have.
        workers: That it would use.
        disk_bytes: About what it keeps on the disk while it runs.
        memory: About the most memory in bytes that this process (``here``), one worker (``worker``) and all processes
            together (``all``) take: what they took while this was found out.
    """

    size_bytes: int
    metric: str
    float_score: float
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
    memory: Mapping[str, int]


def outlook(request: Request, folder: RunFolder, listener: Listener) -> Outlook:
    """Prepare a search, and measure one build and one evaluation instead of going on.

    Raises:
        AutoselectError: What the search would raise before its first trial.
    """
    clock = StageClock(listener)
    with opened(request, folder, clock) as (settled, pool, case, space):
        settings = settled.settings
        float_model = references.float_reference(case, pool, settings, clock)
        # It refuses a search in which no model could be recommended.
        yardstick = references.yardstick_of(float_model, request.metric_name, request.direction, settings)
        max_drop = settings.constraints.max_drop
        references.refuse_impossible_gain(float_model, request.metric_name, request.direction, max_drop)
        remarks = references.warnings_of(float_model, request.metric_name, case.files.root, pool)
        seconds = settings.trial_timeout
        remarks += references.unsteady(yardstick, request.metric_name, case.files.root, pool, seconds)
        warned_case = warned(case, (*remarks, *references.clipping_of(case.files.root, pool, settings)), clock)
        ends = reader.read_interface(case.files.float_model.read_bytes())
        question = "" if settings.feedback else question_of(ends)
        if question:
            clock(Noted(message=question))
        prepared = sum(clock.seconds().values())
        clock(StageStarted(stage="estimate"))
        wholes, refused = _measured(case, settings, pool, space)
        build, score, inference = (fmean(figures) for figures in zip(*(whole.paces for whole in wholes), strict=True))
        on_host = _left_to_host(wholes[0], case, settings, pool, clock)
        units = units_of(case)
        hybrid_too, wholly = read_target(settings.target).runs_hybrid, baselines(case.layers, space, settings.template)
        models = sum(hybrid_too or baseline.recipe.fallback != "drq" for baseline in wholly)
        trials = settings.trials if space.dimensions else min(settings.trials, models)
        kept = sum(path.stat().st_size for path in folder.root.rglob("*") if path.is_file())
        asking = math.nan if refused else _seconds_of_asking(case, settings, pool, space)
        phases = {
            # Two models are run again before the first trial: float and all-integer.
            "prepare": prepared + wholes[0].reading + build + 2 * _repeating(inference),
            "repairs": (math.nan if refused else seconds_expected(case, settings, pool, space)) / settings.processes,
            "probes": _probing(units, case, settings, pool) / settings.processes if space.dimensions else 0.0,
            "trials": _trials(wholes, trials, min(trials, models), case, settings, asking),
        }
        before = math.fsum(phases.values())
        members = 10  # Usual number of members of a front.
        phases["heldout"] = _checking(wholes, case, members) / settings.processes
        if emulating := _emulating(wholes, case, settings, pool):
            phases["emulation"] = members * emulating / settings.processes
        return Outlook(
            size_bytes=case.files.float_model.stat().st_size,
            metric=request.metric_name,
            float_score=float_model.metric,
            nodes=len(case.layers.nodes),
            units=len(units),
            states=2 + len(space.further),
            candidates=space.size,
            samples=case.counts,
            warnings=(*warned_case.warnings, *on_host),
            notes=(*case.notes, question) if question else case.notes,
            refused=refused,
            build_seconds=build,
            score_seconds=score,
            inference_seconds=inference,
            phase_seconds=phases,
            search_seconds=min(before, settings.timeout or math.inf) + phases["heldout"] + phases.get("emulation", 0.0),
            trials=trials,
            workers=settings.processes,
            disk_bytes=kept + trials * max(whole.size_bytes for whole in wholes),
            memory=_memory(pool, settings.processes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """What one whole model takes.

    Attributes:
        reading: Seconds of its first build beyond those of later ones: it reads what all such candidates are made of.
        build: Seconds to build it.
        score: Seconds to score it on all search samples.
        inference: Seconds of one sample.
        size_bytes: Size of its file.
        slow_macs: Multiply-accumulates of an inference in ops whose kernels are so slow that others stand in for them.
        sha256: Of its file; empty if there is none.
        compiled: What the target's compiler made of it; empty if it was not compiled.
    """

    reading: float = math.nan
    build: float = math.nan
    score: float = math.nan
    inference: float = math.nan
    size_bytes: int = 0
    slow_macs: int = 0
    sha256: str = ""
    compiled: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paces(self) -> tuple[float, float, float]:
        """Seconds to build, to score, and of one inference."""
        return self.build, self.score, self.inference


def _left_to_host(whole: _Whole, case: Case, settings: Settled, pool: Workers, listener: Listener) -> list[str]:
    """Warn of chips whose host does most of the all-integer model's work; the messages."""
    if not whole.sha256:
        return []
    target = read_target(settings.target)
    of_model = (whole.sha256, whole.compiled, "the all-integer model")
    messages = on_chip.left_to_host(*of_model, target, case.files.root, pool)
    for message in messages:
        listener(Warned(message=message))
    return messages


def _memory(pool: Workers, processes: int) -> dict[str, int]:
    """What this process, the largest worker so far and as many as that take at most."""
    asked = [pool.submit(machine.peak_bytes) for _ in range(processes)]
    here, worker = machine.peak_bytes(), 0
    for future in asked:
        with contextlib.suppress(TrialError):
            worker = max(worker, result_of(future))
    return {"here": here, "worker": worker, "all": here + processes * worker}


def _repeating(inference: float) -> float:
    """Seconds of seeing whether a model gives the same outputs again."""
    return max(repeatability.SECONDS, RUNS_AT_LEAST * inference)


def _probing(units: Sequence[Sequence[str]], case: Case, settings: Settled, pool: Workers) -> float:
    """Seconds of all probes: of each group in integers, and of a part of them in each other state that errs."""
    further = len({*settings.states} - {EXACT})
    # Share of the probes in integers that another state takes: most units err too little there to be told apart. Seen
    # were 0.2 (EfficientNet-B0) and 0.4 (a style-transfer net); it is a guess for others.
    return probe_count(len(units)) * (1 + further / 3) * _seconds_of_probe(units, case, settings, pool)


def _trials(wholes: Sequence[_Whole], count: int, full: int, case: Case, settings: Settled, asking: float) -> float:
    """Seconds of so many trials: the baselines are scored in full, of the others half until their first look only."""
    build, score, _ = (fmean(figures) for figures in zip(*(whole.paces for whole in wholes), strict=True))
    others, samples = count - full, case.counts.get("search", 0)
    share = (1.0 + first_look(samples) / samples) / 2.0 if settings.racing and samples else 1.0
    # All-integer candidates were read before; those with repairs that help, of each width, are read anew.
    reading = sum(whole.reading for whole in (*wholes[1:], *(wholes if settings.tries_repairs else ())))
    worked = reading + count * build + (count - others + share * others) * score
    if settings.processes == 1:
        return worked + others * asking
    return max(worked / settings.processes, others * asking)  # It is asked while workers work.


def _emulating(wholes: Sequence[_Whole], case: Case, settings: Settled, pool: Workers) -> float:
    """Seconds in which one member runs on the emulations of all chips of the target; 0 if no chip is emulated.

    An emulation in 16 bits may take many times as long as one in 8 bits. So for each chip the mean over the all-integer
    model and the all-16-bit one is taken.
    """
    if settings.emulation == "none":
        return 0.0
    target, seconds = read_target(settings.target), 0.0
    for place in (place for place, chip in enumerate(target.compilers) if chip in target.asked):
        taken = list[float]()
        for whole in (whole for whole in wholes if whole.sha256):
            arguments = (case.files.root, whole.sha256, place, settings.emulation_samples)
            with contextlib.suppress(TrialError, UsageError):  # A search goes on without an emulation, too.
                taken.append(
                    pool.call(chip_jobs.seconds_of_emulation, *arguments, timeout_seconds=settings.trial_timeout)
                )
        seconds += fmean(taken) if taken else 0.0
    return seconds


def _checking(wholes: Sequence[_Whole], case: Case, members: int) -> float:
    """Seconds after the trials: members are scored on held-out samples, run again, and run on their own kernels."""
    _, score, inference = (fmean(figures) for figures in zip(*(whole.paces for whole in wholes), strict=True))
    samples = case.counts.get("search", 0)
    scored = case.counts.get("heldout", 0) / samples * score if samples else 0.0
    macs = wholes[-1].slow_macs
    # Seconds that LiteRT's own 16-bit convolutions take for each MAC, see :mod:`autoselect.tflite.wide_kernels`.
    slow = 0.0 if macs < wide_kernels.WORTH_IT else 2e-9 * macs * runs_on_kernels(members // 2, macs)
    return members * (scored + _repeating(inference)) + slow


def _seconds_of_asking(case: Case, settings: Settled, pool: Workers, space: BoundSpace) -> float:
    """Seconds in which the project's own samplers choose a candidate: that of the forecasts that one ask takes."""
    if settings.sampler not in PROPOSERS:
        return 0.0
    try:
        forecast = plain_forecaster(case, settings, space, pool)
    except TrialError:
        return math.nan
    begun = time.perf_counter()
    # Four forecasts are timed. An ask takes 73 with 40 units and 77 with 120 (`experiments/cost`).
    for _ in range(4):
        forecast(space.pin(frozenset()), {}, settings.template.repairs)
    return (time.perf_counter() - begun) / 4 * 75


def _seconds_of_probe(units: Sequence[Sequence[str]], case: Case, settings: Settled, pool: Workers) -> float:
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


def _measured(case: Case, settings: Settled, pool: Workers, space: BoundSpace) -> tuple[list[_Whole], str]:
    """The all-integer model and, if units may have 16 bits, the all-16-bit one; candidates lie between them.

    Returns:
        Them, and why the first cannot be built or scored; without figures and with a reason if it cannot.
    """
    call = partial(pool.call, timeout_seconds=settings.trial_timeout)
    recipes, wholes = [recipe_for(space.pin(frozenset()), settings.template, {})], list[_Whole]()
    if SIXTEEN in settings.states:
        left_out, wide = all_in_16_bits(case.layers, space)
        recipes.append(recipe_for(left_out, settings.template, {SIXTEEN: wide}))
    for recipe in recipes:
        try:
            begun = time.perf_counter()
            call(build_jobs.build, case.files.root, recipe.to_json())
            first = time.perf_counter() - begun
            built = call(build_jobs.build, case.files.root, recipe.to_json())
            scored = call(score_jobs.score, case.files.root, built.sha256, "search", False)
        except TrialError as exc:
            return (wholes, "") if wholes else ([_Whole()], str(exc))
        wholes.append(
            _Whole(
                reading=max(first - built.seconds, 0.0),
                build=built.seconds,
                score=scored.seconds,
                inference=scored.inference_seconds / scored.samples if scored.samples else math.nan,
                size_bytes=built.size_bytes,
                slow_macs=_slow_macs(case.files.candidate(built.sha256)),
                sha256=built.sha256,
                compiled=built.compiled,
            )
        )
    return wholes, ""


def _slow_macs(path: Path) -> int:
    """Multiply-accumulates on slow kernels of a candidate; none of one that only a worker elsewhere has."""
    return wide_kernels.slow_macs(path.read_bytes()) if path.exists() else 0
