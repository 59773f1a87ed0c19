"""Calls Arm's Vela compiler on one model and reads what it made of it; knows nothing of searches.

Vela is the extra ``autoselect[ethos-u]``. It is called as a process of its own, so that a hang or a crash of it ends
that process only; and it ends with its worker, so that nothing goes on compiling after a search.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoselect.domain.graph import Graph
from autoselect.domain.targets import Compiled, Compiler, Target
from autoselect.domain.verdicts import judge
from autoselect.errors import TargetRefusal, UsageError, WorkerDied
from autoselect.isolation.tether import run_tethered
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

NPU_OP = "ethos-u"
"""Name of the custom op that Vela makes of each piece of the NPU's work."""
_COMMAND = (sys.executable, "-m", "ethosu.vela")
_REASON = re.compile(r"Compilation failed: (?:Error: )?(.*?)(?:\nFailed to parse|\Z)", re.DOTALL)
_LONGEST_REASON = 300


def require_vela() -> None:
    """Raise where Vela is not installed.

    Raises:
        UsageError: With the command that installs it.
    """
    if importlib.util.find_spec("ethosu") is None:
        raise UsageError(
            "This target compiles every candidate with Arm's Vela, which is not installed. "
            "Install it: pip install 'autoselect[ethos-u]'; or leave compiling out: --no-compiling."
        )


def compile_model(
    content: bytes, target: Target, *, timeout_seconds: float, command: Sequence[str] = _COMMAND
) -> Compiled:
    """Compile a model for the target's NPU.

    Args:
        content: Of a ``.tflite``.
        target: One with a compiler.
        timeout_seconds: After which Vela counts as hung.
        command: How to call Vela.

    Raises:
        TargetRefusal: If Vela ends with an error, with its reason.
        WorkerDied: If it hung or was killed.
    """
    if target.compiler is None:
        raise UsageError(f"Target {target.name!r} has no compiler.")
    with tempfile.TemporaryDirectory(prefix="autoselect-vela-") as name:
        folder = Path(name)
        source = folder / "model.tflite"
        source.write_bytes(content)
        _run([*command, str(source), *_options(target.compiler, folder)], timeout_seconds, target.name)
        graph = reader.read_graph(fb.parse((folder / "model_vela.tflite").read_bytes()))
        (summary,) = folder.glob("model_summary_*.csv")
        with summary.open(encoding="utf-8", newline="") as file:
            return _compiled(graph, target, next(csv.DictReader(file)))


def _options(compiler: Compiler, folder: Path) -> list[str]:
    return [
        *("--accelerator-config", compiler.accelerator_config),
        *("--config", "Arm/vela.ini"),
        *("--system-config", compiler.system_config),
        *("--memory-mode", compiler.memory_mode),
        *("--output-dir", str(folder)),
    ]


def _run(command: list[str], timeout_seconds: float, target: str) -> None:
    try:
        done = run_tethered(command, timeout_seconds=timeout_seconds)
    except subprocess.TimeoutExpired as exc:
        raise WorkerDied(
            f"Vela took longer than {timeout_seconds:.3g} s for {target} (--trial-timeout) and was stopped."
        ) from exc
    if done.returncode < 0:
        raise WorkerDied(f"Vela died of {signal.Signals(-done.returncode).name} while it compiled for {target}.")
    if done.returncode:
        raise TargetRefusal(f"Vela refuses the candidate for {target}: {_reason(done.stderr or done.stdout)}")


def _reason(text: str) -> str:
    """Vela's own words, on one line."""
    match = _REASON.search(text)
    words = match.group(1) if match else text.strip().rpartition("\n")[2]
    return " ".join(words.split())[:_LONGEST_REASON] or "it gave no reason"


def _compiled(graph: Graph, target: Target, summary: dict[str, str]) -> Compiled:
    cycles = round(float(summary["cycles_total"]))
    sides = [op.op_type == NPU_OP for op in graph.ops]
    crossing = _crossing_tensors(graph, sides)
    crossing_bytes = sum(graph.tensors[t].size_bytes for t in crossing)
    # What Vela left to the host is the host's, whatever the profile thinks of it.
    left = judge(graph, replace(target, accelerator=None, segments="none", rules=()))
    return Compiled(
        segments=sum(sides),
        host_ops=dict(Counter(op.op_type for op, on_npu in zip(graph.ops, sides, strict=True) if not on_npu)),
        crossing_bytes=crossing_bytes,
        sram_bytes=round(1024 * float(summary["sram_memory_used"])),
        flash_bytes=round(
            1024 * (float(summary["off_chip_flash_memory_used"]) + float(summary["on_chip_flash_memory_used"]))
        ),
        cycles=cycles,
        cost=cycles
        + left.host_cost
        + target.crossing_fixed * len(crossing)
        + target.crossing_per_byte * crossing_bytes,
    )


def _crossing_tensors(graph: Graph, on_npu: Sequence[bool]) -> set[int]:
    """Activations that one side writes and the other reads; those of the interface's conversions do not count."""
    producers, found = graph.producers(), set()
    for i, op in enumerate(graph.ops):
        for tensor in op.inputs:
            writer = producers.get(tensor)
            if writer is None or on_npu[writer] == on_npu[i]:
                continue
            host = graph.ops[i if on_npu[writer] else writer]
            ends = {host.inputs[0], *host.outputs} & {*graph.inputs, *graph.outputs}
            if not (host.op_type in ("QUANTIZE", "DEQUANTIZE") and ends):
                found.add(tensor)
    return found
