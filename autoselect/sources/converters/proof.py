"""Whether a converted model computes what its source does, in which layout, and which op is which node of the source.

All of it is seen on values: those of the source on a few samples, and those of the converted model.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from autoselect.domain.tensors import free_name
from autoselect.errors import ModelError, ScoreError
from autoselect.sources.converters.converter import channels_first, channels_last
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader
from autoselect.tflite.runner import Runner

EQUAL = math.inf
_WEIGHTED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL", "CONV_3D"})
_WEIGHTED_NODES = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "conv2d", "convolution", "linear", "addmm", "mm", "bmm", "matmul"}
    | {"conv1d", "conv_transpose2d", "_convolution"}
)
_MOVING = frozenset({"RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS"})
_MOVING_NODES = frozenset(
    {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Dropout"}
    | {"view", "permute", "reshape", "clone", "detach", "squeeze", "unsqueeze", "transpose", "flatten", "contiguous"}
)

Layout = tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a converted model is to its source.

    Attributes:
        sqnr_db: Of each output by name, over all samples, infinite where equal; for integers by the share that agrees.
        inputs: By name: how a sample is turned from the source's layout to the model's; None where it is not.
        outputs: The same of outputs.
        named: Ops that got the name of a node of the source.
        ops: All ops.
        idle: Inputs that are turned for nothing: only a TRANSPOSE reads them.
        parts_at: Name and type of the source's first node whose value, and all that comes of it, is not in the model.
    """

    sqnr_db: Mapping[str, float]
    inputs: Mapping[str, Layout]
    outputs: Mapping[str, Layout]
    named: int
    ops: int
    idle: tuple[str, ...]
    parts_at: tuple[str, str] | None

    @property
    def least_db(self) -> float:
        """SQNR of the output that is furthest apart."""
        return min(self.sqnr_db.values(), default=-math.inf)


def prove(
    folder: Path, path: Path, source_names: Mapping[str, Any], ends: tuple[Sequence[str], Sequence[str]]
) -> Proof:
    """Run a converted model on the samples of a folder, and name its ops, inputs and outputs as the source does.

    Runs native code: call it in a worker. The model is written anew.

    Args:
        folder: Where ``samples.npz``, ``outputs.npz`` and ``values.npz`` are.
        path: The converted model.
        source_names: Of the source: ``nodes`` and ``values``.
        ends: Names of the source's inputs and outputs.

    Raises:
        ModelError: If there are ops that nothing runs, or inputs and outputs are other ones.
        ScoreError: If LiteRT cannot run it.
    """
    model = fb.parse(path.read_bytes())
    _refuse_custom(model)
    _name_ends(model, ends)
    content = fb.serialise(model)
    samples = _rows(folder / "samples.npz", ends[0])
    wanted = _rows(folder / "outputs.npz", ends[1])
    shapes = {spec.key: spec.shape for spec in reader.input_specs(model)}
    best: tuple[float, dict[str, Layout], list[dict[str, np.ndarray]]] | None = None
    runner = Runner(content, delegates=False)
    for layout in _layouts(samples[0], shapes):
        answers = [runner({name: turned(value, layout[name]) for name, value in samples[0].items()})]
        apart = min(_apart([wanted[0][name]], [answers[0][name]])[0] for name in ends[1])
        if best is None or apart > best[0]:
            best = apart, layout, answers
    if best is None:
        given = ", ".join(f"{name} {value.shape}" for name, value in samples[0].items())
        raise ModelError(f"the inputs have other shapes than the source's: {shapes} instead of {given}")
    layout = best[1]
    rows = best[2] + [runner({name: turned(v, layout[name]) for name, v in sample.items()}) for sample in samples[1:]]
    sqnr, outputs = {}, {}
    for name in ends[1]:
        sqnr[name], outputs[name] = _apart([row[name] for row in wanted], [row[name] for row in rows])
    first = {name: turned(value, layout[name]) for name, value in samples[0].items()}
    named, parts_at = _name_ops(model, content, first, folder, source_names, ends[1])
    _keep_layout(model, layout)
    path.write_bytes(fb.serialise(model))
    return Proof(
        sqnr_db=sqnr,
        inputs=layout,
        outputs=outputs,
        named=named,
        ops=len(model.subgraphs[0].operators),
        idle=_idle(model, layout),
        parts_at=parts_at,
    )


def _idle(model: fb.Model, layout: Mapping[str, Layout]) -> tuple[str, ...]:
    graph = model.subgraphs[0]
    idle = []
    for index in fb.indices(graph.inputs):
        name = fb.tensor_name(graph.tensors[index])
        readers = {fb.op_type(model, op) for op in graph.operators if index in fb.indices(op.inputs)}
        if layout[name] is not None and readers == {"TRANSPOSE"}:
            idle.append(name)
    return tuple(idle)


def turned(value: np.ndarray, layout: Layout) -> np.ndarray:
    """A value in another layout."""
    return value if layout is None else np.ascontiguousarray(value.transpose(layout))


def _refuse_custom(model: fb.Model) -> None:
    graph = model.subgraphs[0]
    for op in graph.operators or []:
        code = model.operatorCodes[op.opcodeIndex]
        if code.customCode:
            name = fb.tensor_name(graph.tensors[op.outputs[0]])
            raise ModelError(f"the converter left {fb.op_type(model, op)} at {name!r}, a custom op that nothing runs")


def _name_ends(model: fb.Model, ends: tuple[Sequence[str], Sequence[str]]) -> None:
    """Give inputs and outputs the source's names: by name where all agree, else by place."""
    graph = model.subgraphs[0]
    for indices, names, side in zip((graph.inputs, graph.outputs), ends, ("inputs", "outputs"), strict=True):
        places = fb.indices(indices)
        if len(places) != len(names):
            raise ModelError(f"the converted model has {len(places)} {side}, and the source has {len(names)}")
        bare_names = [_bare(fb.tensor_name(graph.tensors[i])) for i in places]
        order = [bare_names.index(_bare(name)) for name in names if bare_names.count(_bare(name)) == 1]
        chosen = order if len(order) == len(names) else range(len(names))
        for name, place in zip(names, chosen, strict=True):
            graph.tensors[places[place]].name = name.encode()
    taken = {name for side in ends for name in side}
    for index, tensor in enumerate(graph.tensors):
        if index not in {*fb.indices(graph.inputs), *fb.indices(graph.outputs)}:
            tensor.name = free_name(fb.tensor_name(tensor), taken).encode()
    model.signatureDefs = None


def _bare(name: str) -> str:
    name = name.removeprefix("serving_default_").removesuffix(":0")
    return "".join(c if c.isalnum() else "_" for c in name).strip("_")


def _rows(path: Path, names: Sequence[str]) -> list[dict[str, np.ndarray]]:
    with np.load(path) as stored:
        count = len(stored.files) // max(len(names), 1)
        return [{name: stored[f"{place}/{n}"] for place, name in enumerate(names)} for n in range(count)]


def _layouts(sample: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, Layout]]:
    """How the inputs may be turned, in every mix; most often there is one."""
    fitting = []
    for name, value in sample.items():
        ways = (None, channels_last(value.ndim))
        fitting.append([way for way in dict.fromkeys(ways) if turned(value, way).shape == shapes[name]])
    for mix in itertools.product(*fitting):
        yield dict(zip(sample, mix, strict=True))


def _apart(wanted: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> tuple[float, Layout]:
    """SQNR in dB over all samples, and how an output is turned; the layout that agrees best."""
    shape = outputs[0].shape
    ways = dict.fromkeys((None, channels_last(wanted[0].ndim)))
    fitting = [way for way in ways if turned(wanted[0], way).shape == shape]
    if not fitting and _without_ones(wanted[0].shape) == _without_ones(shape):  # A scalar that became (1, 1), say.
        wanted, fitting = list(map(_reshaped_like, wanted, outputs)), [None]
    rated = [(_sqnr_db([turned(array, way) for array in wanted], outputs), way) for way in fitting]
    return max(rated, key=lambda row: row[0], default=(-math.inf, None))


def _reshaped_like(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """An array in the shape of another if they differ in axes of size 1 only; otherwise the array as it is."""
    return array.reshape(like.shape) if _without_ones(array.shape) == _without_ones(like.shape) else array


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _sqnr_db(wanted: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> float:
    signal = noise = 0.0
    for reference, other in zip(wanted, outputs, strict=True):
        if reference.shape != other.shape:
            return -math.inf
        exact = reference.astype(np.float64)
        # What is endless in both, or no number in both, says nothing of the rest.
        counts = np.isfinite(exact) | ~((exact == other) | (np.isnan(exact) & np.isnan(other)))
        with np.errstate(all="ignore"):
            signal += float(np.square(exact[counts]).sum())
            noise += float(np.square(exact - other)[counts].sum())
    if not (math.isfinite(signal) and math.isfinite(noise)):
        return -math.inf
    if noise == 0.0:
        return EQUAL
    return 10.0 * math.log10(signal / noise) if signal else -math.inf


def _name_ops(
    model: fb.Model,
    content: bytes,
    sample: Mapping[str, np.ndarray],
    folder: Path,
    source_names: Mapping[str, Any],
    outputs: Sequence[str],
) -> tuple[int, tuple[str, str] | None]:
    """Name the ops' outputs after the source's nodes that compute these values.

    Returns:
        How many ops were named, and where the two part.
    """
    nodes: list[dict[str, Any]] = source_names["nodes"]
    maker = {value: node for node in nodes for value in node["out"]}
    graph = model.subgraphs[0]
    try:
        seen = Runner(content, preserve_all_tensors=True)
        seen(sample)
    except ScoreError:
        return 0, None
    ends = set(fb.indices(graph.outputs))
    with np.load(folder / "values.npz") as stored:
        values = {name: stored[str(place)] for place, name in enumerate(source_names["values"])}
    names_by_place = _same_values(model, seen, values)
    matches: dict[int, str] = {}  # by place of the op
    for place, names in names_by_place.items():
        moves = fb.op_type(model, graph.operators[place]) in _MOVING
        candidates = [name for name in names if name in maker]
        if candidates:
            matches[place] = min(candidates, key=lambda name: (maker[name]["op"] in _MOVING_NODES) is not moves)
    held = {name for names in names_by_place.values() for name in names}
    used = set(matches.values())
    computed = {int(i) for op in graph.operators for i in fb.indices(op.outputs)} - ends
    taken = {fb.tensor_name(t) for i, t in enumerate(graph.tensors) if i not in computed}
    named = 0
    for place, value in matches.items():
        op = graph.operators[place]
        named += 1
        if op.outputs[0] in computed:
            op_type, node = fb.op_type(model, op), maker[value]
            name = _node_name(op_type, node, maker, used)
            if op_type in _MOVING and node["op"] not in _MOVING_NODES:
                name = f"{name}/{op_type.lower()}"
            graph.tensors[op.outputs[0]].name = free_name(name, taken).encode()
    _name_helpers(model, matches, computed, taken)
    return named, _parts_at(nodes, held, outputs)


def _same_values(model: fb.Model, seen: Runner, values: Mapping[str, np.ndarray]) -> dict[int, list[str]]:
    """Names of the source's values that each op's first output equals, by the op's place."""
    by_size: dict[int, list[str]] = {}
    for name, value in values.items():
        by_size.setdefault(value.size, []).append(name)
    graph, names_by_place = model.subgraphs[0], {}
    for place, op in enumerate(graph.operators):
        index = op.outputs[0]
        if graph.tensors[index].type != schema.TensorType.FLOAT32:
            continue
        try:
            array = seen.tensor(index)
        except ValueError:  # It has no data, such as one of no elements.
            continue
        names_by_place[place] = [name for name in by_size.get(array.size, ()) if _is_same(values[name], array)]
    return names_by_place


def _is_same(value: np.ndarray, array: np.ndarray) -> bool:
    """Whether two arrays hold the same values, as they lie or with the channels turned."""
    if not math.isclose(float(np.abs(value).sum()), float(np.abs(array).sum()), rel_tol=1e-2, abs_tol=1e-12):
        return False
    flat = array.ravel()
    ways = dict.fromkeys((None, channels_last(value.ndim), channels_first(value.ndim)))
    # Values count as the same from an SQNR of 40 dB on.
    return any(_sqnr_db([turned(value, way).ravel()], [flat]) >= 40.0 for way in ways)


def _node_name(op_type: str, node: dict[str, Any], maker: Mapping[str, dict[str, Any]], used: set[str]) -> str:
    """The name of the node with the weights of an op: the converter fuses what follows it."""
    candidate = node
    # Nodes that one op may stand for behind the one with its weights: batch norm, bias, activation.
    for _ in range(6 if op_type in _WEIGHTED else 0):
        if candidate["op"] in _WEIGHTED_NODES:
            return str(candidate["name"])
        before = [maker[name] for name in candidate["in"] if name in maker and maker[name]["op"] != "Constant"]
        before = [producer for producer in before if used.isdisjoint(producer["out"])]
        if len(before) != 1:
            break
        candidate = before[0]
    return str(candidate["name"] if candidate["op"] in _WEIGHTED_NODES else node["name"])


def _name_helpers(model: fb.Model, matches: Mapping[int, str], computed: set[int], taken: set[str]) -> None:
    """Name what only the converted model has after the op of the source that it serves: ``conv1/pad``."""
    graph, served = model.subgraphs[0], dict[int, str]()
    writers = [op for op in reversed(graph.operators) if len(op.outputs)]
    reader_of = {i: int(op.outputs[0]) for op in writers for i in fb.indices(op.inputs)}
    for place in reversed(range(len(graph.operators))):
        op = graph.operators[place]
        index = int(op.outputs[0])
        if place not in matches and index in computed:
            name = fb.tensor_name(graph.tensors[index])
            if (reader := reader_of.get(index)) is not None:
                served[index] = served.get(reader) or fb.tensor_name(graph.tensors[reader])
                name = f"{served[index]}/{fb.op_type(model, op).lower()}"
            graph.tensors[index].name = free_name(name, taken).encode()


def _parts_at(nodes: Sequence[dict[str, Any]], held: set[str], outputs: Sequence[str]) -> tuple[str, str] | None:
    """The first node that an output needs and of which nothing that follows is in the converted model."""
    explained, needed = set(held), set(outputs)
    for node in reversed(nodes):
        if explained.intersection(node["out"]):
            explained.update(node["in"])
        if needed.intersection(node["out"]):
            needed.update(node["in"])
    for node in nodes:
        if needed.intersection(node["out"]) and not explained.intersection(node["out"]):
            return str(node["name"]), str(node["op"])
    return None


def _keep_layout(model: fb.Model, layout: Mapping[str, Layout]) -> None:
    """Write into the file how samples in the source's layout are turned, for :func:`reader.input_specs`."""
    model.metadata = [
        *(model.metadata or []),
        *(reader.layout_entry(name, way) for name, way in layout.items() if way is not None),
    ] or None
