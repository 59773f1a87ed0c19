"""A converter in a Python of its own: what it is asked, and its errors in the user's words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from autoselect.domain.tensors import TensorSpec
from autoselect.domain.words import listed
from autoselect.errors import ModelError, PreparationError, UsageError, sentence
from autoselect.isolation.tether import run_tethered
from autoselect.sources.converters.kinds import Kind
from autoselect.sources.wishes import FreeInput

VARIABLE = "AUTOSELECT_CONVERTER_PYTHON"
LOG = "converter.log"
_CHILD = Path(__file__).with_name("child.py")
_TOOLS: Mapping[Kind, tuple[str, str, str]] = {
    "onnx": ("an ONNX model", "onnx2tf", "python3.12 -m venv converter && converter/bin/pip install onnx2tf==2.6.9"),
    "torch": (
        "a PyTorch program",
        "litert-torch",
        "python3.11 -m venv converter && converter/bin/pip install litert-torch==0.10.0",
    ),
}
"""What is converted, by which package, and a command that installs it in an environment of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A source as its own framework reads it.

    Attributes:
        digest: SHA-256 of the file and of all files that it names, hex.
        inputs: With their free sizes, in the source's layout.
        dtypes: Of the inputs.
        outputs: Names.
        ways: Options of the converter, in the order in which they are tried.
        versions: Of the converter and what it works with, by package.
        foreign: Domain, type and name of nodes that are none of the format's own.
        opset: Version by domain.
    """

    digest: str
    inputs: tuple[FreeInput, ...]
    dtypes: tuple[str, ...]
    outputs: tuple[str, ...]
    ways: tuple[tuple[str, ...], ...]
    versions: Mapping[str, str]
    foreign: tuple[tuple[str, str, str], ...]
    opset: Mapping[str, int]

    def specs(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[TensorSpec, ...]:
        """The inputs with these shapes; samples with channels last are turned to the source's layout."""
        return tuple(
            TensorSpec(
                name=spec.key,
                key=spec.key,
                shape=shapes[spec.key],
                dtype=np.dtype(dtype),
                turned=channels_first(len(spec.sizes)),
            )
            for spec, dtype in zip(self.inputs, self.dtypes, strict=True)
        )


def channels_first(ndim: int) -> tuple[int, ...] | None:
    """The permutation from channels last to channels first; None if there is no space between batch and channels."""
    return (0, ndim - 1, *range(1, ndim - 1)) if ndim > 2 else None


def channels_last(ndim: int) -> tuple[int, ...] | None:
    """The permutation from channels first to channels last, likewise."""
    return (0, *range(2, ndim), 1) if ndim > 2 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Converter:
    """The Python that converts a model.

    Attributes:
        kind: Of the model.
        source: The model; it is only read.
        python: Path or name of the interpreter; None for that of ``AUTOSELECT_CONVERTER_PYTHON``, else
            autoselect's own.
        folder: Where it works; what it prints is added to ``converter.log`` there.
        timeout_seconds: For each thing that it is asked.
    """

    kind: Kind
    source: Path
    python: str | None
    folder: Path
    timeout_seconds: float

    def describe(self) -> Description:
        """Ask what the model is.

        Raises:
            UsageError: If there is no such Python, or it has no converter.
            ModelError: If the model cannot be read.
            PreparationError: If the process died or took too long.
        """
        reply = self._ask("describe", {})
        if "error" in reply:
            self._refuse(f"cannot be read: {sentence(reply['error'])} Export it again, and check it where it was made.")
        return Description(
            digest=reply["digest"],
            inputs=tuple(FreeInput(key=i["name"], name=i["name"], sizes=tuple(i["sizes"])) for i in reply["inputs"]),
            dtypes=tuple(i["dtype"] for i in reply["inputs"]),
            outputs=tuple(reply["outputs"]),
            ways=tuple(map(tuple, reply["ways"])),
            versions=reply["versions"],
            foreign=tuple(map(tuple, reply["foreign"])),
            opset=reply.get("opset", {}),
        )

    def run(self, description: Description, samples: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
        """Run the model on samples in its own framework, and prepare it to be converted.

        Returns:
            ``nodes`` of the model, and ``values``: names of what ``values.npz`` holds, in order.

        Raises:
            ModelError: If it cannot run.
            PreparationError: As :meth:`describe`.
        """
        names = [spec.key for spec in description.inputs]
        flat = {f"{place}/{n}": sample[name] for n, sample in enumerate(samples) for place, name in enumerate(names)}
        np.savez(self.folder / "samples.npz", **flat)  # type: ignore[arg-type]  # numpy's stub knows no names
        reply = self._ask("run", {"inputs": names, "samples": len(samples)})
        if "error" in reply:
            self._refuse(f"cannot run: {sentence(reply['error'])} {_advice(description)}")
        return reply

    def convert(self, options: Sequence[str], out: Path) -> Path | str:
        """Convert what was prepared.

        Returns:
            The float ``.tflite``; or why there is none.
        """
        out.mkdir(parents=True, exist_ok=True)
        reply = self._ask("convert", {"options": list(options), "out": str(out)})
        return reply["error"] if "error" in reply else Path(reply["path"])

    def refuse_all(self, description: Description, why: Mapping[str, str]) -> NoReturn:
        """Tell that no way led to a model.

        Raises:
            ModelError: Always.
        """
        ways = {reason: [f"{self.tool}{way}" for way in why if why[way] == reason] for reason in why.values()}
        reasons = " ".join(f"{listed(same)}: {sentence(reason)}" for reason, same in ways.items())
        self._refuse(f"cannot be converted. {reasons} {_advice(description)}")

    @property
    def tool(self) -> str:
        """The package that converts."""
        return _TOOLS[self.kind][1]

    def _refuse(self, what: str) -> NoReturn:
        raise ModelError(f"The model {self.source.name} {what} The converter's log: {self.folder / LOG}")

    def _ask(self, task: str, request: dict[str, Any]) -> dict[str, Any]:
        python = self._python()
        self.folder.mkdir(parents=True, exist_ok=True)
        asked, reply = self.folder / "request.json", self.folder / "reply.json"
        reply.unlink(missing_ok=True)
        asked.write_text(json.dumps({"kind": self.kind, "model": str(self.source), **request}), encoding="utf-8")
        try:
            done = run_tethered([python, str(_CHILD), task, str(asked)], timeout_seconds=self.timeout_seconds)
        except subprocess.TimeoutExpired as exc:
            raise PreparationError(
                f"Converting {self.source.name} took more than {self.timeout_seconds:.0f} s ({self.tool}). "
                "Give it more time with --trial-timeout."
            ) from exc
        with (self.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"--- {task} {request.get('options', '')}\n{done.stdout}{done.stderr}\n")
        try:
            answer: dict[str, Any] = json.loads(reply.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
            answer = {"error": f"the process ended with exit status {done.returncode}: {last}"}
        if "missing" in answer:
            self._refuse_missing(python, str(answer["missing"]), str(answer["error"]))
        return answer

    def _python(self) -> str:
        wanted = self.python or os.environ.get(VARIABLE) or sys.executable
        interpreter = shutil.which(wanted)
        if interpreter is None:
            raise UsageError(
                f"--converter-python (or {VARIABLE}): there is no Python at {wanted}. Name the interpreter of "
                "the environment that has the converter, such as converter/bin/python."
            )
        return interpreter

    def _refuse_missing(self, python: str, missing: str, error: str) -> NoReturn:
        what, tool, command = _TOOLS[self.kind]
        raise UsageError(
            f"Converting {what} needs {tool}, and {python} does not have {missing} ({error}). Install it beside "
            f"autoselect: pip install 'autoselect[{self.kind}]'. Or in an environment of its own: {command}. Then name "
            f"it: --converter-python converter/bin/python, or {VARIABLE} for commands without this option."
        )


def _advice(description: Description) -> str:
    # The newest opset that was tried with onnx2tf.
    newest_opset = 21
    if description.foreign:
        named = listed([f"{kind} ({domain}) at node {name!r}" for domain, kind, name in description.foreign[:3]])
        more = len(description.foreign) - 3
        return (
            f"It has ops that are none of ONNX's own: {named}{f' and {more} more' if more > 0 else ''}. "
            "Export it without them, or cut the model before them."
        )
    if (opset := description.opset.get("ai.onnx", 0)) > newest_opset:
        return f"Its opset is {opset}: export it with opset {newest_opset} or lower."
    settings = "an older opset, fixed sizes" if description.opset else "fixed sizes"  # A program of PyTorch has none.
    return f"Export it with other settings ({settings}), or convert it yourself and pass the .tflite."
