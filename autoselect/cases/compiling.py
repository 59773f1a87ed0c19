"""Compiles candidates for a target that has a compiler, once for the same bytes; compares what was predicted."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoselect.domain.targets import Compiled, Target
from autoselect.domain.verdicts import Verdict
from autoselect.errors import StorageError, TargetRefusal
from autoselect.runs.files import write_json
from autoselect.scoring import vela


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiling:
    """How candidates are compiled for the target.

    Attributes:
        cache_root: Folder of earlier results; None does without.
        timeout_seconds: After which the compiler counts as hung.
    """

    cache_root: Path | None
    timeout_seconds: float


def compile_report(content: bytes, target: Target, verdict: Verdict, how: Compiling) -> dict[str, Any]:
    """Compile a candidate, unless the cache has its result, and say what was predicted.

    Returns:
        The fields of :class:`autoselect.domain.targets.Compiled` and ``predicted_segments``, ``predicted_cost`` and
        ``agrees``: whether the predicted segments are the compiler's.

    Raises:
        TargetRefusal: If the compiler refuses it, with its own reason.
        WorkerDied: If it hung or was killed; that is not kept.
    """
    kept = None if how.cache_root is None else how.cache_root / f"{_signature(content, target)}.json"
    compiled = _read_result(kept) if kept is not None else None
    if compiled is None:
        try:
            compiled = vela.compile_model(content, target, timeout_seconds=how.timeout_seconds)
        except TargetRefusal as exc:
            compiled = Compiled(refusal=str(exc))
        if kept is not None:
            with contextlib.suppress(StorageError):  # It costs time later, never the run.
                write_json(kept, asdict(compiled))
    if compiled.refusal:
        raise TargetRefusal(compiled.refusal)
    return {
        **asdict(compiled),
        "predicted_segments": verdict.segments,
        "predicted_cost": verdict.cost,
        "agrees": verdict.segments == compiled.segments,
    }


def _signature(content: bytes, target: Target) -> str:
    """One key for a candidate's bytes, everything of the target that its result depends on, and Vela's version."""
    made_of = (repr(target.compiler), importlib.metadata.version("ethos-u-vela"), _prices(target))
    return hashlib.sha256(content + repr(made_of).encode()).hexdigest()


def _prices(target: Target) -> list[object]:
    host = sorted((p.value, k.per_mac, k.per_element, sorted(k.ops or ())) for p, k in target.host.kernels.items())
    return [target.crossing_fixed, target.crossing_per_byte, *host]


def _read_result(path: Path) -> Compiled | None:
    """A kept result; None where there is none, or no whole one."""
    try:
        return Compiled(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
