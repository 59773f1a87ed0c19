"""Asks the compiler of a target, once for the same bytes, and keeps what it said; compares what was predicted."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoselect.compilers.compiler import ChipCompiler, Partition
from autoselect.compilers.opening import compiler_of
from autoselect.domain.graph import Graph, with_answers
from autoselect.domain.targets import Compiled, Seen, Target, spilled_bytes
from autoselect.domain.verdicts import Verdict, judge, moves_beside, views
from autoselect.errors import CompilerRefusal, StorageError, TrialError
from autoselect.runs.files import write_json
from autoselect.tflite.tflite_file import TfliteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiling:
    """How the target's compiler is asked.

    Attributes:
        cache_root: Folder of earlier results; None does without.
        timeout_seconds: After which the compiler counts as hung.
        each: Whether every candidate is compiled; else only those that are asked for.
    """

    cache_root: Path | None
    timeout_seconds: float
    each: bool = True


UNKEPT = Compiling(cache_root=None, timeout_seconds=900.0)
"""How to compile if nobody says: no result is kept."""


def compile_report(content: bytes, target: Target, verdict: Verdict, how: Compiling) -> dict[str, Any]:
    """Compile a candidate, unless the cache has its result, and say what was predicted.

    Returns:
        The fields of :class:`autoselect.domain.targets.Compiled` and ``predicted_segments``, ``predicted_cost`` and
        ``agrees``: whether the predicted segments are the compiler's.

    Raises:
        CompilerRefusal: With its own reason, or if the host lacks a kernel for what the compiler leaves to it.
        WorkerDied, JobFailed: If it hung, was killed or failed; that is not kept.
    """

    def ask(compiler: ChipCompiler) -> dict[str, Any]:
        return asdict(compiler.compile(content, timeout_seconds=how.timeout_seconds))

    compiled = Compiled(**_kept("compile", content, target, how, ask))
    compiled.require_host()
    return {
        **asdict(compiled),
        "predicted_segments": verdict.segments,
        "predicted_cost": verdict.cost,
        "agrees": verdict.segments == compiled.segments,
    }


def partition(content: bytes, target: Target, how: Compiling) -> Partition:
    """Which ops of a model the target's compiler takes, unless the cache knows; raises as :func:`compile_report`."""

    def ask(compiler: ChipCompiler) -> dict[str, Any]:
        answer = compiler.partition(content, timeout_seconds=how.timeout_seconds)
        return {"pieces": answer.pieces, "left": list(answer.left.items())}

    record = _kept("partition", content, target, how, ask)
    return Partition(pieces=tuple(map(tuple, record["pieces"])), left={int(i): str(why) for i, why in record["left"]})


def compile_candidate(
    content: bytes, graph: Graph, target: Target, predicted: Verdict, how: Compiling
) -> dict[str, Any]:
    """Compile a candidate for its target.

    For several chips it is compiled for all that have a compiler where every candidate is, else for those whose memory
    is too small for some candidates.

    Returns:
        As :func:`compile_report`. For several chips cost and crossings are those of the chip with the highest relative
        cost, and segments are the most of all. Other fields are those of the compiled chip with the highest one.
    """
    if not target.parts:
        return compile_report(content, target, predicted, how)
    reports, figures_by_chip = dict[str, dict[str, Any]](), dict[str, dict[str, Any]]()
    for chip, verdict in views(graph, target):
        figures_by_chip[chip.name] = {
            "cost": verdict.cost,
            "segments": verdict.segments,
            "crossing_tensors": len(verdict.crossings),
            "crossing_bytes": verdict.crossing_bytes,
        }
        if chip.spills or (how.each and chip.compiler is not None):
            reports[chip.name] = compile_report(content, chip, verdict, how)
            figures_by_chip[chip.name] = {name: reports[chip.name][name] for name in figures_by_chip[chip.name]}
        figures_by_chip[chip.name]["cost"] /= chip.best
    dearest = max(figures_by_chip.values(), key=lambda figures: figures["cost"])
    return {
        **reports[max(reports, key=lambda name: figures_by_chip[name]["cost"])],
        **dearest,
        "segments": max(figures["segments"] for figures in figures_by_chip.values()),
        "predicted_segments": predicted.segments,
        "predicted_cost": predicted.cost,
        "agrees": all(report["agrees"] for report in reports.values()),
    }


def least_cost(models: Sequence[tuple[bytes, Verdict]], chip: Target, how: Compiling | None) -> float:
    """What the cheapest of the models costs that a chip takes.

    The chip's compiler tells the costs if every candidate is compiled, else its profile does. A model that does not
    compile does not count, unless none compiles.

    Args:
        models: Built models, and what the chip's profile forecasts of each. One that it refuses counts only if it
            refuses all: ops that run nowhere cost nothing.
        chip: One chip.
        how: How its compiler is asked; None if nothing is compiled.
    """
    taken = [model for model in models if not model[1].refused()] or models
    compiled = list[float]()
    if how is not None and how.each and chip.compiler is not None:
        for content, verdict in taken:
            with contextlib.suppress(TrialError):
                compiled.append(compile_report(content, chip, verdict, how)["cost"])
    return min(compiled or [verdict.cost for _, verdict in taken])


def most_segments(content: bytes, graph: Graph, target: Target, how: Compiling) -> int:
    """The most segments that a model has on any chip: by its compiler, and by its profile where nothing compiles it."""
    segments = []
    for chip, verdict in views(graph, target):
        segments.append(verdict.segments)
        if chip.compiler is not None:
            with contextlib.suppress(TrialError):
                segments[-1] = compile_report(content, chip, verdict, how)["segments"]
    return max(segments)


def as_compiled(report: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of :class:`autoselect.scoring.fragmentation.Fragmentation` that compiling changes, with its figures.

    Args:
        report: What :func:`compile_candidate` returned.
    """
    same = ("segments", "crossing_tensors", "crossing_bytes")
    return {"penalty": report["cost"]} | {name: report[name] for name in same}


Models = Iterable[tuple[bytes, Graph]]
"""Built models and their graphs, with what the compiler said of each op."""


def look_at(models: Models, chip: Target, how: Compiling) -> Seen:
    """What ops move to and from memory beside what is known of any model; and if the chip's own memory is too small.

    Args:
        models: Whole models, each with most ops in one form. The first of each form is compiled.
        chip: Whose compiler is asked.
        how: How.

    Returns:
        Of each op that has constants the bytes, by kind of op, without the forms that the chip compiles nothing of; and
        whether any model spills. Bytes that spill do not count among those of an op.
    """
    bytes_of, spills = dict[str, float](), False
    for content, graph in models:
        verdict = judge(graph, chip)
        moving = [op.kind for op in graph.ops if op.left_because == "" and moves_beside(op)]
        if not moving or (kind := Counter(moving).most_common(1)[0][0].value) in bytes_of:
            continue
        with contextlib.suppress(TrialError):  # Some chips take a form and compile nothing of it.
            made = compile_report(content, chip, verdict, how)
            spilled = spilled_bytes(made)
            bytes_of[kind] = max(made["ddr_bytes"] - spilled - verdict.ddr_bytes, 0) / len(moving)
            spills |= spilled > 0
    return Seen(ddr_per_op=bytes_of, spills=spills)


def any_spills(models: Models, chip: Target, how: Compiling) -> bool:
    """Whether the chip's own memory is too small for any of the models; they are compiled until one shows it."""
    for content, graph in models:
        with contextlib.suppress(TrialError):
            if spilled_bytes(compile_report(content, chip, judge(graph, chip), how)):
                return True
    return False


def read_for(content: bytes, target: Target, how: Compiling | None) -> Graph:
    """The graph of a model; where the target's compiler decides, with what it says of each op.

    Raises:
        ModelError: If the bytes are no TFLite file.
        CompilerRefusal: If the compiler refuses the model as a whole.
        WorkerDied, JobFailed: If it hung, was killed or failed.
    """
    graph = TfliteFile(content).graph
    if not target.asks_compiler:
        return graph
    return with_answers(graph, *(partition(content, chip, how or UNKEPT).left for chip in target.asked))


def _kept(
    kind: str, content: bytes, target: Target, how: Compiling, ask: Callable[[ChipCompiler], dict[str, Any]]
) -> dict[str, Any]:
    """What the compiler says, or said before; its refusals are kept, its failures are not."""
    compiler = compiler_of(target)
    path = None if how.cache_root is None else how.cache_root / f"{_signature(kind, content, target, compiler)}.json"
    entry = _read_result(path) if path is not None else None
    if entry is None:
        try:
            entry = {"said": ask(compiler)}
        except CompilerRefusal as exc:
            entry = {"refusal": str(exc)}
        if path is not None:
            with contextlib.suppress(StorageError):  # It costs time later, never the run.
                write_json(path, entry)
    if "refusal" in entry:
        raise CompilerRefusal(entry["refusal"])
    said: dict[str, Any] = entry["said"]
    return said


def _signature(kind: str, content: bytes, target: Target, compiler: ChipCompiler) -> str:
    """The key of a kept answer: the question, the bytes, the versions, and what of the target the answer depends on.

    A refusal names the target.
    """
    processors = (target.accelerator, target.host)
    prices = (*processors, target.crossing_fixed, target.crossing_per_byte, target.piece_fixed, target.ddr_per_byte)
    # Format of the kept files; it is raised if they say something else than before.
    made_of = (9, kind, target.name, repr(target.compiler), sorted(compiler.versions().items()), _text_of(prices))
    return hashlib.sha256(content + repr(made_of).encode()).hexdigest()


def _text_of(value: object) -> str:
    """A value in words that are the same in every process: sets and mappings in order."""
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(str, value)))
    if isinstance(value, Mapping):
        return repr(sorted((str(k), _text_of(v)) for k, v in value.items()))
    if hasattr(value, "__dataclass_fields__"):
        return repr([(name, _text_of(getattr(value, name))) for name in value.__dataclass_fields__])
    return repr([_text_of(v) for v in value]) if isinstance(value, tuple) else repr(value)


def _read_result(path: Path) -> dict[str, Any] | None:
    """A kept result; None if there is none, or it is not whole."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return entry if isinstance(entry, dict) and ("said" in entry) != ("refusal" in entry) else None
