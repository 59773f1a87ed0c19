"""Automated selective quantization for TensorFlow Lite / LiteRT.

Importing the package is light: TensorFlow, Optuna and matplotlib are loaded by what needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autoselect._version import __version__

if TYPE_CHECKING:
    from autoselect.api import (
        build,
        classification_report,
        demo,
        diagnose,
        evaluate,
        inspect,
        pick,
        resume,
        search,
        write_report,
    )
    from autoselect.diagnosis.result import Diagnosis, read_layer_statistics
    from autoselect.domain.recipe import Recipe
    from autoselect.errors import AutoselectError
    from autoselect.report.run import Run, load_run

_HOMES = {
    "build": "autoselect.api",
    "classification_report": "autoselect.api",
    "demo": "autoselect.api",
    "diagnose": "autoselect.api",
    "evaluate": "autoselect.api",
    "inspect": "autoselect.api",
    "pick": "autoselect.api",
    "resume": "autoselect.api",
    "search": "autoselect.api",
    "write_report": "autoselect.api",
    "Recipe": "autoselect.domain.recipe",
    "Diagnosis": "autoselect.diagnosis.result",
    "AutoselectError": "autoselect.errors",
    "Run": "autoselect.report.run",
    "load_run": "autoselect.report.run",
    "read_layer_statistics": "autoselect.diagnosis.result",
}

__all__ = [
    "AutoselectError",
    "Diagnosis",
    "Recipe",
    "Run",
    "__version__",
    "build",
    "classification_report",
    "demo",
    "diagnose",
    "evaluate",
    "inspect",
    "load_run",
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
