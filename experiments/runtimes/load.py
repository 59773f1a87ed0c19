"""Loads and runs the models of a folder with the interpreter that is installed, LiteRT's or else TensorFlow's.

Prints JSON: the runtime, and by file why it does not run, empty if it does. Needs nothing of autoselect, so that any
environment can run it.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("ai-edge-litert", "tensorflow", "tensorflow-cpu")
try:
    from ai_edge_litert.interpreter import Interpreter
except ImportError:
    from tensorflow.lite.python.interpreter import Interpreter

    PACKAGES = PACKAGES[1:]


def why(path: str) -> str:
    """Why a model does not run on zeros; empty if it does."""
    try:
        interpreter = Interpreter(model_path=path)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], 0 * interpreter.get_tensor(detail["index"]))
        interpreter.invoke()
    except (RuntimeError, ValueError) as exc:
        told = [line for line in str(exc).strip().splitlines() if "Registration failed" not in line]
        return re.sub(r"(Node number )\d+ |\S*/|:\d+", "", told[-1])
    return ""


def installed() -> str:
    """The package whose interpreter this is."""
    for package in PACKAGES:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return "unknown"


if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).glob("*.tflite"))
    print(json.dumps({"runtime": installed(), "why": {file.name: why(str(file)) for file in files}}))
