"""Calls Arm's Vela compiler on one model and reads what it made of it; knows nothing of searches.

Vela is the extra ``autoselect[ethos-u]``. It is called as a process of its own, so that a hang or a crash of it ends
that process only; and it ends with its worker, so that nothing goes on compiling after a search.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autoselect.compilers.compiler import Partition
from autoselect.compilers.libraries import version_of
from autoselect.compilers.numbering import numbered
from autoselect.compilers.work_folder import work_folder
from autoselect.domain.graph import Graph
from autoselect.domain.targets import Compiled, Target, Vela, unreadable
from autoselect.domain.verdicts import host_lacks, judge
from autoselect.errors import CompilerRefusal, JobFailed, ModelError, UsageError, WorkerDied, first_line
from autoselect.isolation.tether import run_tethered
from autoselect.tflite.tflite_file import TfliteFile

NPU_OP = "ethos-u"
"""Name of the custom op that Vela makes of each piece of the NPU's work."""
_REASON = re.compile(r"Compilation failed: (?:Error: )?(.*?)(?:\nFailed to parse|\Z)", re.DOTALL)
_BROKE_OFF = re.compile(r"\bregor\.compile\(.*\nRuntimeError: (?!.*Resource temporarily)(.*)", re.DOTALL)
"""The end of Python's traceback through the call that compiles: Vela's own error, but not that no thread can begin."""
_CONFIGURATION = re.compile(r"(?:CliOptionError|ConfigOptionError|ConfigSectionError|vela: error): (?:'Error: )?(.*)")
"""What Vela says of the configuration that a profile names, not of a model."""
_LONG_NAME = re.compile(r"'([^'\n]{60})[^'\n]{3,}'")
_LEFT = "Vela leaves it to the CPU"


class VelaCompiler:
    """The compiler of an Ethos-U; see :class:`~.compiler.ChipCompiler`."""

    def __init__(self, target: Target, program: Sequence[str] = (sys.executable, "-m", "ethosu.vela")) -> None:
        """Keep the target.

        Args:
            target: One with Vela.
            program: How to call Vela.
        """
        assert isinstance(target.compiler, Vela)
        self._target, self._config, self._program = target, target.compiler, program

    def require(self) -> None:
        """See :meth:`.compiler.ChipCompiler.require`."""
        if importlib.util.find_spec("ethosu") is None:
            raise UsageError(
                f"Target {self._target.name!r} needs Arm's Vela, which is not installed. "
                "Install it: pip install 'autoselect[ethos-u]'; a search can also leave compiling out: --no-compiling."
            )
        chip, system = map(_family, (self._config.accelerator_config, self._config.system_config))
        if chip and system and chip != system:  # Vela compiles all the same, and its cycles are of no chip.
            raise UsageError(
                f"The profile {self._target.name} compiles for {self._config.accelerator_config} with a system of "
                f"another chip, {self._config.system_config}: expected a system of the {chip}. Change "
                "accelerator_config or system_config there."
            )

    def versions(self) -> dict[str, str]:
        """See :meth:`.compiler.ChipCompiler.versions`."""
        return {"Vela": version_of("ethos-u-vela", "ethosu")}

    def partition(self, content: bytes, *, timeout_seconds: float) -> Partition:
        """See :meth:`.compiler.ChipCompiler.partition`. Vela gives no reasons."""
        marked, _ = numbered(content)
        written, _ = self._written(marked, timeout_seconds)
        return _partition(TfliteFile(marked).graph, _read(written))

    def compile(self, content: bytes, *, timeout_seconds: float) -> Compiled:
        """See :meth:`.compiler.ChipCompiler.compile`."""
        return self.compiled(content, timeout_seconds=timeout_seconds)[0]

    def compiled(self, content: bytes, *, timeout_seconds: float) -> tuple[Compiled, bytes]:
        """See :meth:`.compiler.ChipCompiler.compiled`."""
        written, summary = self._written(content, timeout_seconds)
        try:
            figures = _compiled(_read(written), self._target, summary)
        except (KeyError, TypeError, ValueError, OverflowError) as exc:
            raise JobFailed(f"Vela's summary has no figure that was expected of it: {first_line(exc)}.") from exc
        return replace(figures, stored_bytes=len(written)), written

    def _refuse_unreadable(self, content: bytes) -> None:
        """Refuse what Vela would die of; what is no model it refuses itself."""
        with contextlib.suppress(ModelError):
            graph = TfliteFile(content).graph
            for op in graph.ops:
                if (why := unreadable(op, graph, self._config)) is not None:
                    raise CompilerRefusal(f"The {op.op_type} cannot be compiled for {self._target.name}: {why}.")

    def _written(self, content: bytes, timeout_seconds: float) -> tuple[bytes, dict[str, str]]:
        """The file that Vela wrote, and its summary."""
        self._refuse_unreadable(content)
        with work_folder("autoselect-vela-") as folder:
            source = folder / "model.tflite"
            source.write_bytes(content)
            _run([*self._program, str(source), *_options(self._config, folder)], timeout_seconds, self._target.name)
            model, summaries = folder / "model_vela.tflite", list(folder.glob("model_summary_*.csv"))
            if not model.is_file() or len(summaries) != 1:
                raise JobFailed(f"Vela ended well for {self._target.name}, but wrote no model or no summary.")
            return model.read_bytes(), _summary(summaries[0])


def _family(name: str) -> str:
    """The chip that a name of Vela's is for, such as ``Ethos-U85``; empty if it tells none."""
    match = re.match(r"ethos[-_]u(\d+)[-_]", name, re.IGNORECASE)
    return f"Ethos-U{match[1]}" if match else ""


def _summary(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        try:
            return next(csv.DictReader(file), {})
        except csv.Error as exc:
            raise JobFailed(f"Vela wrote a summary that cannot be read: {exc}.") from exc


def _read(written: bytes) -> Graph:
    """The graph of what Vela wrote.

    Raises:
        JobFailed: If it is no model, which says nothing of the one that it was made of.
    """
    try:
        return TfliteFile(written).graph
    except ModelError as exc:
        raise JobFailed(f"Vela wrote a file that is no model: {exc}") from exc


def _options(compiler: Vela, folder: Path) -> list[str]:
    config = "Arm/vela.ini"
    if compiler.config is not None:
        config = str(folder / "own.ini")
        Path(config).write_text(compiler.config, encoding="utf-8")
    return [
        *("--accelerator-config", compiler.accelerator_config),
        *("--config", config),
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
        said = f"{done.stdout}\n{done.stderr}"
        if match := _REASON.search(said):
            raise CompilerRefusal(f"Vela refuses the candidate for {target}: {_on_one_line(match[1])}")
        if match := _BROKE_OFF.search(said):
            raise CompilerRefusal(f"Vela cannot compile the candidate for {target}: {_on_one_line(match[1])}")
        if match := _CONFIGURATION.search(said):
            raise UsageError(
                f"Vela does not take the [compiler] of the profile {target}: {_on_one_line(match[1])}. Change "
                "accelerator_config, system_config, memory_mode or config there."
            )
        raise JobFailed(f"Vela failed for {target}, which says nothing of the candidate: {_on_one_line(_last(said))}")


def _last(said: str) -> str:
    return said.strip().rpartition("\n")[2] or "it gave no reason"


def _on_one_line(words: str) -> str:
    """A reason without most of a long name: the converter joins those of all ops that it has fused."""
    return " ".join(_LONG_NAME.sub(r"'\1...'", words).split())[:300].rstrip(" ',.")


def _partition(source: Graph, written: Graph) -> Partition:
    """Which ops of the source Vela left to the CPU, and which became each piece, an NPU op of the written file.

    Ops that were left have kept the names of what they write. A piece holds its ends and all that these need: the ops
    that write its outputs, and the ops that read a value that this piece alone reads. Vela does not list values that
    one piece leaves in the NPU's memory for another, so a piece may write nothing.

    Args:
        source: The model, numbered.
        written: What Vela made of it.
    """
    names = {op.outputs and written.tensors[op.outputs[0]].name for op in written.ops if op.op_type != NPU_OP}
    own = [source.tensors[op.outputs[0]].name if op.outputs else "" for op in source.ops]
    left = {i: _LEFT for i, name in enumerate(own) if name in names}
    writers, readers = source.producers(), source.consumers()
    number = {tensor.name: t for t, tensor in enumerate(source.tensors)}
    pieces = [op for op in written.ops if op.op_type == NPU_OP]
    read, made = (
        [[number[n] for t in tensors if (n := written.tensors[t].name) in number] for tensors in ends]
        for ends in ([piece.inputs for piece in pieces], [piece.outputs for piece in pieces])
    )
    shared = Counter(t for tensors in read for t in set(tensors))
    piece_ops, seen = list[tuple[int, ...]](), set(left)
    for its_own, outputs in zip(read, made, strict=True):
        stack = [i for t in its_own if shared[t] == 1 for i in readers.get(t, ())]
        stack += [writers[t] for t in outputs if t in writers]
        ops = set[int]()
        while stack:
            if (index := stack.pop()) not in seen:
                seen.add(index)
                ops.add(index)
                stack += [writers[t] for t in source.ops[index].inputs if t in writers]
        piece_ops.append(tuple(sorted(ops)))
    return Partition(pieces=tuple(piece_ops), left=left)


def _compiled(graph: Graph, target: Target, summary: dict[str, str]) -> Compiled:
    cycles = round(float(summary["cycles_total"]))
    sides = [op.op_type == NPU_OP for op in graph.ops]
    crossing = _crossing_tensors(graph, sides)
    crossing_bytes = sum(graph.tensors[t].size_bytes for t in crossing)
    # What Vela left to the host is the host's, whatever the profile thinks of it.
    lack = host_lacks(graph, [i for i, on_npu in enumerate(sides) if not on_npu], target)
    judged = judge(graph, replace(target, accelerator=None, segments="none", rules=())).placements
    host_cost = sum(placement.cost for placement, on_npu in zip(judged, sides, strict=True) if not on_npu)
    return Compiled(
        segments=sum(sides),
        host_ops=dict(Counter(op.op_type for op, on_npu in zip(graph.ops, sides, strict=True) if not on_npu)),
        crossing_tensors=len(crossing),
        crossing_bytes=crossing_bytes,
        sram_bytes=_bytes(summary, "sram"),
        dram_bytes=_bytes(summary, "dram"),
        flash_bytes=_bytes(summary, "off_chip_flash") + _bytes(summary, "on_chip_flash"),
        cycles=cycles,
        lack=_on_one_line(lack or ""),
        cost=cycles
        + host_cost
        + target.piece_fixed * max(sum(sides) - 1, 0)
        + target.crossing_fixed * len(crossing)
        + target.crossing_per_byte * crossing_bytes,
    )


def _bytes(summary: dict[str, str], memory: str) -> int:
    return round(1024 * float(summary[f"{memory}_memory_used"]))


def _crossing_tensors(graph: Graph, on_npu: Sequence[bool]) -> set[int]:
    """Activations that one side writes and the other reads; those of the interface's conversions do not count."""
    producers, crossings = graph.producers(), set()
    for i, op in enumerate(graph.ops):
        for tensor in op.inputs:
            writer = producers.get(tensor)
            if writer is None or on_npu[writer] == on_npu[i]:
                continue
            host = graph.ops[i if on_npu[writer] else writer]
            converts = host.op_type in ("QUANTIZE", "DEQUANTIZE")  # Other ops may lack inputs or outputs.
            if not (converts and (host.inputs[0] in graph.inputs or host.outputs[0] in graph.outputs)):
                crossings.add(tensor)
    return crossings
