"""Finished models and the compilers of chips: what a compiler takes of a model, and what it makes of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from autoselect.api.results import Compilation, CompiledModel, Rows
from autoselect.api.source import ModelFile, file_content, file_name, naming, needs_converter
from autoselect.cases import versions
from autoselect.cases.compiling import UNKEPT, as_compiled, compile_report, partition, read_for
from autoselect.compilers.compiler import ChipCompiler, Partition
from autoselect.compilers.litert_plugin import DISPATCH_OP, name_of
from autoselect.compilers.opening import compiler_of
from autoselect.compilers.vela import NPU_OP
from autoselect.domain.graph import Graph, with_answers
from autoselect.domain.targets import Compiled, LitertPlugin, Place, Target
from autoselect.domain.verdicts import Verdict, precision_of, views
from autoselect.errors import ModelError, PreparationError, TargetRefusal, TrialError, UsageError
from autoselect.runs.files import refuse_existing, write_bytes
from autoselect.scoring.target_file import read_target
from autoselect.scoring.target_penalty import island_table, on_target, refusal
from autoselect.tflite.tflite_file import TfliteFile

TARGETS_HELP = "Choose targets such as qualcomm-sm8750, with a comma between two."
_COMPILED = (DISPATCH_OP, NPU_OP)


def compile_model(
    model: str | Path | bytes,
    *,
    target: str | Path | Iterable[str | Path],
    output: str | Path | None = None,
    force: bool = False,
    timeout: float = UNKEPT.timeout_seconds,
) -> Compilation:
    """Compile a finished model for one or several chips, with the compilers of their vendors.

    Args:
        model: Path or bytes of a ``.tflite``: float, dynamic-range, full-integer or mixed.
        target: Names of bundled target profiles, or paths of ``.toml`` files: a list, or a text with commas.
        output: File to write, or a folder; for several chips always a folder. By default the files are beside the
            model, as ``NAME.CHIP.tflite``; those of bytes are in the current folder.
        force: Write over existing files.
        timeout: Seconds after which a compiler counts as hung.

    Returns:
        For each chip the file, the pieces that the chip runs, and the ops that are left to the CPU, with reasons. A
        chip whose compiler refuses the model, or fails, is in ``failed``.

    Raises:
        UsageError: If a target has no compiler, if the compiler is not installed, or if a file exists already.
        ModelError: If the file is missing, no whole TFLite file, or compiled already.
        PreparationError: If no chip's compiler made a file.
        StorageError: If a file cannot be written.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> made = autoselect.compile_model(
        ...     embedded.model_path(), target="qualcomm-sm8750", output="pump.sm8750.tflite"
        ... )  # doctest: +SKIP
        >>> made.models[0].partitions, made.models[0].left_ops  # doctest: +SKIP
        (1, 0)
    """
    chips = [chip for name in target_names(target) for chip in read_target(name).chips]
    compilers = [(chip, compiler_of(chip)) for chip in chips]
    for _, compiler in compilers:
        compiler.require()
    name, content = _read(model)
    paths = _paths(model, chips, output)
    for path in paths:
        if not isinstance(model, bytes) and path.resolve() == Path(model).resolve():
            raise UsageError(f"{path} is the model itself. Choose another --output (output=...).")
        if not force:
            refuse_existing(path)
    made, failed = list[CompiledModel](), dict[str, str]()
    for (chip, compiler), path in zip(compilers, paths, strict=True):
        try:
            made.append(_made(content, chip, compiler, path, timeout))
        except TrialError as exc:
            failed[chip.name] = str(exc)
    if not made:
        raise PreparationError(f"{name} could not be compiled. {' '.join(dict.fromkeys(failed.values()))}")
    return Compilation(path=name, size_bytes=len(content), models=made, failed=failed)


def target_names(target: str | Path | Iterable[str | Path]) -> list[str]:
    """The names in a text with commas, or in a list; a file's path is one, commas or not.

    Raises:
        UsageError: If there is none, or one is named twice.
    """
    listed = [str(each) for each in ([target] if isinstance(target, str | Path) else target)]
    names = [part.strip() for text in listed for part in ([text] if os.path.isfile(text) else text.split(","))]
    if not names or "" in names or len(set(names)) < len(names):
        raise UsageError(f"Expected different targets, got {', '.join(names) or 'none'}. {TARGETS_HELP}")
    return names


def compiled_path(path: Path, chip: str) -> Path:
    """Where the compiled file of a model goes: ``model_int8.qualcomm-sm8750.tflite``."""
    return path.with_name(f"{path.stem}.{Path(chip).name}.tflite")


def compiled_paths(path: Path, chips: Collection[Target]) -> list[Path]:
    """Where the compiled files of a model go, one for each chip.

    Raises:
        UsageError: If two would be one file.
    """
    owners = dict[Path, Target]()
    for chip in chips:
        file = compiled_path(path, chip.name)
        if owners.setdefault(file, chip) != chip:
            raise UsageError(
                f"The files for {owners[file].name!r} and {chip.name!r} would both be {file}. Give one of the profiles "
                "another name, or choose one of the two."
            )
    return [compiled_path(path, chip.name) for chip in chips]


def on_target_of(
    content: bytes, target: Target, name: str, notes: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a finished model is on a target; if it has compilers, as these make it.

    Args:
        content: Bytes of the model, in true shapes.
        target: What it is judged for.
        name: What messages call it.
        notes: What there is to say of the model beforehand.

    Returns:
        The fields of :class:`autoselect.scoring.fragmentation.Fragmentation`, and a table. The table has the keys of
        :func:`autoselect.scoring.target_penalty.island_table`, the ``notes``, and four more. ``chips`` holds the rows
        of :func:`chip_rows`. ``piece_cost`` is the part of the penalty that the profile has for pieces beyond the first
        and for the bytes that pieces move. ``costs`` has ``name``, ``penalty`` and ``unit`` of each chip. For several
        chips all other costs are None: their unit is what the best model of each chip costs, which only a search knows.
        ``forecast`` is for targets whose compiler does not decide which ops the accelerator takes, and None for others.
        It has four keys: ``penalty`` and ``segments``, which the target's profile expects (those of the table are the
        compiled model's, if it was compiled); ``uncompiled``, the reason if it was not, else None; ``host_ops``, counts
        by op type of what the compiler left to the CPU (by type the most of several compilers).

    Raises:
        ModelError: If the bytes are no whole TFLite file.
        UsageError: If a compiler or its libraries are missing.
        PreparationError: If a compiler hung, died or failed.
    """
    for chip in target.asked:
        compiler_of(chip).require()
    refused = ""
    try:
        graph = read_for(content, target, UNKEPT)
    except TargetRefusal as exc:
        refused, graph = str(exc), TfliteFile(content).graph
        # All ops of a model that a compiler refuses as a whole are left to the host.
        reasons = dict.fromkeys(range(len(graph.ops)), refused)
        graph = with_answers(graph, *[reasons] * len(target.asked))
    except TrialError as exc:
        raise PreparationError(f"{name}: {exc}") from exc
    chips = chip_rows(graph, target, None if refused else content)
    pairs = views(graph, target)
    costs = {chip.name: verdict.cost for chip, verdict in pairs}
    segments = {chip.name: verdict.segments for chip, verdict in pairs}
    costs |= {chip["name"]: chip["penalty"] for chip in chips}
    segments |= {chip["name"]: chip["partitions"] for chip in chips}
    table: dict[str, Any] = {**island_table(graph, target), "chips": chips, "forecast": None, "notes": list(notes)}
    table["refusal"] = refused or table["refusal"]
    table["piece_cost"] = pairs[0][1].piece_cost
    if target.compilers:
        table |= _as_compiled(content, graph, target, table, costs, segments)
        table["segments"] = max(segments.values())
    table["costs"] = [{"name": chip.name, "penalty": costs[chip.name], "unit": chip.unit} for chip in target.chips]
    if target.parts:
        table |= _without_sums(table)
    cut = asdict(on_target(graph, target))
    return cut | {name: table[name] for name in cut.keys() & table.keys()}, table


def _without_sums(table: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a table of several chips without the joint costs, and without what is made of them."""
    sums = dict.fromkeys(("penalty", "accelerator_cost", "host_cost", "crossing_cost", "piece_cost", "best_island"))
    forecast = table["forecast"] and {**table["forecast"], "penalty": None}
    islands = [{**island, "gain": None} for island in table["islands"]]
    placements = [{**placed, "cost": None} for placed in table["placements"]]
    return {**sums, "islands": islands, "placements": placements, "forecast": forecast}


def _as_compiled(
    content: bytes,
    graph: Graph,
    target: Target,
    table: Mapping[str, Any],
    costs: dict[str, float],
    segments: dict[str, int],
) -> dict[str, Any]:
    """What compilers say of the model in place of what profiles expect, and ``forecast``: what these do.

    The costs and segments of chips, by name, become the compilers'.
    """
    others = [chip for chip in target.compilers if chip not in target.asked]
    pairs = views(graph, target)
    refusal, placements = table["refusal"], table["placements"]
    uncompiled, made = "the target refuses the model." if refusal else None, dict[str, dict[str, Any]]()
    if not uncompiled:
        try:
            for chip in others:
                compiler_of(chip).require()
            reports = {c.name: compile_report(content, c, verdict, UNKEPT) for c, verdict in pairs if c in others}
            if others and not target.parts:
                placements = _as_placed(placements, partition(content, target, UNKEPT))
            made = reports  # All or nothing: compiled figures do not stand beside a forecast of places.
        except TargetRefusal as exc:
            uncompiled = refusal = str(exc)
        except (UsageError, TrialError) as exc:
            uncompiled = str(exc)
    figures = as_compiled(made[target.name]) if target.name in made else {}
    costs |= {name: report["cost"] for name, report in made.items()}
    segments |= {name: report["segments"] for name, report in made.items()}
    host_ops = Counter[str]()
    for report in made.values():
        host_ops |= Counter(report["host_ops"])
    forecast = {
        "penalty": table["penalty"],
        "segments": table["segments"],
        "uncompiled": uncompiled,
        "host_ops": dict(host_ops),
    }
    entries = {"refusal": refusal, "penalty": max(costs.values()), "placements": placements}
    return {**figures, **entries, "forecast": forecast if others else None}


def _as_placed(placements: Rows, partitioning: Partition) -> Rows:
    """Rows of ops with the place that the compiler gave each op; the cost stays that of the place in the profile."""
    taken = {i for piece in partitioning.pieces for i in piece}

    def moved(i: int, place: str) -> dict[str, Any]:
        if place != Place.HOST and i in partitioning.left:
            return {"place": Place.HOST.value, "reason": partitioning.left[i]}
        if place == Place.HOST and i in taken:
            return {"place": Place.ACCELERATOR.value, "reason": "the compiler takes it"}
        return {}

    return [row | moved(i, row["place"]) for i, row in enumerate(placements)]


def chip_rows(graph: Graph, target: Target, content: bytes | None = None) -> Rows:
    """What each chip whose compiler decides makes of a model.

    Args:
        graph: With what the compilers say of each op.
        target: With the chips.
        content: The model, to be compiled; None leaves estimates.

    Returns:
        For each chip ``name``, ``unit``, ``accelerator`` (its name for people), ``partitions``, ``left_ops``,
        ``crossing_tensors``, ``crossing_bytes``, ``ddr_bytes``, ``moved`` (the same by kind, empty of an estimate),
        ``uncompiled`` (why these are an estimate; None of a compiled model), ``penalty``, its parts
        ``accelerator_cost``, ``host_cost``, ``crossing_cost`` and ``piece_cost``, and ``pieces`` and ``left``, see
        :class:`autoselect.api.results.CompiledModel`.
    """
    pairs = views(graph, target)
    return [_chip_row(graph, chip, verdict, content) for chip, verdict in pairs if chip in target.asked]


def _chip_row(graph: Graph, chip: Target, verdict: Verdict, content: bytes | None) -> dict[str, Any]:
    made: dict[str, Any] = {"ddr_bytes": verdict.ddr_bytes, "moved": {}, "cost": verdict.cost}
    uncompiled = None if content else "nothing is compiled"
    taken = [placement.place is Place.ACCELERATOR for placement in verdict.placements]
    runs = [[i for i, _ in run] for on_chip, run in groupby(enumerate(taken), key=lambda pair: pair[1]) if on_chip]
    if content:
        try:
            pieces = partition(content, chip, UNKEPT).pieces
            made = compile_report(content, chip, verdict, UNKEPT)
            runs = [list(piece) for piece in pieces]
        except TrialError as exc:
            uncompiled = str(exc)
    left = {i: placement.reason for i, placement in enumerate(verdict.placements) if not taken[i]}
    return {
        "name": chip.name,
        "unit": chip.unit,
        "accelerator": chip.accelerator.name if chip.accelerator else "the chip",
        "partitions": len(runs),
        "left_ops": verdict.left_ops,
        "crossing_tensors": len(verdict.crossings),
        "crossing_bytes": verdict.crossing_bytes,
        "ddr_bytes": made["ddr_bytes"],
        "moved": made["moved"],
        "uncompiled": uncompiled,
        "penalty": made["cost"],
        "accelerator_cost": verdict.accelerator_cost,
        "host_cost": verdict.host_cost,
        "crossing_cost": verdict.crossing_cost,
        "piece_cost": verdict.piece_cost + made["cost"] - verdict.cost,
        **_taken(graph, Partition(pieces=tuple(map(tuple, runs)), left=left)),
    }


def _taken(graph: Graph, partitioning: Partition) -> dict[str, Rows]:
    """Pieces and left ops, as rows."""
    left = [
        {
            "op": i,
            "op_type": graph.ops[i].op_type,
            "precision": precision.value if (precision := precision_of(graph.ops[i])) else None,
            "name": name_of(graph, i),
            "reason": why,
        }
        for i, why in sorted(partitioning.left.items())
    ]
    return {"pieces": [_piece(graph, piece) for piece in partitioning.pieces], "left": left}


def _piece(graph: Graph, piece: Sequence[int]) -> dict[str, Any]:
    """What a piece runs, and the bytes that it exchanges with the rest; constants come with the piece."""
    inside, writers = set(piece), graph.producers()
    activations = {*graph.inputs, *writers}
    read = {t for i in piece for t in graph.ops[i].inputs if t in activations and writers.get(t) not in inside}
    others = {t for i, op in enumerate(graph.ops) if i not in inside for t in op.inputs} | {*graph.outputs}
    written = {t for i in piece for t in graph.ops[i].outputs} & others
    types = [graph.ops[i].op_type for i in piece]
    constants = {t for i in piece for t in graph.ops[i].constants}  # Steps of an unrolled layer share theirs.
    return {
        "ops": list(piece),
        "ops_by_type": {name: types.count(name) for name in dict.fromkeys(types)},
        "input_bytes": sum(graph.tensors[t].size_bytes for t in read),
        "output_bytes": sum(graph.tensors[t].size_bytes for t in written),
        "constant_bytes": sum(graph.tensors[t].size_bytes for t in constants),
    }


def _read(model: ModelFile) -> tuple[str, bytes]:
    name = file_name(model)
    if needs_converter(model):
        raise ModelError(
            f"{name}: expected a .tflite to compile, got another kind of model. Convert it first, or search it."
        )
    content = file_content(model)
    with naming(model):
        ops = [op.op_type for op in TfliteFile(content).graph.ops]
    if made := [op for op in ops if op in _COMPILED]:
        raise ModelError(f"{name} is compiled already: it has {made[0]} ops. Compile the model that it was made of.")
    return name, content


def _paths(model: ModelFile, chips: Sequence[Target], output: str | Path | None) -> list[Path]:
    beside = Path("model.tflite") if isinstance(model, bytes) else Path(model)
    if output is not None and len(chips) == 1 and not Path(output).is_dir():
        return [Path(output)]
    if output is not None and Path(output).is_file():
        raise UsageError(f"{output} is a file, and there are {len(chips)} to write. Choose a folder as --output.")
    named = beside if output is None else Path(output) / beside.name
    return compiled_paths(named, chips)


def _made(content: bytes, chip: Target, compiler: ChipCompiler, path: Path, timeout: float) -> CompiledModel:
    partitioning = compiler.partition(content, timeout_seconds=timeout)
    compiled, written = compiler.compiled(content, timeout_seconds=timeout)
    graph = TfliteFile(content).graph
    write_bytes(path, written)
    return CompiledModel(
        target=chip.name,
        path=str(path),
        sha256=versions.content_hash(written),
        size_bytes=len(written),
        ops=len(graph.ops),
        partitions=compiled.segments,
        left_ops=len(partitioning.left),
        **_taken(graph, partitioning),
        crossing_bytes=compiled.crossing_bytes,
        ddr_bytes=compiled.ddr_bytes,
        moved=dict(compiled.moved),
        sram_bytes=compiled.sram_bytes,
        dram_bytes=compiled.dram_bytes,
        flash_bytes=compiled.flash_bytes,
        cycles=compiled.cycles,
        cost=compiled.cost,
        unit=chip.unit,
        versions=dict(compiler.versions()),
        licence=_licence(chip),
        warnings=_warnings(with_answers(graph, partitioning.left) if chip.asks_compiler else graph, chip, compiled),
    )


def _licence(chip: Target) -> str:
    if not isinstance(chip.compiler, LitertPlugin):
        return ""
    vendor = chip.compiler.manufacturer
    return f"{vendor}'s libraries compiled it. They are under a licence of {vendor}'s own, which comes with them."


def _warnings(graph: Graph, chip: Target, compiled: Compiled) -> list[str]:
    warnings = []
    if not compiled.segments:
        warnings.append(f"{chip.name} takes none of the ops: the file is the model as it was, and runs on the CPU.")
    if why := refusal(graph, chip) or compiled.lack:
        warnings.append(f"It compiles, but {why}.")
    return warnings
