"""What workers do to say what a member of the front is on the chip itself: compile it, and run it as the chip would.

Each job may die without harm to the run.
"""

from __future__ import annotations

import contextlib
import io
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from autoselect.cases.compiling import UNKEPT, any_spills, least_cost, look_at, most_segments, read_for
from autoselect.cases.divergence import spread_rows
from autoselect.cases.files import FLOAT
from autoselect.cases.open_case import OpenCase, open_case, read_seen
from autoselect.compilers.opening import compiler_of
from autoselect.domain.graph import Graph, OpKind, seen_by
from autoselect.domain.host_work import host_works, left_against_table
from autoselect.domain.objectives import drop_from
from autoselect.domain.recipe import Recipe
from autoselect.domain.states import EXACT, SIXTEEN, fields_of
from autoselect.domain.targets import Seen, Target
from autoselect.domain.verdicts import Verdict, judge, may_spill, views
from autoselect.domain.words import counted
from autoselect.errors import TrialError
from autoselect.quantize.building.build import Builder, Candidate
from autoselect.quantize.building.proof import PROOF_SAMPLES, rewritten
from autoselect.runs.files import write_bytes, write_json
from autoselect.scoring import evaluate
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.paired import paired_drop
from autoselect.scoring.target_penalty import on_target
from autoselect.tflite.runner import Outputs, Running
from autoselect.tflite.tflite_file import TfliteFile

INTEGER, HYBRID = OpKind.INTEGER.value, OpKind.HYBRID.value
MIXES = 12
"""Number of random mixes that are compiled to see whether a model spills. If a third of all its mixes spill, the chance
that none of these does is below 1 %."""
EMULATED_MACS = 4 * 10**9
"""Multiply-accumulates for which a model is emulated: about ten seconds on one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipReply:
    """What a chip's compiler made of a model.

    Attributes:
        fragmentation: As :class:`autoselect.scoring.fragmentation.Fragmentation`, by the compilers' own pieces.
        compiled: As :class:`autoselect.domain.targets.Compiled`.
    """

    fragmentation: dict[str, Any]
    compiled: dict[str, Any]


def host_messages(root: Path, sha256: str, compiled: Mapping[str, Any], target: Target, model: str) -> list[str]:
    """Sentences on what a candidate leaves to the hosts of chips: most of its work, or ops against the profile.

    Args:
        root: The case.
        sha256: The candidate.
        compiled: What the target's compiler made of it; empty if it was not compiled.
        target: With the chips.
        model: What to call the candidate.

    Raises:
        ModelError: If the file is no TFLite file.
    """
    graph = TfliteFile(open_case(root).files.candidate(sha256).read_bytes()).graph
    works = [work.told_of(model) for work in host_works(graph, target) if work.is_most]
    return works + left_against_table(graph, compiled, target, model)


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
        lost: What the chip loses against the CPU, in the metric's units; negative if it gains.
        lost_noise: Its standard error; NaN with an evaluator that returns one number.
        low: Interval of that on other samples, with a confidence of 95 % for all members together.
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
    lost: float
    lost_noise: float
    low: float
    high: float
    chip_sqnr_db: float = math.nan
    cpu_sqnr_db: float = math.nan
    agreement: float = math.nan

    def differs(self, allowed_drop: float) -> bool:
        """Whether the chip's score is another than the CPU's: for sure, or by a loss that is neither allowed nor noise.

        Few samples prove little, but a collapse on them is none the less to be told.
        """
        # A loss of more than two standard errors is more than noise.
        is_noise = self.lost <= 2.0 * self.lost_noise  # NaN is no noise.
        return self.low > 0.0 or self.high < 0.0 or (self.lost > allowed_drop and not is_noise)

    @property
    def drop_low(self) -> float | None:
        """What the chip loses at least against float, with a confidence of 95 %; None if no bound is known.

        It is taken to lie as far below the loss as the upper bound lies above it.
        """
        return None if math.isnan(self.bound) else 2.0 * self.drop - self.bound


def look(root: Path, recipe_json: str, states: Sequence[str]) -> None:
    """See what the target's chips make of the whole models, and keep it in the case.

    Of each chip whose compiler decides what it takes: how many bytes its pieces move, and whether its own memory is too
    small. Of each of several chips: the least cost that is easily found, of all models of one form and of the one whose
    nodes are float if the chip leaves them in integers.

    Args:
        root: The case.
        recipe_json: What all recipes have in common.
        states: Those of the search beside integers of 8 bits.

    Raises:
        BuildError: If the quantizer refuses the model.
        TrialError: If a compiler fails on the all-integer model.
    """
    case, plain = open_case(root), Recipe.from_json(recipe_json)
    target, how = case.scoring.target, case.scoring.compiling or UNKEPT
    forms = case.builder.blueprint(plain).forms
    left = [node.name for node in case.prepared.layers.nodes if forms[node.index].get("integer")]
    partly = replace(plain, denylisted_nodes=frozenset(left), fallback="float")
    # One of several chips may run 16 bits for less though the others do not run them, so that no candidate has them.
    is_best_wide = any(chip.runs_int16 and not chip.favours_int8 for chip in target.parts)
    recipes = dict.fromkeys([*_wholes(case, plain, [*states, SIXTEEN] if is_best_wide else states).values(), partly])
    builds = [case.builder.build(recipe) for recipe in recipes]
    judged = [views(built.graph, target) for built in builds]
    seen = []
    for place, chip in enumerate(target.chips):
        own = [(built.content, of_chips[place][1]) for built, of_chips in zip(builds, judged, strict=True)]
        seen_ops = Seen()
        if chip in target.asked:
            models = [*_as_seen(builds, target.asked.index(chip))]
            seen_ops = look_at(models, chip, how)
            measured_chip = replace(chip, ddr_per_op=seen_ops.ddr_per_op)  # As in all forecasts that follow.
            own = [(content, judge(graph, measured_chip)) for content, graph in models]
        best = least_cost(own, chip, case.scoring.compiling)
        seen.append(replace(seen_ops, best=best or 1.0))
    write_json(case.files.seen, [asdict(answers) for answers in seen])


def look_at_mixes(root: Path, recipe_json: str, states: Sequence[str], seed: int) -> None:
    """Find out for each chip whether random mixes of the model spill out of its own memory, and keep that in the case.

    Chips whose whole models spill already, that no compiler judges, or whose memory no mix can fill are left out.

    Args:
        root: The case, after :func:`look`.
        recipe_json: What all recipes have in common.
        states: Those of the search beside integers of 8 bits.
        seed: Of the search; the mixes are drawn with it.

    Raises:
        BuildError: If the quantizer refuses a whole model.
    """
    case, plain = open_case(root), Recipe.from_json(recipe_json)
    target, how, nodes = case.target, case.scoring.compiling or UNKEPT, [n.name for n in case.prepared.layers.nodes]
    seen = read_seen(case.files)
    for place, chip in enumerate(target.chips):
        if chip.spills or chip not in target.asked or not may_spill(case.prepared.graph, chip):
            continue
        order = target.asked.index(chip)
        wholes = {f: case.builder.build(r) for f, r in _wholes(case, plain, states).items() if f in (INTEGER, *states)}
        left_of = {form: judge(seen_by(built.graph, order), chip).left_ops for form, built in wholes.items()}
        built = _built(mixes(plain, left_of, states, nodes, seed), case.builder)
        seen[place] = replace(seen[place], spills=any_spills(_as_seen(built, order), chip, how))
    write_json(case.files.seen, [asdict(answers) for answers in seen])


def _wholes(case: OpenCase, plain: Recipe, states: Sequence[str]) -> dict[str, Recipe]:
    """Recipes of the whole models, by form; of 16 bits if a state of the search and a node has such a form."""
    nodes = [node.name for node in case.prepared.layers.nodes]
    wide = case.builder.blueprint(plain, int16=True).int16_nodes if SIXTEEN in states else ()
    return {
        INTEGER: plain,
        HYBRID: replace(plain, denylisted_nodes=frozenset(nodes), fallback="drq"),
        EXACT: replace(plain, denylisted_nodes=frozenset(nodes), fallback="float"),
        **({SIXTEEN: replace(plain, int16_nodes=frozenset(nodes[i] for i in wide))} if wide else {}),
    }


def mixes(
    plain: Recipe,
    left_of: Mapping[str, int],
    states: Sequence[str],
    nodes: Sequence[str],
    seed: int,
    count: int = MIXES,
) -> Iterator[Recipe]:
    """Recipes in which each node has one of two forms, drawn at random, so that values are in both at once.

    Args:
        plain: What all recipes have in common.
        left_of: Ops that the chip leaves of each whole model, by form. The two with the fewest are drawn from: what is
            left takes none of the chip's memory.
        states: Those of the search beside integers of 8 bits.
        nodes: Their names.
        seed: Of what is drawn.
        count: So many.
    """
    rng, forms = np.random.default_rng(seed), sorted(left_of, key=left_of.__getitem__)[:2]
    for _ in range(count):
        drawn = dict(zip(nodes, rng.integers(len(forms), size=len(nodes)).tolist(), strict=True))
        of_form = {
            form: frozenset(n for n, place in drawn.items() if forms[place] == form) for form in (INTEGER, *states)
        }
        fields = fields_of(frozenset(nodes) - of_form[INTEGER], {state: of_form[state] for state in states[1:]})
        yield replace(plain, **cast("dict[str, Any]", fields))


def _built(recipes: Iterable[Recipe], builder: Builder) -> Iterator[Candidate]:
    """The candidates that can be built; each is built when the caller asks for it."""
    for recipe in recipes:
        with contextlib.suppress(TrialError):
            yield builder.build(recipe)


def _as_seen(builds: Iterable[Candidate], order: int) -> Iterator[tuple[bytes, Graph]]:
    """Built models with what one of the compilers said of each op."""
    return ((built.content, seen_by(built.graph, order)) for built in builds)


def rewrites(root: Path, recipe_json: str, int16: bool) -> tuple[str, str]:
    """What the order of ops and 16-bit rewrites do to candidates for the target, in a sentence; and what is wrong.

    Raises:
        BuildError, ScoreError: If a candidate cannot be built or run.
        TrialError: If a compiler fails.
    """
    case = open_case(root)
    target, how, recipe = case.target, case.scoring.compiling, Recipe.from_json(recipe_json)
    before, after = (case.builder_for(target, how, exact_rewrites=wished) for wished in (False, True))
    store, nodes = case.samples("calibration"), case.prepared.layers.nodes
    samples = [store.inputs(i) for i in range(min(len(store), PROOF_SAMPLES))]
    outcome = rewritten(before, after, nodes, recipe, int16=int16, samples=samples)
    # The model came with float inputs and outputs: those of another type are no rewrite.
    everything = replace(recipe, denylisted_nodes=frozenset(n.name for n in nodes), fallback="float", io_type="float32")
    came = judge(read_for(case.files.float_model.read_bytes(), target, how), target)
    made = judge(after.build(everything).graph, target)
    pairs = {"the float model": (came, made)}
    pairs |= {
        name: (judge(a, target), judge(b, target)) for name, (a, b) in zip(outcome.models, outcome.graphs, strict=True)
    }
    changed = [f"{name} {_in_words(a)}, now {_in_words(b)}" for name, (a, b) in pairs.items() if a.cost != b.cost]
    done = f"Rewrites that change no output: {'; '.join(changed) or 'they gain nothing here'}."
    wrong = f"Rewrites for the compiler change outputs: {outcome.told} Leave them out: --no-exact-rewrites."
    return done, wrong if outcome.told else ""


def _in_words(verdict: Verdict) -> str:
    left = f" with {counted(verdict.left_ops, 'op')} left out" if verdict.left_ops else ""
    return f"{counted(verdict.segments, 'partition')}{left}"


def compile_member(root: Path, sha256: str, chip: int) -> ChipReply:
    """Compile a candidate for one of the target's chips.

    Args:
        root: The case.
        sha256: The candidate.
        chip: Its place among those with a compiler.

    Raises:
        CompilerRefusal: If the compiler refuses it, or the host lacks a kernel for what is left to it.
        WorkerDied, JobFailed: If the compiler hung, was killed or failed.
    """
    case = open_case(root)
    target, how = case.target, case.scoring.compiling or UNKEPT
    chip_target = target.compilers[chip]
    content = case.files.candidate(sha256).read_bytes()
    compiled, written = compiler_of(chip_target).compiled(content, timeout_seconds=how.timeout_seconds)
    compiled.require_host()
    write_bytes(case.files.compiled(sha256, chip_target.name), written)
    graph = read_for(content, target, how)
    cut = on_target(graph, target)
    segments = most_segments(content, graph, target, how) if target.parts else compiled.segments
    return ChipReply(fragmentation={**asdict(cut), "segments": segments}, compiled=asdict(compiled))


def emulate(root: Path, sha256: str, chip: int, most: int | None, comparisons: int) -> Emulated:
    """Run a candidate on the emulation of a chip, and on the CPU, on the same search samples.

    Args:
        root: The case.
        sha256: A candidate that was scored.
        chip: Its place among those with a compiler.
        most: At most so many samples; None for as many as :data:`EMULATED_MACS` allow.
        comparisons: How many members' intervals shall hold together.

    Raises:
        ScoreError: If it cannot be run.
        MetricError: If the metric has no value for what it gives.
    """
    case = open_case(root)
    chip_target = case.target.compilers[chip]
    if (evaluator := case.scoring.evaluator) is not None:
        models = (case.emulated_runner(sha256, chip_target), case.cpu_runner(sha256), case.runner(FLOAT))
        rows = [evaluate.call_evaluator(evaluator, model, split="search").rows for model in models]
        return _compared(case.pairs(), *rows, comparisons=comparisons, groups=case.groups("search"))
    assert case.scoring.metric is not None
    metrics, numbers, reference = [case.scoring.metric], _numbers(case, most), case.reference("search")
    if reference is not None:
        metrics.append(case.scoring.fidelity)
    ours, agreement = _on_chip(case, sha256, chip_target, metrics, numbers)
    theirs, floats = (_rows_on_cpu(case, key, metrics, numbers) for key in (sha256, FLOAT))
    near = [float(rows[1].mean()) if reference is not None else math.nan for rows in (ours, theirs)]
    groups = case.groups("search")
    some = None if groups is None else [groups[number] for number in numbers]
    return replace(
        _compared(metrics[0], ours[0], theirs[0], floats[0], comparisons=comparisons, groups=some),
        samples=len(numbers),
        chip_sqnr_db=near[0],
        cpu_sqnr_db=near[1],
        agreement=agreement,
    )


def seconds_of_emulation(root: Path, sha256: str, chip: int, most: int | None) -> float:
    """Estimate how many seconds :func:`emulate` takes: the model is loaded, and run on three samples.

    It is 0 with an evaluator: nobody knows how often that runs the model.

    Args:
        root: The case.
        sha256: A candidate.
        chip: Its place among those with a compiler.
        most: As for :func:`emulate`.

    Raises:
        ScoreError: If it cannot be run.
    """
    case = open_case(root)
    if case.scoring.metric is None:
        return 0.0
    begun, store, numbers = time.perf_counter(), case.part("search"), _numbers(case, most)
    run = case.emulated_runner(sha256, case.target.compilers[chip])
    run(store.inputs(numbers[0]))
    loaded, timed = time.perf_counter(), numbers[:2]
    for number in timed:
        run(store.inputs(number))
    ended = time.perf_counter()
    return loaded - begun + len(numbers) * (ended - loaded) / len(timed)


def _rows_on_cpu(case: OpenCase, sha256: str, metrics: Sequence[Metric], numbers: Sequence[int]) -> list[np.ndarray]:
    """A model's evidence on some samples: what was kept when it was scored, else by running it."""
    kept, near = case.rows(sha256), case.files.fidelity_rows(sha256)
    of_metrics = metrics if sha256 != FLOAT else metrics[:1]
    if kept is not None and not case.scoring.emulates and (len(of_metrics) == 1 or near.exists()):
        return [rows[np.asarray(numbers)] for rows in (kept, *([np.load(near)] if len(of_metrics) > 1 else []))]
    runner = case.cpu_runner(sha256)
    return evaluate.observe(runner, case.part("search"), of_metrics, case.reference("search"), numbers)


def _on_chip(
    case: OpenCase, sha256: str, chip: Target, metrics: Sequence[Metric], numbers: Sequence[int]
) -> tuple[list[np.ndarray], float]:
    """Run a candidate on the emulation of a chip, or read what it gave there.

    A run may take minutes, so the case keeps its result. If the search is stopped meanwhile, a resume emulates only
    the candidates that are left.

    Returns:
        The evidence of each metric, of shape (n_numbers, n_values), and the share of these samples whose class is that
        of the CPU; NaN without classes.
    """
    path = case.files.emulated(sha256, chip.name)
    if path.exists():
        with np.load(path) as kept:
            if np.array_equal(kept["numbers"], numbers):
                return [kept[f"arr_{place}"] for place in range(len(metrics))], float(kept["agreement"])
    classes = list[np.ndarray]()
    watched = partial(_run, case.emulated_runner(sha256, chip), metrics[0], classes)
    rows = evaluate.observe(watched, case.part("search"), metrics, case.reference("search"), numbers)
    agreement, content = _agreement(case, case.cpu_runner(sha256), numbers, classes), io.BytesIO()
    np.savez(content, *rows, numbers=np.array(numbers), agreement=np.array(agreement))
    write_bytes(path, content.getvalue())
    return rows, agreement


def _agreement(case: OpenCase, on_cpu: Running, numbers: Sequence[int], classes: Sequence[np.ndarray]) -> float:
    """Share of the samples of which the CPU says the class that the chip says; NaN without classes."""
    metric, seen, store = case.scoring.metric, list[np.ndarray](), case.part("search")
    if metric is None or not classes:
        return math.nan
    for number in numbers:
        _run(on_cpu, metric, seen, store.inputs(number))
    return float(np.mean([np.array_equal(chip_class, other) for chip_class, other in zip(classes, seen, strict=True)]))


def _run(runner: Running, metric: Metric, classes: list[np.ndarray], inputs: Mapping[str, np.ndarray]) -> Outputs:
    """Run one sample, and note the classes that the model says, where its metric reads classes."""
    outputs = runner(inputs)
    if metric.reads_classes:
        classes.append(metric.scored(outputs).argmax(axis=-1))
    return outputs


def _numbers(case: OpenCase, most: int | None) -> Sequence[int]:
    """Which search samples are emulated: all, or as many as are affordable, drawn at random and always the same."""
    affordable = EMULATED_MACS // max(sum(op.macs for op in case.prepared.graph.ops), 1)
    return spread_rows(len(case.part("search")), most or max(affordable, 8))


def _compared(
    metric: Metric,
    ours: np.ndarray,
    theirs: np.ndarray,
    floats: np.ndarray,
    *,
    comparisons: int,
    groups: Sequence[str] | None = None,
) -> Emulated:
    lost = paired_drop(metric, ours, floats, groups=groups)
    between = paired_drop(metric, ours, theirs, comparisons=comparisons, groups=groups)
    chip, cpu, reference = (metric.summarise(rows) for rows in (ours, theirs, floats))
    return Emulated(
        samples=0,
        chip=chip,
        cpu=cpu,
        reference=reference,
        drop=drop_from(reference, chip, metric.direction),
        noise=lost.error,
        bound=lost.bound,
        lost=drop_from(cpu, chip, metric.direction),
        lost_noise=between.error,
        low=between.low,
        high=between.high,
    )
