"""Sparse weights are made dense without a change of outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from autoselect.errors import ModelError
from autoselect.sources import loading, shapes
from autoselect.tflite import editing
from autoselect.tflite import flatbuffer as fb

FLOAT32, FLOAT16, BOOL = schema.TensorType.FLOAT32, schema.TensorType.FLOAT16, schema.TensorType.BOOL
DENSE = "{} sparse weights were made dense: the same values, with the zeros written out."
WIDENED = "{} float16 weights were widened to float32: the same values, in twice the bytes."
X = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)


def pruned(seed: int = 1) -> np.ndarray:
    """Weights that float16 holds too, whole blocks of 1x4 among them zero."""
    rng = np.random.default_rng(seed)
    kept = np.repeat(rng.integers(0, 2, (4, 2)), 4, axis=1)
    return (rng.integers(1, 99, (4, 8)) / 64.0 * kept * [1, 0, 1, 1, 1, 1, 0, 1]).astype(np.float32)


def dimension(size: int, rows: list[list[int]] | None = None) -> Any:
    """A dense axis of so many places, or a sparse one with the places that each row holds."""
    made = schema.DimensionMetadataT()
    made.format, made.denseSize = schema.DimensionType.DENSE, size
    if rows is not None:
        made.format = schema.DimensionType.SPARSE_CSR
        made.arraySegmentsType = made.arrayIndicesType = schema.SparseIndexVector.Uint8Vector
        made.arraySegments, made.arrayIndices = schema.Uint8VectorT(), schema.Uint8VectorT()
        made.arraySegments.values = np.cumsum([0, *map(len, rows)]).astype(np.uint8)
        made.arrayIndices.values = np.array([place for row in rows for place in row], dtype=np.uint8)
    return made


def by_value(dense: np.ndarray) -> tuple[Any, np.ndarray]:
    """Each row as the places of what is not zero."""
    made = schema.SparsityParametersT()
    made.traversalOrder = np.array([0, 1], dtype=np.int32)
    made.dimMetadata = [dimension(len(dense)), dimension(0, [np.flatnonzero(row).tolist() for row in dense])]
    return made, dense[dense != 0]


def by_column(dense: np.ndarray) -> tuple[Any, np.ndarray]:
    """The columns that are not all zero, each as the places of what is not zero."""
    made = schema.SparsityParametersT()
    made.traversalOrder = np.array([1, 0], dtype=np.int32)
    kept = np.flatnonzero(dense.any(axis=0))
    columns = dense.T[kept]
    made.dimMetadata = [dimension(0, [kept.tolist()]), dimension(0, [np.flatnonzero(c).tolist() for c in columns])]
    return made, columns[columns != 0]


def by_block(dense: np.ndarray) -> tuple[Any, np.ndarray]:
    """Each row as the places of blocks of four that are not all zero."""
    blocks = dense.reshape(len(dense), -1, 4)
    kept = [np.flatnonzero(row.any(axis=-1)).tolist() for row in blocks]
    made = schema.SparsityParametersT()
    made.traversalOrder, made.blockMap = np.array([0, 1, 2], dtype=np.int32), np.array([1], dtype=np.int32)
    made.dimMetadata = [dimension(len(dense)), dimension(0, kept), dimension(4)]
    return made, blocks[blocks.any(axis=-1)]


def by_square(dense: np.ndarray) -> tuple[Any, np.ndarray]:
    """Pairs of rows as the places of blocks of 2x4 that are not all zero, each block column by column."""
    blocks = dense.reshape(len(dense) // 2, 2, -1, 4).transpose(0, 2, 3, 1)
    kept = [np.flatnonzero(row.any(axis=(-1, -2))).tolist() for row in blocks]
    made = schema.SparsityParametersT()
    made.traversalOrder, made.blockMap = np.array([0, 1, 3, 2], dtype=np.int32), np.array([0, 1], dtype=np.int32)
    made.dimMetadata = [dimension(len(blocks)), dimension(0, kept), dimension(4), dimension(2)]
    return made, blocks[blocks.any(axis=(-1, -2))]


class Maker:
    """A model whose one subgraph takes X through layers of the weights, each behind the ops that make them dense."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version, self.model.operatorCodes, self.model.subgraphs = 3, [], []
        self.model.buffers = [schema.BufferT()]

    def graph(self) -> Any:
        made = schema.SubGraphT()
        made.tensors, made.operators = [], []
        self.model.subgraphs.append(made)
        return made

    def tensor(
        self, graph: Any, name: str, dtype: int, shape: tuple[int, ...], values: np.ndarray | None = None
    ) -> int:
        made = schema.TensorT()
        made.name, made.type, made.shape = name.encode(), dtype, np.array(shape, dtype=np.int32)
        made.buffer = 0 if values is None else editing.add_buffer(self.model, values)
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    def op(self, graph: Any, op_type: str, inputs: list[int], outputs: list[int], options: Any = None) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode, code.version = getattr(schema.BuiltinOperator, op_type), 1
        self.model.operatorCodes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex = len(self.model.operatorCodes) - 1
        made.inputs, made.outputs = np.array(inputs, dtype=np.int32), np.array(outputs, dtype=np.int32)
        if options is not None:
            made.builtinOptions = options
            made.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__[:-1])
        graph.operators.append(made)

    def layer(self, weights: np.ndarray, encode: Callable[[np.ndarray], tuple[Any, np.ndarray]], dtype: int) -> Any:
        """A subgraph of one fully connected layer of sparse weights."""
        graph = self.graph()
        sparsity, values = encode(weights)
        source = self.tensor(graph, "sparse", dtype, weights.shape, values.astype(fb.TENSOR_DTYPES[dtype]))
        graph.tensors[source].sparsity = sparsity
        read = self.tensor(graph, "dense", dtype, weights.shape)
        self.op(graph, "DENSIFY", [source], [read], schema.DensifyOptionsT())
        if dtype == FLOAT16:
            half, read = read, self.tensor(graph, "wide", FLOAT32, weights.shape)
            self.op(graph, "DEQUANTIZE", [half], [read], schema.DequantizeOptionsT())
        x = self.tensor(graph, "x", FLOAT32, X.shape)
        y = self.tensor(graph, "y", FLOAT32, (1, len(weights)))
        self.op(graph, "FULLY_CONNECTED", [x, read, -1], [y], schema.FullyConnectedOptionsT())
        graph.inputs, graph.outputs = np.array([x], dtype=np.int32), np.array([y], dtype=np.int32)
        return graph

    def content(self) -> bytes:
        return fb.serialise(self.model)


def run(content: bytes, *inputs: np.ndarray) -> list[bytes]:
    kernels = shapes.Kernels(content, [value.shape for value in inputs])
    return [value.tobytes() for value in kernels.run(inputs)]


@pytest.mark.parametrize("encode", [by_value, by_column, by_block, by_square])
@pytest.mark.parametrize(
    ("dtype", "notes"),
    [
        pytest.param(FLOAT32, (DENSE.format(1),), id="float32"),
        pytest.param(FLOAT16, (DENSE.format(1), WIDENED.format(1)), id="float16"),
    ],
)
def test_outputs_are_equal(encode: Any, dtype: int, notes: tuple[str, ...]) -> None:
    maker = Maker()
    maker.layer(pruned(), encode, dtype)
    content = maker.content()
    assert not loading.needs_worker(content)
    found = loading.float_model(content)
    assert found.notes == notes
    model = fb.parse(found.content)
    [graph] = model.subgraphs
    assert [fb.op_type(model, op) for op in graph.operators] == ["FULLY_CONNECTED"]
    [weights] = [t for t in graph.tensors if fb.is_constant(model, t)]
    assert weights.sparsity is None
    np.testing.assert_array_equal(fb.constant_values(model, weights), pruned(), strict=True)
    assert (len(graph.tensors), len(model.buffers), len(model.operatorCodes)) == (3, 2, 1)
    assert run(found.content, X) == run(content, X)


def test_a_sparse_constant_that_an_op_reads_itself() -> None:
    """LiteRT's FULLY_CONNECTED has a kernel for these, which leaves the zeros out of its sums."""
    maker = Maker()
    graph = maker.layer(pruned(), by_value, FLOAT32)
    densify, layer = graph.operators
    layer.inputs[1], graph.operators = densify.inputs[0], [layer]
    content = maker.content()
    found = loading.float_model(content)
    assert found.notes == (DENSE.format(1),)
    expected, got = (np.frombuffer(run(one, X)[0], np.float32) for one in (content, found.content))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_equal_weights_share_a_buffer_in_branches_too() -> None:
    maker = Maker()
    main = maker.graph()
    for _ in range(2):
        maker.layer(pruned(), by_value, FLOAT16)
    flag, x, y = (
        maker.tensor(main, name, dtype, shape)
        for name, dtype, shape in (("flag", BOOL, (1,)), ("x", FLOAT32, X.shape), ("y", FLOAT32, (1, 4)))
    )
    options = schema.IfOptionsT()
    options.thenSubgraphIndex, options.elseSubgraphIndex = 1, 2
    maker.op(main, "IF", [flag, x], [y], options)
    main.inputs, main.outputs = np.array([flag, x], dtype=np.int32), np.array([y], dtype=np.int32)
    content = maker.content()
    found = loading.float_model(content)
    assert found.notes[:2] == (DENSE.format(2), WIDENED.format(2))
    model = fb.parse(found.content)
    assert [len(graph.tensors) for graph in model.subgraphs] == [3, 3, 3]
    assert len(model.buffers) == 2
    for flag_value in (np.array([True]), np.array([False])):
        assert run(found.content, flag_value, X) == run(content, flag_value, X)


def without_levels(sparsity: Any) -> None:
    sparsity.dimMetadata = []


def without_a_row(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arraySegments.values = sparsity.dimMetadata[1].arraySegments.values[:-1]


def with_a_row_backwards(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arraySegments.values[1] = 250


def with_a_place_outside(sparsity: Any) -> None:
    sparsity.dimMetadata[1].arrayIndices.values[0] = 8


def with_an_axis_twice(sparsity: Any) -> None:
    sparsity.traversalOrder[:] = 1


def with_too_few_rows(sparsity: Any) -> None:
    level = sparsity.dimMetadata[1]
    sparsity.dimMetadata[0].denseSize = 1
    level.arraySegments.values = level.arraySegments.values[:2]
    level.arrayIndices.values = level.arrayIndices.values[: level.arraySegments.values[-1]]


@pytest.mark.parametrize(
    "spoil",
    [without_levels, without_a_row, with_a_row_backwards, with_a_place_outside, with_an_axis_twice, with_too_few_rows],
)
def test_damage_is_told_and_kills_nothing(spoil: Callable[[Any], None]) -> None:
    maker = Maker()
    spoil(maker.layer(pruned(), by_value, FLOAT16).tensors[0].sparsity)
    with pytest.raises(ModelError, match="weight 'sparse' "):
        loading.float_model(maker.content())


def test_float16_values_between_ops_are_refused_still() -> None:
    maker = Maker()
    graph = maker.layer(pruned(), by_value, FLOAT16)
    half = maker.tensor(graph, "half", FLOAT16, (1, 4))
    maker.op(graph, "CAST", [int(graph.outputs[0])], [half])
    graph.outputs = np.array([half], dtype=np.int32)
    with pytest.raises(ModelError, match=r"'half' .*float16"):
        loading.float_model(maker.content())
