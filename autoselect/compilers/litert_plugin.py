"""Calls LiteRT's compiler plugin for a vendor's chip, and reads what it made of a model; knows nothing of searches.

LiteRT's wheel brings the program ``apply_plugin_main`` and a plugin for each vendor; the vendor's libraries come from
elsewhere, see :mod:`autoselect.compilers.libraries`. The program is a process of its own, so that a hang or a crash of
it ends that process only, and only that process is told where the libraries are.

Two of its commands are used. ``partition`` says which ops the chip takes: it writes a file in which a ``DISPATCH_OP``
stands for each piece, and the piece's ops are a subgraph. ``apply`` compiles the pieces, too, and says how many bytes
each of them moves.
"""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoselect.compilers.compiler import Partition
from autoselect.compilers.libraries import Libraries, find_libraries, version_of
from autoselect.compilers.numbering import number_of, numbered
from autoselect.compilers.work_folder import work_folder
from autoselect.domain.graph import Graph, with_answers
from autoselect.domain.targets import Compiled, LitertPlugin, Target
from autoselect.domain.verdicts import judge
from autoselect.domain.words import did_you_mean
from autoselect.errors import CompilerRefusal, JobFailed, ModelError, UsageError, WorkerDied
from autoselect.isolation.tether import run_tethered
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.tflite_file import TfliteFile

DISPATCH_OP = "DISPATCH_OP"
"""Name of the custom op that LiteRT makes of each piece of the chip's work."""

_FOLDERS: Mapping[str, str] = {
    "Google": "google_tensor",
    "Intel": "intel_openvino",
    "MediaTek": "mediatek",
    "Qualcomm": "qualcomm",
    "Samsung": "samsung",
}
"""By manufacturer, the folder of the plugin in LiteRT's wheel."""
_OTHER_NAMES: Mapping[str, str] = {"Intel": "IntelOpenVINO"}
"""By manufacturer, what the plugin calls it, if that is another name."""

_NO_LIBRARY = 6
_NOT_LOADED = re.compile(r"Loaded 0 plugins|Could not load shared library")
_NO_SDK = re.compile(r"Failed to load (?:the )?([^:\n]*\blibrary)\b")
_REFUSALS: Mapping[int, Mapping[str, str]] = {
    5: {
        "Variable tensors not yet supported": "A fused LSTM keeps its state in such a tensor. If it comes from a Keras "
        "layer, bring the Keras model with the length of the sequence fixed (--shape): the layer is then unrolled.",
        "QNN Unsupported data type": "The vendor's library lacks the type of a value: a variable, a complex number, a "
        "text. Make the state that a variable holds an input and an output, and compute with real numbers.",
    }
}
"""By exit code, what the program says where it refuses a model as a whole, and what to do."""

_LEFT_OP = re.compile(r"LiteRT Op #(\d+) '([^']*)' \(code=\d+\) is not supported")
_VALIDATED = re.compile(r"QNN op validation failed: '([^']*)' \(type=(\w+)")
_NOT_VALID = re.compile(r"Failed to validate op (\S+) with error")
_VALIDATOR = re.compile(r"<E> (.*)")
_OF_NODE = re.compile(r" in the node '[^']*'|^\[\d+\] ")
"""Where a value is that the validator refuses: an op of the vendor's, or the number of a value that has none (-1)."""
_HARMLESS = re.compile(r"GraphHtpSettings option|validateOpConfig failed|no properties registered")
"""Errors that the vendor's library logs where all goes well, too."""
_SUMMARY = re.compile(r"\b(spill|fill|write_total|read_total)_bytes=(\d+)")
_BACKEND = re.compile(r"Qnn backend library version (\S+) is used")
_LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class _Run:
    """What a run of the program left: the file that it wrote, and what it said on its two pipes."""

    written: bytes
    vendor: str
    litert: str


class PluginCompiler:
    """The compiler of a target whose profile names a LiteRT plugin; see :class:`~.compiler.ChipCompiler`."""

    def __init__(self, target: Target, program: Sequence[str] | None = None) -> None:
        """Keep the target.

        Args:
            target: One with a LiteRT plugin.
            program: How to call the program; LiteRT's own if left out.
        """
        assert isinstance(target.compiler, LitertPlugin)
        self._target, self._plugin = target, target.compiler
        self._program = program

    def require(self) -> None:
        """See :meth:`.compiler.ChipCompiler.require`."""
        self._command()
        self._libraries()

    def versions(self) -> dict[str, str]:
        """See :meth:`.compiler.ChipCompiler.versions`."""
        libraries = self._libraries()
        versions = {"LiteRT": version_of("ai-edge-litert", "ai_edge_litert")}
        if libraries is not None:
            versions |= libraries.versions()
            if libraries.stood_in:
                versions["stood in for"] = ", ".join(libraries.stood_in)
        return versions

    def partition(self, content: bytes, *, timeout_seconds: float) -> Partition:
        """See :meth:`.compiler.ChipCompiler.partition`."""
        marked, count = numbered(content)
        run = self._run("partition", marked, timeout_seconds)
        return _partition(run, count, self._plugin.manufacturer)

    def compile(self, content: bytes, *, timeout_seconds: float) -> Compiled:
        """See :meth:`.compiler.ChipCompiler.compile`. A model of which nothing is taken has no piece."""
        return self.compiled(content, timeout_seconds=timeout_seconds)[0]

    def compiled(self, content: bytes, *, timeout_seconds: float) -> tuple[Compiled, bytes]:
        """See :meth:`.compiler.ChipCompiler.compiled`; the file is the model itself where nothing is taken."""
        partition = self.partition(content, timeout_seconds=timeout_seconds)
        written, moved = content, dict[str, int]()
        if partition.pieces:
            run = self._run("apply", named_apart(content), timeout_seconds)
            written, moved = run.written, dict(_moved(run))
            pieces = sum(op.op_type == DISPATCH_OP for op in reader.read_graph(_read(run)).ops)
            if pieces != len(partition.pieces):
                raise JobFailed(
                    f"{self._name} made {pieces} pieces of a model of which it had said that it makes "
                    f"{len(partition.pieces)}."
                )
        graph = with_answers(TfliteFile(content).graph, partition.left)
        return _compiled(graph, self._target, partition, moved), written

    @property
    def _name(self) -> str:
        return f"{self._plugin.manufacturer}'s compiler"

    def _libraries(self) -> Libraries | None:
        return find_libraries(self._plugin.manufacturer, self._plugin.libraries)

    def _command(self) -> list[str]:
        """The program, and the folder of the plugin.

        Raises:
            UsageError: If LiteRT's wheel does not have them.
        """
        spec = importlib.util.find_spec("ai_edge_litert")
        root = Path((spec.submodule_search_locations or [""])[0]) if spec is not None else Path()
        program = root / "tools" / "apply_plugin_main"
        vendor = self._plugin.manufacturer
        if vendor not in _FOLDERS:
            raise UsageError(
                f"The profile {self._target.name} names the manufacturer {vendor!r}: expected one of "
                f"{', '.join(_FOLDERS)}, for which LiteRT has plugins. Change manufacturer there."
                f"{did_you_mean(vendor, _FOLDERS, most=1)}"
            )
        folder = root / "vendors" / _FOLDERS[vendor] / "compiler"
        if not (folder.is_dir() and program.is_file()):
            raise UsageError(
                f"LiteRT's compiler plugin for {vendor} is not here: expected {folder} and {program}. They come with "
                "ai-edge-litert 2.1 or newer on Linux."
            )
        return [*(self._program or [str(program)]), f"--libs={folder}"]

    def _run(self, command: str, content: bytes, timeout_seconds: float) -> _Run:
        with work_folder("autoselect-plugin-") as folder:
            source, written = folder / "model.tflite", folder / "compiled.tflite"
            source.write_bytes(content)
            options = [
                f"--cmd={command}",
                f"--model={source}",
                f"--o={written}",
                f"--soc_manufacturer={_OTHER_NAMES.get(self._plugin.manufacturer, self._plugin.manufacturer)}",
                f"--soc_model={self._plugin.soc_model}",
                "--err=--",
            ]
            done = self._call([*self._command(), *options], timeout_seconds)
            if done.returncode or not written.is_file():
                raise self._error(done)
            return _Run(written.read_bytes(), done.stdout, done.stderr)

    def _call(self, command: list[str], timeout_seconds: float) -> subprocess.CompletedProcess[str]:
        libraries = self._libraries()
        try:
            if libraries is None:
                return run_tethered(command, timeout_seconds=timeout_seconds)
            with libraries.search_path() as path:
                return run_tethered(["env", f"LD_LIBRARY_PATH={path}", *command], timeout_seconds=timeout_seconds)
        except subprocess.TimeoutExpired as exc:
            raise WorkerDied(
                f"{self._name} took longer than {timeout_seconds:.3g} s for {self._target.name} (--trial-timeout) and "
                "was stopped."
            ) from exc

    def _error(self, done: subprocess.CompletedProcess[str]) -> Exception:
        """What a run without a result means: a refusal only if the program says so in words that are known."""
        code, said = done.returncode, f"{done.stdout}\n{done.stderr}"
        if code < 0:
            return WorkerDied(f"{self._name} died of {signal.Signals(-code).name} while it compiled.")
        for words, remedy in _REFUSALS.get(code, {}).items():
            if words in said:
                return CompilerRefusal(f"{self._name} refuses the model for {self._target.name}: {words}. {remedy}")
        if code == _NO_LIBRARY and _NOT_LOADED.search(said):
            return UsageError(
                f"LiteRT could not load its plugin for {self._plugin.manufacturer} or the libraries that this needs: "
                f"{_not_loaded(said)}. Use a complete SDK of the vendor."
            )
        if missing := _NO_SDK.search(said):
            return UsageError(
                f"{self._name} could not load the {missing[1]}. It comes with an SDK of {self._plugin.manufacturer}: "
                "install that, and name the folder of its libraries in the profile (libraries in [compiler])."
            )
        if "Unexpected SoC model" in said:
            return UsageError(
                f"{self._name} knows no chip {self._plugin.soc_model!r}. Change soc_model in the profile."
            )
        return JobFailed(f"{self._name} ended with exit code {code} and no result: {_error_in(said)}.")


# --------------------------------------------------------------------------------------------- what was written


def named_apart(content: bytes) -> bytes:
    """The model with tensors whose names differ, and do so where a vendor's library takes only letters and digits.

    Else it calls two ends of a piece alike, and refuses the piece.
    """
    model = fb.parse(content)
    graph, taken, renamed = model.subgraphs[0], set[str](), False
    first = dict.fromkeys([*map(int, graph.inputs), *map(int, graph.outputs), *range(len(graph.tensors))])
    for index in first:
        name = fb.tensor_name(graph.tensors[index])
        plain = _NO_NAME.sub("_", name)
        if not plain or plain in taken:
            name = f"{name}_{index}"
            while (plain := _NO_NAME.sub("_", name)) in taken:
                name += "_"
            graph.tensors[index].name, renamed = name.encode(), True
        taken.add(plain)
    return fb.serialise(model) if renamed else content


_NO_NAME = re.compile(r"[^a-zA-Z0-9_]+")


def unread_outputs(source: bytes, compiled: fb.Model) -> list[list[fb.Tensor]]:
    """For each piece of a compiled model, in order, the tensors that its ops write and no op of the model reads.

    The vendor's graph has them as outputs, too. An unrolled recurrent layer has such tensors: its first step reads only
    some of what a SPLIT writes.

    Args:
        source: The model that was compiled.
        compiled: What the program made of it.
    """
    graph, main = fb.parse(named_apart(source)).subgraphs[0], compiled.subgraphs[0]
    kinds = [fb.op_type(compiled, op) for op in main.operators]
    kept = {
        fb.tensor_name(main.tensors[i])
        for op, kind in zip(main.operators, kinds, strict=True)
        if kind != DISPATCH_OP
        for i in fb.indices(op.outputs)
    }
    read = {*fb.indices(graph.outputs), *(i for op in graph.operators for i in fb.indices(op.inputs))}
    runs, before = list[list[fb.Tensor]](), False
    for op in graph.operators:
        outputs = fb.indices(op.outputs)
        taken = not any(fb.tensor_name(graph.tensors[i]) in kept for i in outputs)
        if taken and not before:
            runs.append([])
        if taken:
            runs[-1] += [graph.tensors[i] for i in outputs if i not in read]
        before = taken
    pieces = kinds.count(DISPATCH_OP)
    return runs if len(runs) == pieces else [[] for _ in range(pieces)]


def _read(run: _Run) -> fb.Model:
    """What the program wrote.

    Raises:
        JobFailed: If it is no model, which says nothing of the one that was asked about.
    """
    try:
        return fb.parse(run.written)
    except ModelError as exc:
        raise JobFailed(f"LiteRT's compiler plugin wrote a file that is no model: {exc}") from exc


def _partition(run: _Run, count: int, manufacturer: str) -> Partition:
    """What is not in a piece is left: the file counts, the log only gives reasons."""
    model = _read(run)
    pieces = {}
    for graph in model.subgraphs[1:]:
        indices = sorted(_indices(graph))
        if indices:
            pieces[indices[0]] = tuple(indices)
    taken = {index for piece in pieces.values() for index in piece}
    reasons = dict(_reasons(run))
    unknown = f"{manufacturer}'s compiler leaves it, and its log gives no reason"
    return Partition(
        pieces=tuple(pieces[first] for first in sorted(pieces)),
        left={index: reasons.get(index, unknown) for index in range(count) if index not in taken},
    )


def _indices(graph: fb.SubGraph) -> Iterator[int]:
    """Numbers of the ops in a subgraph, by the names of what they write."""
    for op in graph.operators or []:
        for tensor in list(op.outputs)[:1]:
            if (number := number_of(fb.tensor_name(graph.tensors[tensor]))) is not None:
                yield number


# ------------------------------------------------------------------------------------------------ what was said


def _reasons(run: _Run) -> Iterator[tuple[int, str]]:
    """Yield each op that is left, by index, and why: the validator's words, else the op that it does not take.

    LiteRT logs to one pipe, the vendor's library to another; the name of the vendor's op ties the two together.
    """
    said = _validator_words(run.vendor)
    before = 0
    for left in _LEFT_OP.finditer(run.litert):
        refused = _VALIDATED.findall(run.litert, before, left.start())
        before = left.end()
        words = [said.get(name) or f"its validator refuses {kind}" for name, kind in refused]
        yield int(left[1]), (words[0] if words else f"the compiler has no {left[2]} of this kind")[:_LONGEST_REASON]


def _validator_words(vendor: str) -> dict[str, str]:
    """For each op of the vendor's that is refused, the first words that say why."""
    reasons, words = dict[str, str](), list[str]()
    for line in _VALIDATOR.findall(vendor):
        if name := _NOT_VALID.search(line):
            telling = [w for w in words if "failed" not in w]
            if telling:
                reasons[name[1]] = " ".join(_OF_NODE.sub("", telling[0]).split()).rstrip(".")
            words = []
        else:
            words.append(line)
    return reasons


def _moved(run: _Run) -> Counter[str]:
    """Bytes that the pieces move to and from memory, by kind: spill, fill, write_total, read_total."""
    byte_counts = Counter[str]()
    for kind, count in _SUMMARY.findall(run.vendor):
        byte_counts[kind] += int(count)
    return byte_counts


def _error_in(said: str) -> str:
    """The first error that has words: those after it follow from it.

    Those that stop nothing come last: of ops that the validator leaves, and of settings that the library does not know.
    """
    lines = said.splitlines()
    validated = max((i for i, line in enumerate(lines) if _NOT_VALID.search(line)), default=-1) + 1
    ordered = [line for line in lines[validated:] if not _HARMLESS.search(line)] + lines
    errors = [_MARKS.sub("", line).strip() for line in ordered if "ERROR" in line or "<E>" in line]
    words = [e for e in errors if e] or said.strip().splitlines()[-1:]
    return " ".join(words[0].split())[:_LONGEST_REASON].rstrip(".") if words else "it said nothing"


def _not_loaded(said: str) -> str:
    """Which library is not loaded, and why; names of folders are left out."""
    match = _NO_SHARED_LIBRARY.search(said)
    return " ".join(_FOLDER.sub("", match[0]).split())[:_LONGEST_REASON].rstrip(".") if match else _error_in(said)


_MARKS = re.compile(r"\[[^\]]*\]|ERROR:|<E>|^\s*[\d.]+ms|\S+\.cc:\d+::")
_NO_SHARED_LIBRARY = re.compile(r"Could not load shared library .*")
_FOLDER = re.compile(r"/\S*/")


def _compiled(graph: Graph, target: Target, partition: Partition, moved: Mapping[str, int]) -> Compiled:
    verdict = judge(graph, replace(target, rules=()))
    ddr_bytes = moved.get("read_total", 0) + moved.get("write_total", 0)
    # A plugin may cut a run of ops that it takes into several pieces.
    further = max(len(partition.pieces), 1) - max(verdict.segments, 1)
    return Compiled(
        segments=len(partition.pieces),
        host_ops=dict(Counter(graph.ops[i].op_type for i in partition.left)),
        left={name_of(graph, i): why for i, why in partition.left.items()},
        crossing_tensors=len(verdict.crossings),
        crossing_bytes=verdict.crossing_bytes,
        ddr_bytes=ddr_bytes,
        moved=dict(moved),
        cost=verdict.cost + target.piece_fixed * further + target.ddr_per_byte * (ddr_bytes - verdict.ddr_bytes),
    )


def name_of(graph: Graph, index: int) -> str:
    """An op's name for people: that of its first output, if it has one."""
    op = graph.ops[index]
    return (graph.tensors[op.outputs[0]].name if op.outputs else "") or f"{op.op_type} {index}"
