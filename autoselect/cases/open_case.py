"""What a worker keeps open of a case: the calibrated model, samples and float outputs; does no job itself.

A worker opens a case folder once and keeps what it loaded for its whole life.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import cloudpickle
import numpy as np

from autoselect.cases.compiling import UNKEPT, Compiling, partition
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.prepared import Prepared, load_prepared
from autoselect.compilers.emulation import EmulatedRunner
from autoselect.compilers.libraries import NEEDED, find_libraries
from autoselect.compilers.opening import compiler_of
from autoselect.data.samples import SampleStore
from autoselect.domain.objectives import Direction
from autoselect.domain.runtimes import Runtime
from autoselect.domain.targets import LitertPlugin, Seen, Target, as_seen
from autoselect.errors import MetricError, ModelError, ScoreError
from autoselect.isolation.worker import kept
from autoselect.quantize.building.asked import AskCompiler
from autoselect.quantize.building.build import Builder
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.runs.files import write_bytes
from autoselect.scoring import evaluate
from autoselect.scoring.evaluator_parts import Judging
from autoselect.scoring.metric_base import Metric
from autoselect.tflite import wide_kernels
from autoselect.tflite.runner import Outputs, Runner, Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How candidates of a case are scored; exactly one of metric and evaluator is set.

    ``fidelity`` compares with the float model whatever the metric is: on few samples it tells candidates apart
    that a metric cannot. Candidates that ``target`` refuses are not scored. ``costs`` are the columns of the run's
    objectives but the metric, ``latency_threads`` those of the interpreter that is timed. ``direction`` is the
    evaluator's. ``exact_rewrites`` says whether candidates are rewritten for the target without a change of any output,
    ``emulates`` whether they are scored on the emulation of the target's chip. What ``runtime`` does not load is not
    scored either; None takes all.
    """

    metric: Metric | None
    fidelity: Metric
    evaluator: evaluate.Evaluator | None
    target: Target
    compiling: Compiling | None
    costs: frozenset[str]
    latency_threads: int
    direction: Direction
    exact_rewrites: bool = True
    emulates: bool = False
    runtime: Runtime | None = None


class OpenCase:
    """A case as a worker holds it; everything is loaded when first needed and then kept."""

    def __init__(self, root: Path) -> None:
        self.files = CaseFiles(root=root)
        self._parts: dict[str, SampleStore] = {}
        self._references: dict[str, evaluate.ReferenceOutputs] = {}
        self._float_rows: dict[str, np.ndarray] = {}  # by part
        self._judging: dict[str, tuple[Judging, Metric]] = {}  # by part

    @cached_property
    def prepared(self) -> Prepared:
        """The calibrated model and the layer table."""
        return load_prepared(self.files.prepared)

    @cached_property
    def builder(self) -> Builder:
        """Builds recipes of the calibrated model, for the target of the case if it has one."""
        if not self.files.scoring.exists():
            return self._builder()
        scoring = self.scoring
        return self.builder_for(scoring.target, scoring.compiling, exact_rewrites=scoring.exact_rewrites)

    @property
    def target(self) -> Target:
        """The target of the case, with what was seen of its chips."""
        return target_as_seen(self.scoring.target, self.files)

    def builder_for(self, target: Target, how: Compiling | None = None, *, exact_rewrites: bool = True) -> Builder:
        """A builder for a target. The target's compiler is asked which ops it takes if that decides."""
        if not target.asks_compiler:
            return self._builder(exact_rewrites=exact_rewrites)

        def ask(content: bytes) -> list[Mapping[int, str]]:
            return [partition(content, chip, how or UNKEPT).left for chip in target.asked]

        return self._builder(ask, exact_rewrites=exact_rewrites)

    def _builder(self, ask: AskCompiler | None = None, *, exact_rewrites: bool = True) -> Builder:
        calibrated, nodes = self.prepared.calibrated, self.prepared.layers.nodes
        return Builder(calibrated, nodes, self.kit, ask, gathers=exact_rewrites, exact_rewrites=exact_rewrites)

    @cached_property
    def kit(self) -> RepairKit:
        """What repairs need: measured on the calibration samples when first asked for, then kept in the case."""
        if not self.files.samples("calibration").exists():  # As of a run that is over.
            return RepairKit(self.prepared.calibrated, keep=self._kept)
        store = self.samples("calibration")
        return RepairKit(self.prepared.calibrated, lambda: (store.inputs(i) for i in range(len(store))), self._kept)

    def _kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        prepared = self.files.prepared / name
        return prepared.read_bytes() if prepared.exists() else kept_file(self.files.evidence / name, make)

    @cached_property
    def scoring(self) -> Scoring:
        """How candidates are scored."""
        scoring: Scoring = cloudpickle.loads(self.files.scoring.read_bytes())
        return scoring

    def runner(self, sha256: str, *, shipped: bool = False) -> Running:
        """A candidate (or the float model), ready to be scored: on LiteRT's delegates where it repeats its outputs.

        16-bit convolutions are stood in for where LiteRT's own would take long, unless it is to run as it is shipped.
        If candidates are scored on the emulation of the target's chip, a candidate runs there.

        Raises:
            ScoreError: If the interpreter refuses it.
        """
        if self.scoring.emulates and sha256 != FLOAT and not shipped:
            return self.emulated_runner(sha256, self.target.asked[0])
        return self.cpu_runner(sha256, shipped=shipped)

    def cpu_runner(self, sha256: str, *, shipped: bool = False) -> Runner:
        """The candidate's runner on LiteRT's CPU kernels, even if others run on an emulation."""
        plain = self.files.plain_kernels(sha256).exists()
        content = self.files.candidate(sha256).read_bytes()
        scored = content if shipped else self.as_scored(sha256)
        return Runner(scored, delegates=not plain, stands_for=None if scored == content else content)

    def emulated_runner(self, sha256: str, chip: Target) -> EmulatedRunner:
        """A candidate, ready to be run on the emulation of a chip; it is compiled where it is not yet.

        Raises:
            ScoreError: If there is no emulation of the chip, or it refuses the file.
            TargetRefusal, WorkerDied, JobFailed: If it does not compile.
        """
        plugin, path = chip.compiler, self.files.compiled(sha256, chip.name)
        libraries = None
        if isinstance(plugin, LitertPlugin) and plugin.manufacturer in NEEDED:
            libraries = find_libraries(plugin.manufacturer, plugin.libraries)
        if libraries is None:
            raise ScoreError(f"There is no emulation of {chip.name}.")
        content, how = self.files.candidate(sha256).read_bytes(), self.scoring.compiling or UNKEPT
        if not path.exists():
            write_bytes(path, compiler_of(chip).compiled(content, timeout_seconds=how.timeout_seconds)[1])
        return EmulatedRunner(path.read_bytes(), libraries=libraries.folder, source=content)

    def as_scored(self, sha256: str) -> bytes:
        """The file that runs for a candidate when it is scored.

        Raises:
            ScoreError: If its file is damaged.
        """
        try:
            return wide_kernels.quick(self.files.candidate(sha256).read_bytes())
        except ModelError as exc:
            raise ScoreError(f"The file of the candidate is damaged. {exc}") from exc

    def samples(self, name: str) -> SampleStore:
        """A folder of samples."""
        return SampleStore.open(self.files.samples(name))

    def part(self, part: str) -> SampleStore:
        """Samples of ``search`` or ``heldout``."""
        if part not in self._parts:
            split = json.loads(self.files.split(part).read_text(encoding="utf-8"))
            store = self.samples(split["samples"])
            self._parts[part] = store if split["indices"] is None else store.subset(split["indices"])
        return self._parts[part]

    def scored(self, outputs: Outputs) -> Outputs:
        """The output that the metric scores, out of all outputs of a model.

        It is all of them if an evaluator scores, which may look at any, or if nothing does.
        """
        if not outputs or not self.files.scoring.exists() or self.scoring.metric is None:
            return outputs
        key = self.scoring.metric.output or next(iter(outputs))
        return {key: outputs[key]}

    def pairs(self, part: str = "search") -> Metric:
        """What compares rows of evidence of a part: the metric, or what the evaluator says of its rows."""
        return self.scoring.metric or self._judged(part)[1]

    def groups(self, part: str) -> tuple[str, ...] | None:
        """The group of each row of evidence of a part; None where samples have none."""
        return self.judging(part).groups if self.scoring.metric is None else self.part(part).groups

    def judging(self, part: str) -> Judging:
        """How the rows of the evaluator make a score; a mean where no model was scored on the part."""
        return self._judged(part)[0]

    def keep_judging(self, part: str, judging: Judging, *, anew: bool) -> None:
        """Keep how the rows of the evaluator make a score, for other workers.

        Args:
            part: Of the samples.
            judging: What a model's evaluation says of it.
            anew: Whether it replaces what an earlier model said.

        Raises:
            MetricError: If it cannot be sent to other workers, or a model before had other groups.
        """
        path = self.files.judging(part)
        if anew or not path.exists():
            self._judging.pop(part, None)
            write_bytes(path, _pickled(judging))
        if self.judging(part).groups != judging.groups:
            raise MetricError(
                "The evaluator gave other groups than for an earlier model. Give each sample the same group each time."
            )

    def _judged(self, part: str) -> tuple[Judging, Metric]:
        path, direction = self.files.judging(part), self.scoring.direction
        if part not in self._judging and not path.exists():
            mean = Judging(name="evaluator")
            return mean, mean.metric(direction)
        if part not in self._judging:
            judging: Judging = cloudpickle.loads(path.read_bytes())
            self._judging[part] = judging, judging.metric(direction)
        return self._judging[part]

    def reference(self, part: str) -> evaluate.ReferenceOutputs | None:
        """The float model's outputs on a part, where they were kept."""
        if not self.files.reference(part).exists():
            return None
        if part not in self._references:
            self._references[part] = evaluate.ReferenceOutputs(self.files.reference(part))
        return self._references[part]

    def rows(self, sha256: str, part: str = "search") -> np.ndarray | None:
        """The metric's evidence of a candidate on a part, where it was kept; the float model's is read once."""
        path = self.files.rows(sha256, part)
        if sha256 != FLOAT:
            return np.load(path) if path.exists() else None
        if part not in self._float_rows and path.exists():
            self._float_rows[part] = np.load(path)
        return self._float_rows.get(part)


def _pickled(judging: Judging) -> bytes:
    try:
        content: bytes = cloudpickle.dumps(judging)
    except (TypeError, AttributeError, pickle.PicklingError) as exc:
        raise MetricError(
            f"The score of the evaluator's parts cannot be sent to other workers: {exc}. Make it a function that needs "
            "nothing but the rows."
        ) from exc
    return content


def kept_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """What is in a file; where there is none, make it and keep it.

    Raises:
        StorageError: If the file cannot be written.
    """
    if not path.exists():
        write_bytes(path, make())
    return path.read_bytes()


def target_as_seen(target: Target, files: CaseFiles) -> Target:
    """A target with what was seen of its chips, if the case knows that."""
    return as_seen(target, read_seen(files)) if files.seen.exists() else target


def read_seen(files: CaseFiles) -> list[Seen]:
    """What was seen of each chip of the case's target."""
    return [Seen(**fields) for fields in json.loads(files.seen.read_text(encoding="utf-8"))]


@kept(2)
def open_case(root: Path) -> OpenCase:
    """The case in a folder, opened once in a process."""
    return OpenCase(root)
