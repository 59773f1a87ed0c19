"""AIMET's automatic mixed precision of an ONNX model: which layers it gives back to float within a limit.

Runs in an environment of its own (aimet-onnx); it does not import autoselect.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import aimet_onnx
import numpy as np
import onnx
from aimet_onnx.common.defs import CallbackFunc, QuantizationDataType
from aimet_onnx.mixed_precision import choose_mixed_precision
from peer import add_limit, asking, write_note

INT8, FLOAT = (
    ((bits, kind), (bits, kind)) for bits, kind in ((8, QuantizationDataType.int), (16, QuantizationDataType.float))
)
"""Candidates: bits and kind of activations, then of weights. AIMET has no wider float."""
WEIGHTED = ("Conv", "Gemm", "MatMul")
POOLS = ("ReduceMean", "GlobalAveragePool", "AveragePool")
PASSED_THROUGH = ("Transpose", "Reshape", "Pad", "Squeeze", "Unsqueeze", "Flatten", "Identity")
"""Ops that move values without computing: an input quantized before one of these is quantized."""
PACKAGES = ("aimet-onnx", "onnx", "onnxruntime", "torch", "numpy")


class Hits:
    """Share of right answers; counts the samples that ran."""

    def __init__(self, samples: np.ndarray, labels: np.ndarray) -> None:
        self.samples, self.labels, self.samples_run = samples, labels, 0

    def __call__(self, session: Any, _: Any = None) -> float:
        """Score a model on all samples."""
        self.samples_run += len(self.samples)
        return float((answers(session, self.samples) == self.labels).mean())


def answers(session: Any, samples: np.ndarray) -> np.ndarray:
    """Classes, shape (n_samples,)."""
    name = session.get_inputs()[0].name
    return np.array([session.run(None, {name: sample[None]})[0].argmax() for sample in samples])


def in_int8(sim: Any) -> list[bool]:
    """Of convolutions, dense layers and means in the order of the graph, whether input and weights are in int8."""
    nodes = sim.model.model.graph.node
    makers = {node.output[0]: node for node in nodes}

    def is_int8(tensor: str) -> bool:
        node = makers.get(tensor)
        while node is not None and node.op_type in PASSED_THROUGH:
            node = makers.get(node.input[0])
        quantizer = sim.qc_quantize_op_dict[node.input[0]] if node and node.op_type == "QcQuantizeOp" else None
        return bool(
            quantizer
            and quantizer.enabled
            and quantizer.data_type == QuantizationDataType.int
            and quantizer.bitwidth == 8
        )

    return [
        all(map(is_int8, node.input[: 2 if node.op_type in WEIGHTED else 1]))
        for node in nodes
        if node.op_type in (*WEIGHTED, *POOLS)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run AMP and write which layers are in int8, what the model answers, and what that took."""
    parser = asking(__doc__, "The .onnx file.")
    add_limit(parser)
    options = parser.parse_args(arguments)
    parts = {path.stem: np.load(path, mmap_mode="r") for path in options.samples.glob("*.npy")}
    hits = Hits(parts["search"], parts["search_labels"])
    sim = aimet_onnx.QuantizationSimModel(onnx.load(options.model), param_type="int8", activation_type="int8")

    def calibrate(session: Any, _: Any = None) -> None:
        answers(session, parts["calibration"])

    with tempfile.TemporaryDirectory() as folder:
        choose_mixed_precision(
            sim,
            [FLOAT, INT8],
            CallbackFunc(hits),
            CallbackFunc(hits),
            allowed_accuracy_drop=options.max_drop,
            results_dir=folder,
            clean_start=True,
            forward_pass_callback=CallbackFunc(calibrate),
        )
    write_note(
        options.output,
        PACKAGES,
        choose_mixed_precision,
        gives="ONNX with encodings",
        samples_run=hits.samples_run,
        int8=in_int8(sim),
        **{part: answers(sim.session, parts[part]).tolist() for part in ("search", "heldout")},
    )


if __name__ == "__main__":
    main()
