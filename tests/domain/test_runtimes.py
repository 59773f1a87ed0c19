"""Which runtimes load a model, by what its ops read and write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from reviewing import Reviewed

from autoselect.domain.graph import Graph, Op, OpKind, Tensor
from autoselect.domain.runtimes import needs_of, read_runtime, why_refused
from autoselect.errors import UsageError


def graph(*ops: tuple[str, str, str]) -> Graph:
    """Ops side by side: type, what each reads, what it writes."""
    dtypes = [dtype for _, reads, writes in ops for dtype in (reads, writes)]
    tensors = tuple(
        Tensor(name=f"t{i}", dtype=dtype, shape=(1,), is_constant=False, size_bytes=1) for i, dtype in enumerate(dtypes)
    )
    made = tuple(
        Op(op_type=op_type, kind=OpKind.INTEGER, inputs=(2 * i,), constants=(), outputs=(2 * i + 1,), macs=0)
        for i, (op_type, _, _) in enumerate(ops)
    )
    ends = range(0, 2 * len(ops), 2)
    return Graph(tensors=tensors, ops=made, inputs=tuple(ends), outputs=tuple(i + 1 for i in ends))


TO_16 = ("QUANTIZE", "int8", "int16")
NEEDS = {
    "eight bits alone": ([("CONV_2D", "int8", "int8")], "2.1.0", "2.19", ""),
    "16 bits alone": ([("CONV_2D", "int16", "int16")], "2.1.0", "2.19", ""),
    "from 16 to 8 bits": ([("QUANTIZE", "int16", "int8")], "2.1.0", "2.19", ""),
    "from 8 to 16 bits": (
        [TO_16, ("QUANTIZE", "int16", "int8"), TO_16],
        "2.1.3",
        "",
        "QUANTIZE from int8 to int16 (2)",
    ),
    "a root in 8 bits": ([("SQRT", "int8", "int8")], "2.1.0", "2.21", "SQRT of int8 (1)"),
    "a root in float": ([("SQRT", "float32", "float32")], "2.1.0", "2.19", ""),
    "the newest of several": (
        [("SQRT", "int8", "int8"), ("GELU", "int16", "int16")],
        "2.1.0",
        "2.21",
        "GELU of int16 (1), SQRT of int8 (1)",
    ),
    "one that no TensorFlow has": (
        [("GELU", "int16", "int16"), ("TILE", "int16", "int16")],
        "2.1.3",
        "",
        "TILE of int16 (1), GELU of int16 (1)",
    ),
}


@pytest.mark.parametrize(("ops", "litert", "tensorflow", "because"), NEEDS.values(), ids=NEEDS)
def test_what_a_model_needs(ops: Sequence[tuple[str, str, str]], litert: str, tensorflow: str, because: str) -> None:
    assert needs_of(graph(*ops)) == {"litert": litert, "tensorflow": tensorflow, "because": because}


REFUSED = {
    "2.1.0": "LiteRT 2.1.0 has no QUANTIZE from int8 to int16, which computes 't1'",
    "litert-2.1.2": "LiteRT 2.1.2 has no QUANTIZE from int8 to int16, which computes 't1'",
    "2.1.3": None,
    "2.10.0": None,
    "tensorflow": "TensorFlow 2.19 has no QUANTIZE from int8 to int16, which computes 't1'",
    "TensorFlow-2.21": "TensorFlow 2.21 has no QUANTIZE from int8 to int16, which computes 't1'",
}


@pytest.mark.parametrize(("runtime", "why"), REFUSED.items(), ids=REFUSED)
def test_what_a_runtime_refuses(runtime: str, why: str | None) -> None:
    mixed = graph(TO_16)
    assert why_refused(mixed, read_runtime(runtime)) == why
    assert why_refused(mixed, None) is None


@pytest.mark.parametrize(
    ("runtime", "words"),
    [("litert", "expected a version of LiteRT such as 2.1.0"), ("1.4.0", "oldest that were tried are LiteRT 2.1.0")],
)
def test_what_is_no_runtime_is_refused(runtime: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_runtime(runtime)


def test_why_an_op_is_lacking(reviewed: Reviewed) -> None:
    assert read_runtime("tensorflow-2.20").why_not("GELU", "int16") is None
    lacking = [("tensorflow-2.20", "SQRT", "int8"), ("2.1.0", "TILE", "int16")]
    reviewed("ops that a runtime lacks", [str(read_runtime(name).why_not(*op)) for name, *op in lacking])
