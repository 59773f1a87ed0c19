"""What a target decides of a search before its first trial: nodes that it pins, and models that it cannot take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.compilers.emulation import require_emulation
from autoselect.compilers.opening import compiler_of
from autoselect.domain.graph import Graph
from autoselect.domain.quantities import PACKED
from autoselect.domain.recipe import ALL_BITS
from autoselect.domain.states import SIXTEEN
from autoselect.domain.targets import LitertPlugin, Target, Vela
from autoselect.domain.verdicts import pins
from autoselect.errors import UsageError
from autoselect.runs.records import TrialRecord
from autoselect.scoring.target_file import read_target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPins:
    """Nodes that the target decides.

    Attributes:
        keep_int: Names of nodes that it takes in integers only.
        keep_float: Names of nodes that it takes outside of integers only.
        not_int16: Names of nodes that it refuses with 16-bit activations.
        messages: What the user should know of them.
    """

    keep_int: frozenset[str]
    keep_float: frozenset[str]
    not_int16: frozenset[str]
    messages: tuple[str, ...]


def check_target(settings: Settled) -> Target:
    """Read the target of a search, before any work.

    Raises:
        UsageError: If it is unknown or wrong, its compiler or an emulation that is asked for is not installed, or a
            state of the search does not run on it.
    """
    target = read_target(settings.target)
    if settings.template.fallback == "drq" and not target.runs_hybrid:
        raise UsageError(
            f"Target {target.name!r} runs no hybrid ops, so what is left out of integers cannot become hybrid. "
            "Use --fallback float, or leave it out."
        )
    if settings.int16 and settings.fallback == "drq":
        raise UsageError("--int16 is for the fallbacks search and float. Leave it out, or --fallback drq.")
    if settings.int16 and not target.runs_int16:
        raise UsageError(f"Target {target.name!r} runs no ops with 16-bit activations. Leave out --int16.")
    if target.asks_compiler and not settings.compiling:
        raise UsageError(f"Only its compiler knows what target {target.name!r} takes. Leave out --no-compiling.")
    require_compilers(settings, target)
    return target


def require_compilers(settings: Settled, target: Target) -> None:
    """Refuse a search whose compilers or emulations are not there, before any work.

    Raises:
        UsageError: If one that the search asks for is not installed.
    """
    for chip in target.compilers if settings.compiling else ():
        compiler_of(chip).require()
    if target.asks_compiler and settings.emulation == "all":
        require_emulation()


def check_objectives(settings: Settled, target: Target) -> None:
    """Refuse objectives that the target cannot give, before any work.

    Raises:
        UsageError: If a figure of a compiler is asked for, and the target has not that compiler or nothing is compiled;
            or if weights may have fewer levels and no objective counts what that saves.
    """
    is_stored = target.int4 is not None and settings.weights == 4 and "size" in settings.objectives
    if settings.weights < ALL_BITS and not is_stored and not set(PACKED) & set(settings.objectives):
        raise UsageError(
            f"--weights {settings.weights} lets layers have fewer levels, which changes no file's size for target "
            f"{target.name!r}, only what it takes packed. Ask for that: --objectives accuracy,download,penalty; or "
            "flash in place of download, if the target is an Ethos-U. The targets litert-cpu and tflm read weights of "
            "4 bits: --weights 4 makes their files smaller."
        )
    for objective, (kind, example) in _FROM_COMPILERS.items():
        has_it = not target.parts and isinstance(target.compiler, kind)
        if objective not in settings.objectives or (has_it and settings.compiling):
            continue
        lack = "is compiled only without --no-compiling" if has_it else "has no compiler that tells it"
        raise UsageError(
            f"Objective {objective!r} comes from a compiler, and target {target.name!r} {lack}. "
            f"Choose a target such as {example}, or another objective."
        )


_FROM_COMPILERS: Mapping[str, tuple[type[Vela | LitertPlugin], str]] = {
    "npu_cycles": (Vela, "ethos-u55-128"),
    "flash": (Vela, "ethos-u55-128"),
    "ddr_bytes": (LitertPlugin, "qualcomm-sm8750"),
}
"""By objective, the compiler that tells it, and a target that has one."""


def pins_of(case: Case, settings: Settled, *, keep_float: Collection[str], keep_int: Collection[str]) -> TargetPins:
    """The nodes that the target of a search decides, or the runtime that must load the models.

    Raises:
        UsageError: If no candidate can satisfy the target: with the rule, and the node that breaks it.
    """
    target, runtime = read_target(settings.target), settings.runtime
    graph = case.graph
    names = {node.index: node.name for node in case.layers.nodes}
    decided = pins(graph, names, target, hybrid=settings.template.fallback == "drq", runtime=runtime)
    for index, why in decided.impossible.items():
        raise _unsatisfiable(target, graph, index, why)
    for index, why in decided.keep_float.items():
        if names[index] in keep_int:
            raise _unsatisfiable(target, graph, index, f"{why}, and --keep-int keeps it in integers")
    for index, why in decided.keep_int.items():
        if names[index] in keep_float:
            raise _unsatisfiable(target, graph, index, f"{why}, and --keep-float keeps it out of integers")
    not_int16 = decided.not_int16 if SIXTEEN in settings.states else {}
    return TargetPins(
        keep_int=frozenset(names[i] for i in decided.keep_int),
        keep_float=frozenset(names[i] for i in decided.keep_float),
        not_int16=frozenset(names[i] for i in not_int16),
        messages=(
            *_told(graph, target, decided.keep_int, ("stays", "stay"), "in integers"),
            *_told(graph, target, decided.keep_float, ("stays", "stay"), "out of integers"),
            *_told(graph, target, not_int16, ("does", "do"), "without 16-bit activations"),
        ),
    )


def _unsatisfiable(target: Target, graph: Graph, index: int, why: str) -> UsageError:
    op = graph.ops[index]
    return UsageError(
        f"No candidate can satisfy target {target.name!r}: it refuses the {op.op_type} "
        f"{graph.tensors[op.outputs[0]].name!r} ({why}). Change the model there, or choose another target."
    )


def _told(graph: Graph, target: Target, pinned: Mapping[int, str], verbs: tuple[str, str], how: str) -> list[str]:
    """A sentence for each op type and reason; the verbs are of one op and of several."""
    counts = Counter((graph.ops[i].op_type, why) for i, why in pinned.items())
    ops = {
        key: f"the only {key[0]} {verbs[0]}" if n == 1 else f"all {n} {key[0]} {verbs[1]}" for key, n in counts.items()
    }
    return [f"Target {target.name}: {those} {how}: {why}." for (_, why), those in ops.items()]


def compiler_summary(records: Sequence[TrialRecord], target: Target) -> dict[str, int] | None:
    """How well predictions agreed with the compiler; None for a target without one.

    Returns:
        ``compiled`` and ``refused`` candidates (the profile's rules let those pass), and of the compiled ones those
        whose ``segments_agree``.
    """
    if not target.compilers:
        return None
    compiled = {r.scores.sha256: r.scores.compiled for r in records if r.scores and r.scores.compiled}
    refused = {r.recipe.fingerprint for r in records if r.recipe and r.error_kind == "compiler"}
    return {
        "compiled": len(compiled),
        "refused": len(refused),
        "segments_agree": sum(bool(report["agrees"]) for report in compiled.values()),
    }
