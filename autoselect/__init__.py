"""Automated selective quantization for TensorFlow Lite / LiteRT.

Importing the package is light: TensorFlow, Optuna and matplotlib are loaded by what needs them. What goes on is logged
under the name ``autoselect``; nothing is printed unless the program sets up a handler.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from autoselect._version import __version__

if TYPE_CHECKING:
    from autoselect.api.benchmarking import benchmark
    from autoselect.api.compiling import compile_model
    from autoselect.api.diagnosing import diagnose
    from autoselect.api.evaluating import classification_report, evaluate
    from autoselect.api.merging import compare, merge
    from autoselect.api.models import build, inspect, pick
    from autoselect.api.reporting import write_report
    from autoselect.api.run import Run, load_run
    from autoselect.api.searching import check, demo, resume, search
    from autoselect.api.workers import keep_workers
    from autoselect.diagnosis.result import Diagnosis, read_layer_statistics
    from autoselect.domain.recipe import Recipe
    from autoselect.errors import AutoselectError
    from autoselect.scoring.evaluator_parts import Parts

_HOMES = {
    "benchmark": "autoselect.api.benchmarking",
    "build": "autoselect.api.models",
    "check": "autoselect.api.searching",
    "classification_report": "autoselect.api.evaluating",
    "compare": "autoselect.api.merging",
    "compile_model": "autoselect.api.compiling",
    "demo": "autoselect.api.searching",
    "diagnose": "autoselect.api.diagnosing",
    "evaluate": "autoselect.api.evaluating",
    "inspect": "autoselect.api.models",
    "keep_workers": "autoselect.api.workers",
    "merge": "autoselect.api.merging",
    "pick": "autoselect.api.models",
    "resume": "autoselect.api.searching",
    "search": "autoselect.api.searching",
    "write_report": "autoselect.api.reporting",
    "Parts": "autoselect.scoring.evaluator_parts",
    "Recipe": "autoselect.domain.recipe",
    "Diagnosis": "autoselect.diagnosis.result",
    "AutoselectError": "autoselect.errors",
    "Run": "autoselect.api.run",
    "load_run": "autoselect.api.run",
    "read_layer_statistics": "autoselect.diagnosis.result",
}

logging.getLogger("autoselect").addHandler(logging.NullHandler())

__all__ = [
    "AutoselectError",
    "Diagnosis",
    "Parts",
    "Recipe",
    "Run",
    "__version__",
    "benchmark",
    "build",
    "check",
    "classification_report",
    "compare",
    "compile_model",
    "demo",
    "diagnose",
    "evaluate",
    "inspect",
    "keep_workers",
    "load_run",
    "merge",
    "pick",
    "read_layer_statistics",
    "resume",
    "search",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'autoselect' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
