"""Run by the converter's Python, as a program: reads, runs and converts a model there. Imports nothing of autoselect.

``python child.py TASK REQUEST.json`` answers in ``reply.json`` beside the request. Its folder is its working directory,
and the user's file is only read.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_IMAGES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""Where onnx2tf 1 looks for images to compare on, before it downloads some."""
_PACKAGES = {
    "onnx": ("onnx2tf", "onnx", "onnxruntime", "onnxsim", "tensorflow", "ai-edge-litert"),
    "torch": ("litert-torch", "torch", "ai-edge-litert"),
}


def describe(request: dict[str, Any]) -> dict[str, Any]:
    """What a model asks for, hashed with all its files, and by which ways it can be converted here."""
    kind, path = request["kind"], Path(request["model"])
    description = _Onnx(path).described() if kind == "onnx" else _Torch(path).described()
    versions = {"python": platform.python_version()}
    for name in _PACKAGES[kind]:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**description, "versions": versions}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run the model on samples; keeps ``outputs.npz``, ``values.npz`` (of the first sample) and what is converted."""
    import numpy as np

    model = (_Onnx if request["kind"] == "onnx" else _Torch)(Path(request["model"]))
    with np.load("samples.npz") as stored:
        samples = [
            {name: stored[f"{place}/{number}"] for place, name in enumerate(request["inputs"])}
            for number in range(request["samples"])
        ]
    outputs, values = model.run(samples)
    flat = {f"{place}/{number}": row for number, rows in enumerate(outputs) for place, row in enumerate(rows)}
    np.savez("outputs.npz", **flat)
    names: list[str] = []
    # Values in between are kept up to this many bytes, to find nodes by.
    arrays, room = {}, 1 << 29
    for name, value in values.items():
        if value.dtype.kind == "f" and value.size > 1 and value.nbytes <= room:
            arrays[str(len(names))] = value
            names.append(name)
            room -= value.nbytes
    np.savez("values.npz", **arrays)
    return {"values": names, "nodes": model.nodes(), "note": model.prepare(samples[0])}


def convert(request: dict[str, Any]) -> dict[str, Any]:
    """Convert what :func:`run` prepared; answers with the path of the float ``.tflite``."""
    out = Path(request["out"])
    if request["kind"] == "torch":
        _Torch(Path(request["model"])).convert(out / "model_float32.tflite")
    else:
        import numpy as np
        import onnxruntime  # noqa: F401  # onnx2tf loads it late, and then its own libraries are in its way

        np.save(_IMAGES, np.random.default_rng(0).random((20, 128, 128, 3), np.float32))
        sys.argv = ["onnx2tf", "-i", "prepared.onnx", "-o", str(out), *request["options"]]
        try:
            runpy.run_module("onnx2tf", run_name="__main__")
        except SystemExit as exc:
            if exc.code:
                raise RuntimeError(f"onnx2tf ended with exit status {exc.code}") from exc
    paths = sorted(out.glob("*_float32.tflite"))
    if not paths:
        raise RuntimeError("the converter ended without an error, and wrote no float32 .tflite")
    return {"path": str(paths[0])}


class _Onnx:
    """An ONNX file, with what lies beside it."""

    def __init__(self, path: Path) -> None:
        import onnx

        self.path, self.model = path, onnx.load(str(path))

    def _inputs(self) -> list[Any]:
        held = {tensor.name for tensor in self.model.graph.initializer}
        return [value_info for value_info in self.model.graph.input if value_info.name not in held]

    def described(self) -> dict[str, Any]:
        import onnx2tf  # noqa: F401  # is missed here, before anything is done
        from onnx import helper

        graph, inputs = self.model.graph, []
        for value_info in self._inputs():
            kind = value_info.type.tensor_type
            sizes = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in kind.shape.dim]
            inputs.append(
                {"name": value_info.name, "sizes": sizes, "dtype": str(helper.tensor_dtype_to_np_dtype(kind.elem_type))}
            )
        ways: list[list[str]] = [[], ["-eru"]]
        has_backends = not importlib.metadata.version("onnx2tf").startswith("1.")
        if has_backends and importlib.util.find_spec("tensorflow") is not None:
            ways.append(["-tb", "tf_converter"])
        opset = {entry.domain or "ai.onnx": entry.version for entry in self.model.opset_import}
        others = [node for node in graph.node if node.domain not in ("", "ai.onnx")]
        foreign = [(node.domain, node.op_type, node.name or node.output[0]) for node in others]
        outputs = [output.name for output in graph.output]
        return {
            "digest": _digest([self.path, *self._beside()]),
            "inputs": inputs,
            "outputs": outputs,
            "ways": ways,
            "opset": opset,
            "foreign": foreign,
        }

    def _beside(self) -> list[Path]:
        import onnx

        names = set(_external_files(onnx.load(str(self.path), load_external_data=False)))
        return [self.path.parent / name for name in sorted(names)]

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"name": node.name or node.output[0], "op": node.op_type, "in": list(node.input), "out": list(node.output)}
            for node in self.model.graph.node
        ]

    def run(self, samples: list[dict[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
        for value_info in self._inputs():
            for dim, size in zip(value_info.type.tensor_type.shape.dim, samples[0][value_info.name].shape, strict=True):
                dim.dim_value = int(size)
        values = self._values(self.model, samples[0])
        session = _session(self.model)
        return [session.run(None, sample) for sample in samples], values

    def _values(self, model: Any, sample: dict[str, Any]) -> dict[str, Any]:
        """Every array that a model computes of a sample, by name; those of its outputs come first."""
        import onnx

        names = [output.name for output in model.graph.output]
        every = onnx.ModelProto()
        every.CopyFrom(model)
        for output in every.graph.output:
            output.ClearField("type")
        inner = [name for node in model.graph.node for name in node.output if name and name not in names]
        every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
        arrays = _session(every).run(None, sample)
        return {name: value for name, value in zip([*names, *inner], arrays, strict=True) if hasattr(value, "dtype")}

    def prepare(self, sample: dict[str, Any]) -> str:
        """Write ``prepared.onnx``: true shapes everywhere, and constants folded where the simplifier can do that."""
        import onnx

        note, model = "", self.model
        self._shaped(model, sample)
        try:
            import onnxsim

            simplified, _ = onnxsim.simplify(model)
            self._shaped(simplified, sample)
            model = simplified
        except Exception as exc:  # noqa: BLE001  # It is native code of another; the model is taken as it is.
            note = f"not simplified: {str(exc).splitlines()[:1]}"
        for node in model.graph.node:  # TensorFlow takes only these as the name of a scope.
            node.name = re.sub(r"^[^A-Za-z0-9.]|[^\w./>-]", "_", node.name, flags=re.ASCII)
        onnx.save(model, "prepared.onnx")
        return note

    def _shaped(self, model: Any, sample: dict[str, Any]) -> None:
        """Write the shapes and types that values have as the model runs."""
        from onnx import helper

        del model.graph.value_info[:]
        outputs = {output.name: output for output in model.graph.output}
        for name, value in self._values(model, sample).items():
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            info = helper.make_tensor_value_info(name, kind, value.shape)
            if name in outputs:
                outputs[name].CopyFrom(info)
            else:
                model.graph.value_info.append(info)


class _Torch:
    """A program of ``torch.export`` in a ``.pt2`` file."""

    def __init__(self, path: Path) -> None:
        import torch

        self.path, self.torch, self.program = path, torch, torch.export.load(str(path))

    def described(self) -> dict[str, Any]:
        import litert_torch  # noqa: F401  # is missed here, before anything is done

        inputs = [
            {
                "name": name,
                "sizes": [size if isinstance(size, int) else None for size in value.shape],  # A symbol is a free size.
                "dtype": str(value.dtype).removeprefix("torch."),
            }
            for name, value in self._inputs()
        ]
        outputs = list(map(str, self.program.graph_signature.user_outputs))
        return {"digest": _digest([self.path]), "inputs": inputs, "outputs": outputs, "ways": [[]], "foreign": []}

    def _inputs(self) -> list[tuple[str, Any]]:
        wanted = set(self.program.graph_signature.user_inputs)
        nodes = self.program.graph_module.graph.nodes
        return [(n.name, n.meta["val"]) for n in nodes if n.op == "placeholder" and n.name in wanted]

    def nodes(self) -> list[dict[str, Any]]:
        calls = []
        for node in self.program.graph_module.graph.nodes:
            if node.op == "call_function":
                op = str(getattr(node.target, "overloadpacket", node.target)).split(".")[-1]
                calls.append(
                    {
                        "name": self._module(node) or node.name,
                        "op": op,
                        "in": [n.name for n in node.all_input_nodes],
                        "out": [node.name],
                    }
                )
        return calls

    def _module(self, node: Any) -> str:
        """The innermost module that a node is of, as ``named_modules`` calls it."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        return str(stack[-1][0]).removeprefix("L['self'].") if stack else ""

    def run(self, samples: list[dict[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
        values: dict[str, Any] = {}
        torch, names = self.torch, [name for name, _ in self._inputs()]

        class Seeing(torch.fx.Interpreter):  # type: ignore[misc,name-defined]
            def run_node(self, n: Any) -> Any:
                output = super().run_node(n)
                if n.op == "call_function" and isinstance(output, torch.Tensor) and not values.get(n.name):
                    values[n.name] = output.detach().cpu().numpy()
                return output

        rows = [[torch.from_numpy(sample[name]) for name in names] for sample in samples]
        module = self._callable()
        with torch.no_grad():
            outputs = [_flat(module(*row)) for row in rows]
            flat = self.program.graph_signature
            state = {**dict(self.program.state_dict), **dict(self.program.constants)}
            given = iter(rows[0])
            bound = {**flat.inputs_to_parameters, **flat.inputs_to_buffers, **flat.inputs_to_lifted_tensor_constants}
            holders = [n.name for n in self.program.graph_module.graph.nodes if n.op == "placeholder"]
            args = [state[bound[name]] if name in bound else next(given) for name in holders]
            Seeing(self.program.graph_module).run(*args)
        return outputs, values

    def _callable(self) -> Any:
        """The program, to be called with its tensors in order, also if it takes them by name or beside constants."""
        from torch.utils import _pytree

        module, spec = self.program.module(), self.program.call_spec.in_spec
        given = [entry.arg for entry in self.program.graph_signature.input_specs if entry.kind.name == "USER_INPUT"]
        if spec == _pytree.tree_flatten((tuple(given), {}))[1]:
            return module

        class Flat(self.torch.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.inner = module
                self.training = False  # An exported module has no train() or eval().

            def forward(self, *tensors: Any) -> Any:
                rest = iter(tensors)
                leaves = [arg.value if hasattr(arg, "value") else next(rest) for arg in given]
                args, options = _pytree.tree_unflatten(leaves, spec)
                return self.inner(*args, **options)

        return Flat()

    def prepare(self, sample: dict[str, Any]) -> str:
        self.torch.save([self.torch.from_numpy(sample[name]) for name, _ in self._inputs()], "sample.pt")
        return ""

    def convert(self, path: Path) -> None:
        import litert_torch

        args = tuple(self.torch.load("sample.pt"))
        module = self._callable()
        images = [place for place, tensor in enumerate(args) if tensor.dim() == 4]
        if images:
            module = litert_torch.to_channel_last_io(module, args=images)
            args = tuple(tensor.permute(0, 2, 3, 1).contiguous() if tensor.dim() == 4 else tensor for tensor in args)
        path.parent.mkdir(parents=True, exist_ok=True)
        litert_torch.convert(module, args, strict_export=False).export(str(path))


def _flat(output: Any) -> list[Any]:
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return [array for part in output for array in _flat(part)]
    return [output.detach().cpu().numpy()]


def _external_files(message: Any) -> Iterator[str]:
    """Names of the files that hold tensors of a part of a model: initializers, attributes, subgraphs, functions."""
    import onnx

    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _external_files(part)
    if isinstance(message, onnx.TensorProto):
        yield from (entry.value for entry in message.external_data if entry.key == "location")


def _session(model: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _digest(paths: Iterable[Path]) -> str:
    hasher = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                hasher.update(block)
    return hasher.hexdigest()


def _main(task: str, request: str) -> int:
    here = Path(__file__).resolve().parent
    sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != here]
    path = Path(request).resolve()
    os.chdir(path.parent)
    tasks = {"describe": describe, "run": run, "convert": convert}
    try:
        reply = tasks[task](json.loads(path.read_text(encoding="utf-8")))
    except ImportError as exc:
        reply = {"missing": exc.name or str(exc), "error": str(exc)}
    except Exception as exc:  # noqa: BLE001  # All that a converter raises is told by the caller.
        import traceback

        traceback.print_exc()
        reply = {"error": f"{type(exc).__name__}: {exc}"}
    Path("reply.json").write_text(json.dumps(reply), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
