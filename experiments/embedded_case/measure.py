"""Measures what full-integer quantization costs the embedded case, node by node; prints Markdown tables."""

import contextlib
import io
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from litert_quantizer import quantizer, recipe
from tensorflow.lite.python.convert import mlir_quantize
from tensorflow.lite.python.optimize.calibrator import Calibrator, add_intermediate_tensors

from autoselect.embedded import CHANNEL_NAMES, calibration, heldout_samples, make_windows, model_bytes, search_samples
from autoselect.embedded.data import CALIBRATION_COUNT

OTHER_CALIBRATION_SEEDS = range(200, 206)
Samples = Sequence[tuple[np.ndarray, int]]

# Parts of the output names of the nodes that a person leaves out of FIQ after reading the node table.
HAND_FOUND = {
    "FIQ without the SUB": ("normalization_1/Sub",),
    "FIQ without SUB, energy MUL, pool, BN MUL": (
        "normalization_1/Sub",
        "energy_1/Mul",
        "energy_pool_1/AvgPool",
        "energy_bn_1/batchnorm/mul_1",
    ),
    "mixed, filterbank int8": (
        "normalization_1/",
        "energy_1/Mul",
        "energy_pool_1/AvgPool",
        "energy_bn_1/batchnorm/",
    ),
    "mixed, whole front end": (
        "normalization_1/",
        "filterbank_1/",
        "energy_1/",
        "energy_pool_1/",
        "energy_bn_1/",
    ),
}
CROSSINGS = ("QUANTIZE", "DEQUANTIZE")
PACKAGES = ("tensorflow", "keras", "ai-edge-litert", "litert-quantizer", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One op of a flatbuffer.

    Attributes:
        op: Type, such as ``CONV_2D``.
        name: Name of its first output.
        macs: Multiply-accumulates for one window; 0 for ops other than convolutions and dense layers.
        is_int8: Whether it reads and writes int8.
        output_index: Tensor index of its first output.
        output_step: Quantization scale of its first output, 0 when that is float.
    """

    op: str
    name: str
    macs: int
    is_int8: bool
    output_index: int
    output_step: float


def main() -> None:
    """Print every table, then the speed."""
    float_model = model_bytes()
    calibrated = Calibrator(add_intermediate_tensors(float_model)).calibrate(calibration)
    names = [node.name for node in nodes_of(float_model)]
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES), end="\n\n")
    print_models(float_model, calibrated, names)
    print_nodes(float_model, calibrated)
    print_channels(mlir_quantize(calibrated))
    print_calibration_sets(float_model, names)
    print_speed(float_model, mlir_quantize(calibrated))


def print_models(float_model: bytes, calibrated: bytes, names: Sequence[str]) -> None:
    """Print one row for each whole-model recipe and each hand-found denylist."""
    search, heldout = list(search_samples()), list(heldout_samples())
    models = {"float": float_model, "DRQ": drq(float_model), "FIQ": mlir_quantize(calibrated)}
    for title, parts in HAND_FOUND.items():
        models[title] = mlir_quantize(calibrated, denylisted_nodes=matching(names, parts))
    models["mixed, whole front end, remainder DRQ"] = drq(models["mixed, whole front end"])
    print("| model | search % | held-out % | bytes | QUANTIZE + DEQUANTIZE | int8 MACs % |")
    print("|---|---|---|---|---|---|")
    for title, content in models.items():
        accuracies = f"{accuracy_percent(content, search):.1f} | {accuracy_percent(content, heldout):.2f}"
        nodes = nodes_of(content)
        crossings = sum(node.op in CROSSINGS for node in nodes)
        print(f"| {title} | {accuracies} | {len(content)} | {crossings} | {int8_mac_percent(nodes):.1f} |")
    print()


def print_nodes(float_model: bytes, calibrated: bytes) -> None:
    """Print each node's int8 step beside its typical output, and its effect alone on search accuracy."""
    search, nodes = list(search_samples()), nodes_of(float_model)
    names = {node.name for node in nodes}
    quantized = [node for node in nodes_of(mlir_quantize(calibrated)) if node.op not in CROSSINGS]
    print("| op | output | MACs | median abs output | FIQ step | alone float % | alone quantized % |")
    print("|---|---|---|---|---|---|---|")
    for node, twin, median in zip(nodes, quantized, median_magnitudes(float_model, nodes), strict=True):
        alone_float = accuracy_percent(mlir_quantize(calibrated, denylisted_nodes={node.name}), search)
        others = names - {node.name}
        alone_int8 = accuracy_percent(mlir_quantize(calibrated, denylisted_nodes=others), search)
        label = node.name.split(";")[0].removeprefix("pump_monitor_1/")
        ranges = f"{median:.3g} | {twin.output_step:.3g}"
        print(f"| {node.op} | {label} | {node.macs} | {ranges} | {alone_float:.1f} | {alone_int8:.1f} |")
    print()


def print_channels(fiq_model: bytes) -> None:
    """Print the spread of each sensor within a window beside the step that FIQ gives to all of them."""
    windows = np.stack([window for window, _ in search_samples()])
    spreads = np.median(windows.std(axis=1), axis=(0, 1))
    print(f"FIQ step of the input: {nodes_of(fiq_model)[0].output_step:.3g}; median spread within a window:")
    print(
        ", ".join(f"{name} {spread:.3g}" for name, spread in zip(CHANNEL_NAMES, spreads, strict=True)),
        end="\n\n",
    )


def print_calibration_sets(float_model: bytes, names: Sequence[str]) -> None:
    """Print the held-out accuracy of FIQ and of the mixed model after calibration on other windows."""
    heldout = list(heldout_samples())
    denylisted = matching(names, HAND_FOUND["mixed, whole front end"])
    print("| calibration seed | FIQ, held-out % | mixed, whole front end, held-out % |")
    print("|---|---|---|")
    for seed in OTHER_CALIBRATION_SEEDS:
        windows, _ = make_windows(np.random.Generator(np.random.PCG64(seed)), CALIBRATION_COUNT)
        dataset = [[window[np.newaxis]] for window in windows]
        calibrated = Calibrator(add_intermediate_tensors(float_model)).calibrate(lambda data=dataset: data)
        fiq = accuracy_percent(mlir_quantize(calibrated), heldout)
        mixed = accuracy_percent(mlir_quantize(calibrated, denylisted_nodes=denylisted), heldout)
        print(f"| {seed} | {fiq:.2f} | {mixed:.2f} |")
    print()


def print_speed(float_model: bytes, fiq_model: bytes) -> None:
    """Print the seconds for all search samples, one at a time on one thread."""
    search = list(search_samples())
    for title, content in (("float", float_model), ("FIQ", fiq_model)):
        start = time.perf_counter()
        accuracy_percent(content, search)
        seconds = time.perf_counter() - start
        print(f"{title}: {seconds:.3f} s for {len(search)} windows, one at a time, one thread")


def drq(content: bytes) -> bytes:
    """Return the model with its float convolutions and dense layers made dynamic-range (int8 weights)."""
    pass_over = quantizer.Quantizer(bytearray(content))
    pass_over.load_quantization_recipe(recipe.dynamic_wi8_afp32())
    with contextlib.redirect_stdout(io.StringIO()):  # It prints a summary between the tables.
        return bytes(pass_over.quantize().quantized_model)


def matching(names: Iterable[str], parts: Sequence[str]) -> set[str]:
    """Return the names whose first fused name holds one of the parts.

    Raises:
        ValueError: If a part is in no name; the converter would ignore it in silence.
    """
    found = {part: {name for name in names if part in name.split(";")[0]} for part in parts}
    missing = [part for part, hits in found.items() if not hits]
    if missing:
        raise ValueError(f"no node of the model has {missing} in its name: was the model retrained?")
    return set().union(*found.values())


def accuracy_percent(content: bytes, samples: Samples) -> float:
    """Return the share of samples classified rightly, run one at a time on one thread, in percent."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    target = interpreter.get_output_details()[0]["index"]
    right = 0
    for window, label in samples:
        interpreter.set_tensor(source, window[np.newaxis])
        interpreter.invoke()
        right += int(np.argmax(interpreter.get_tensor(target)[0])) == label
    return 100.0 * right / len(samples)


def nodes_of(content: bytes) -> list[Node]:
    """Return the ops of a flatbuffer in execution order."""
    without_delegates = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # A delegate would hide the ops.
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=without_delegates)
    tensors = {tensor["index"]: tensor for tensor in interpreter.get_tensor_details()}
    nodes = []
    for op in interpreter._get_ops_details():  # There is no public list of ops.
        inputs, output = [tensors[index] for index in op["inputs"] if index >= 0], tensors[op["outputs"][0]]
        is_int8 = inputs[0]["dtype"] is np.int8 and output["dtype"] is np.int8
        macs = macs_of(op["op_name"], inputs, output)
        nodes.append(
            Node(
                op=op["op_name"],
                name=output["name"],
                macs=macs,
                is_int8=is_int8,
                output_index=output["index"],
                output_step=output["quantization"][0],
            )
        )
    return nodes


def median_magnitudes(content: bytes, nodes: Sequence[Node]) -> list[float]:
    """Return the median absolute output of each node over the calibration windows."""
    interpreter = Interpreter(model_content=content, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    outputs: list[list[np.ndarray]] = [[] for _ in nodes]
    for (window,) in calibration():
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], window)
        interpreter.invoke()
        for kept, node in zip(outputs, nodes, strict=True):
            kept.append(np.abs(interpreter.get_tensor(node.output_index)))
    return [float(np.median(np.stack(kept))) for kept in outputs]


def macs_of(op: str, inputs: Sequence[dict[str, np.ndarray]], output: dict[str, np.ndarray]) -> int:
    """Return the multiply-accumulates of a convolution or dense layer for one window, 0 for any other op."""
    if op not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return 0
    weights = inputs[1]["shape"]
    per_output = weights[1] * weights[2] if op == "DEPTHWISE_CONV_2D" else np.prod(weights[1:])
    return int(np.prod(output["shape"]) * per_output)


def int8_mac_percent(nodes: Sequence[Node]) -> float:
    """Return the share of multiply-accumulates done on int8 activations and weights, in percent."""
    return 100.0 * sum(node.macs for node in nodes if node.is_int8) / sum(node.macs for node in nodes)


if __name__ == "__main__":
    main()
