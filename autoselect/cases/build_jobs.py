"""What workers do to build a candidate and say what it costs in bytes, cuts and time; not how accurate it is.

Each job may die without harm to the run.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autoselect.cases.compiling import as_compiled, compile_candidate, read_for
from autoselect.cases.files import FLOAT
from autoselect.cases.open_case import OpenCase, open_case
from autoselect.domain.graph import Graph, peak_activation_bytes
from autoselect.domain.recipe import Recipe
from autoselect.domain.runtimes import needs_of, why_refused
from autoselect.domain.verdicts import judge
from autoselect.errors import TargetRefusal, TrialError
from autoselect.runs.files import write_bytes
from autoselect.scoring.fragmentation import Fragmentation
from autoselect.scoring.target_penalty import on_target, require_accepted
from autoselect.tflite.runner import latency_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReply:
    """A built candidate, without its bytes: they lie in the case folder.

    ``compiled`` is what the target's compiler made of it and what was predicted, see
    :func:`autoselect.cases.compiling.compile_candidate`; empty where nothing was compiled. ``quantities`` is what the
    run's objectives measure, by column. ``needs`` are the oldest runtimes that load it, see
    :func:`autoselect.domain.runtimes.needs_of`. ``places`` says where each op of the float model is in the file.
    """

    sha256: str
    size_bytes: int
    fragmentation: dict[str, Any]
    kinds: dict[str, str]
    fallbacks: dict[str, str]
    seconds: float
    compiled: dict[str, Any] = field(default_factory=dict)
    quantities: dict[str, float] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)

    @property
    def costs(self) -> dict[str, float]:
        """Values of all objectives but the metric, by column; of those that are measured, what was asked for."""
        cut = Fragmentation(**self.fragmentation)
        words = {"left_ops": cut.left_ops, "partitions": cut.partitions}
        return {**self.fragmentation, **words, **self.quantities, "size_bytes": self.size_bytes}


def build(root: Path, recipe_json: str) -> BuildReply:
    """Build one recipe, keep its file, and compile it where the case says so.

    Raises:
        BuildError: If it cannot be built.
        TargetRefusal: If the target or its compiler refuses it, or the runtime that must load it.
        ScoreError: If its latency is asked for and the interpreter refuses it.
        WorkerDied: If the compiler hung or was killed.
    """
    case = open_case(root)
    start = time.perf_counter()
    candidate = case.builder.build(Recipe.from_json(recipe_json))
    target, how = case.target, case.scoring.compiling
    verdict = judge(candidate.graph, target)
    require_accepted(candidate.graph, target, verdict)
    if (why := why_refused(candidate.graph, case.scoring.runtime)) is not None:
        raise TargetRefusal(f"{why}.")
    path = case.files.candidate(candidate.sha256)
    if not path.exists():
        write_bytes(path, candidate.content)
    cut, compiled = asdict(on_target(candidate.graph, target, verdict)), {}
    if how is not None and (how.each or target.spilling):
        compiled = compile_candidate(candidate.content, candidate.graph, target, verdict, how)
        cut |= as_compiled(compiled)
    return BuildReply(
        sha256=candidate.sha256,
        size_bytes=len(candidate.content),
        fragmentation=cut,
        kinds=dict(candidate.kinds),
        fallbacks=dict(candidate.fallbacks),
        seconds=time.perf_counter() - start,
        compiled=compiled,
        quantities=_quantities(case, candidate.content, candidate.graph, compiled),
        needs=needs_of(candidate.graph),
        places=dict(candidate.places),
    )


def build_each(root: Path, recipes_json: Sequence[str]) -> list[BuildReply | None]:
    """Build several recipes that have the most in common, so that one worker has that; None where one fails."""
    replies: list[BuildReply | None] = []
    for recipe_json in recipes_json:
        reply = None
        with contextlib.suppress(TrialError):
            reply = build(root, recipe_json)
        replies.append(reply)
    return replies


def describe_float(root: Path, *, is_prepared: bool = False) -> BuildReply:
    """Size and fragmentation of the float model.

    Args:
        root: The case.
        is_prepared: Whether the case has what candidates are made of. If it has, and a chip's compiler cuts models
            into pieces, fragmentation is that of the candidate whose ops are all float. Ops that no candidate has,
            such as those that compute the sizes of a free batch, may cut the model that the user brought into dozens
            of pieces. If it has not, fragmentation is that of the model that the user brought.
    """
    case = open_case(root)
    content = case.files.float_model.read_bytes()
    if is_prepared and case.target.asks_compiler:
        graph = case.builder.build(Recipe(denylisted_nodes=frozenset({"*"}), fallback="float")).graph
    else:
        graph = read_for(content, case.target, case.scoring.compiling)
    return BuildReply(
        sha256=FLOAT,
        size_bytes=len(content),
        fragmentation=asdict(on_target(graph, case.target)),
        kinds={},
        fallbacks={},
        seconds=0.0,
        quantities=_quantities(case, content, graph, {}),
    )


def latency(root: Path, sha256: str) -> dict[str, float]:
    """Time a candidate (or the float model) again; columns of the tables.

    Raises:
        ScoreError: If the interpreter cannot run it.
    """
    case = open_case(root)
    return _latency(case, case.files.candidate(sha256).read_bytes())


def _quantities(case: OpenCase, content: bytes, graph: Graph, compiled: dict[str, Any]) -> dict[str, float]:
    """What the objectives of the run ask for beside the usual figures; what compilers say only of what was compiled."""
    columns, figures = case.scoring.costs, dict[str, float]()
    if "arena_bytes" in columns:
        figures["arena_bytes"] = peak_activation_bytes(graph)
    of_compiler = {"npu_cycles": "cycles", "ddr_bytes": "ddr_bytes", "flash_bytes": "stored_bytes"}
    figures |= {column: compiled[key] for column, key in of_compiler.items() if column in columns and compiled}
    if "download_bytes" in columns:
        # Level of zlib: what a store or a server that packs files well makes of one.
        figures["download_bytes"] = len(zlib.compress(content, 9))
    return figures | (_latency(case, content) if "latency_ms" in columns else {})


def _latency(case: OpenCase, content: bytes) -> dict[str, float]:
    """On the first calibration sample: values hardly matter for the time, but indices must be real ones."""
    timing = latency_of(content, case.samples("calibration").inputs(0), threads=case.scoring.latency_threads)
    return {"latency_ms": timing.median, "latency_low": timing.low, "latency_high": timing.high}
