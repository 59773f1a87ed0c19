"""What workers do to say what a member of the front is on the chip itself: compile it, and run it as the chip would.

Each job may die without harm to the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.cases.compiling import UNKEPT, read_for
from autoselect.cases.divergence import spread_rows
from autoselect.cases.files import FLOAT
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.compilers.emulation import EmulatedRunner
from autoselect.compilers.libraries import find_libraries
from autoselect.compilers.litert_plugin import PluginCompiler
from autoselect.domain.targets import LitertPlugin
from autoselect.errors import ScoreError
from autoselect.runs.files import write_bytes
from autoselect.scoring import evaluate
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.paired import PairedDrop, paired_drop
from autoselect.scoring.target_penalty import on_target
from autoselect.tflite.runner import Runner

EMULATED_MACS = 10**10
"""Multiply-accumulates that a model is emulated for: about half a minute on one core."""
_FEWEST_EMULATED = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipReply:
    """What the chip's compiler made of a model.

    Attributes:
        fragmentation: As :class:`autoselect.scoring.fragmentation.Fragmentation`, by the compiler's own pieces.
        compiled: As :class:`autoselect.domain.targets.Compiled`.
    """

    fragmentation: dict[str, Any]
    compiled: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """What a model scores on the emulated chip and on LiteRT's CPU kernels, on the same search samples.

    Attributes:
        samples: How many; 0 with an evaluator.
        chip: Score on the emulation.
        cpu: Score on the CPU.
        reference: The float model's on the CPU.
        drop: What the chip loses against float, in the metric's units.
        noise: Its standard error; NaN with an evaluator that returns one number.
        bound: What it is at most, with a confidence of 95 %; NaN likewise.
        low: Interval of what the chip loses against the CPU, with a confidence of 95 % for all members together.
        high: Likewise.
        chip_sqnr_db: How close the chip's outputs are to float's; NaN where nobody knows.
        cpu_sqnr_db: Likewise of the CPU's.
        agreement: Share of the samples of which chip and CPU say the same class; NaN without classes.
    """

    samples: int
    chip: float
    cpu: float
    reference: float
    drop: float
    noise: float
    bound: float
    low: float
    high: float
    chip_sqnr_db: float = math.nan
    cpu_sqnr_db: float = math.nan
    agreement: float = math.nan

    @property
    def differs(self) -> bool:
        """Whether chip and CPU differ by more than noise; unknown counts as no."""
        return self.low > 0.0 or self.high < 0.0


def compile_member(root: Path, sha256: str) -> ChipReply:
    """Compile a candidate for the target's chip, and keep the compiled file in the case.

    Raises:
        TargetRefusal: If the compiler refuses it.
        WorkerDied, JobFailed: If the compiler hung, was killed or failed.
    """
    case = open_case(root)
    target, how = case.scoring.target, case.scoring.compiling or UNKEPT
    content = case.files.candidate(sha256).read_bytes()
    compiled, written = PluginCompiler(target).compiled(content, timeout_seconds=how.timeout_seconds)
    write_bytes(case.files.compiled(sha256), written)
    cut = on_target(read_for(content, target, how), target)
    return ChipReply(fragmentation=asdict(cut), compiled=asdict(compiled))


def emulate(root: Path, sha256: str, most: int | None, comparisons: int) -> Emulated:
    """Run a compiled candidate on the emulated chip, on search samples.

    Args:
        root: The case.
        sha256: A candidate that was scored and compiled.
        most: At most so many samples; None for as many as :data:`EMULATED_MACS` allow.
        comparisons: How many members' intervals shall hold together.

    Raises:
        ScoreError: If it cannot be run.
        MetricError: If the metric has no value for what it gives.
    """
    case = open_case(root)
    runner = emulated_runner(case, sha256)
    if case.scoring.evaluator is not None:
        return _by_evaluator(case, runner, sha256, comparisons)
    numbers = emulated_numbers(case, most)
    metrics, reference = _metrics(case), case.reference("search")
    ours = evaluate.observe(runner, case.part("search"), metrics, reference, numbers)
    theirs = evaluate.observe(case.runner(sha256), case.part("search"), metrics, reference, numbers)
    floats = case.rows(FLOAT)
    if floats is None:
        floats = evaluate.observe(case.runner(FLOAT), case.part("search"), metrics[:1], reference)[0]
    found = _compared(metrics[0], ours[0], theirs[0], floats[np.asarray(numbers)], comparisons)
    agreement = _agreement(case, runner, sha256, numbers)
    if len(metrics) == 1:
        return Emulated(samples=len(numbers), agreement=agreement, **found)
    chip_db, cpu_db = (float(np.mean(rows[1])) for rows in (ours, theirs))
    return Emulated(samples=len(numbers), agreement=agreement, chip_sqnr_db=chip_db, cpu_sqnr_db=cpu_db, **found)


def emulated_runner(case: OpenCase, sha256: str) -> EmulatedRunner:
    """The compiled candidate on the emulated chip.

    Raises:
        ScoreError: If there is no emulation of the chip, or it refuses the file.
    """
    plugin = case.scoring.target.compiler
    assert isinstance(plugin, LitertPlugin)
    libraries = find_libraries(plugin.manufacturer, plugin.libraries)
    if libraries is None:
        raise ScoreError(f"There is no emulation of chips of {plugin.manufacturer}.")
    path = case.files.compiled(sha256)
    if not path.exists():
        compile_member(case.files.root, sha256)
    return EmulatedRunner(path.read_bytes(), libraries=libraries.folder)


def emulated_numbers(case: OpenCase, most: int | None) -> list[int]:
    """Which search samples are emulated: all, or as many as are affordable, drawn at random and always the same."""
    graph = case.prepared.graph
    affordable = EMULATED_MACS // max(sum(op.macs for op in graph.ops), 1)
    return spread_rows(len(case.part("search")), most or max(affordable, _FEWEST_EMULATED))


def _metrics(case: OpenCase) -> list[Metric]:
    metric = case.scoring.metric
    assert metric is not None
    return [metric] if case.reference("search") is None else [metric, case.scoring.fidelity]


def _by_evaluator(case: OpenCase, runner: EmulatedRunner, sha256: str, comparisons: int) -> Emulated:
    evaluator = case.scoring.evaluator
    assert evaluator is not None
    runners: Sequence[Runner | EmulatedRunner] = (runner, case.runner(sha256), case.runner(FLOAT))
    ours, theirs, floats = (evaluate.call_evaluator(evaluator, one, split="search") for one in runners)
    found = _compared(case.scoring.pairs, ours, theirs, floats, comparisons)
    return Emulated(samples=0, **found)


def _compared(
    metric: Metric, ours: np.ndarray, theirs: np.ndarray, floats: np.ndarray, comparisons: int
) -> dict[str, float]:
    lost = paired_drop(metric, ours, floats)
    between: PairedDrop = paired_drop(metric, ours, theirs, comparisons=comparisons)
    chip, cpu, reference = (metric.summarise(rows) for rows in (ours, theirs, floats))
    drop = reference - chip if metric.direction == "maximize" else chip - reference
    return {
        "chip": chip,
        "cpu": cpu,
        "reference": reference,
        "drop": lost.drop if math.isfinite(lost.drop) else drop,
        "noise": lost.error,
        "bound": lost.bound,
        "low": between.low,
        "high": between.high,
    }


def _agreement(case: OpenCase, runner: EmulatedRunner, sha256: str, numbers: Sequence[int]) -> float:
    metric = case.scoring.metric
    if metric is None or not metric.reads_classes:
        return math.nan
    store, cpu, same = case.part("search"), case.runner(sha256), 0
    for number in numbers[:_MOST_AGREEING]:
        sample = store.inputs(number)
        ours, theirs = (metric.scored(run(sample)) for run in (runner, cpu))
        same += bool(np.array_equal(ours.argmax(axis=-1), theirs.argmax(axis=-1)))
    return same / len(numbers[:_MOST_AGREEING])


_MOST_AGREEING = 100
"""Samples that are run again to compare classes."""
