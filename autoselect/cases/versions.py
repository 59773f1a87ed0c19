"""What decides bytes and scores beside the ingredients: versions of packages, for cache keys and manifests."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Collection

from autoselect._version import __version__
from autoselect.domain.recipe import Quantizer
from autoselect.quantize.building.build import BUILDER_VERSION

_TENSORFLOW_BUILDS = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "intel-tensorflow")
_LITERT_BUILDS = ("ai-edge-litert", "ai-edge-litert-nightly")
DECIDE_BYTES = (*_TENSORFLOW_BUILDS, *_LITERT_BUILDS, "litert-quantizer")
"""Packages whose candidates and scores do not compare with those of another version of theirs."""


def versions(quantizer: Quantizer = "tensorflow", further: Collection[str] = ()) -> dict[str, str]:
    """Versions of all that affects candidates and scores; of another quantizer where that makes the integer model.

    Args:
        quantizer: Makes the integer model.
        further: Packages that count as well.
    """
    by_name = {"python": platform.python_version(), "autoselect": __version__, "builder": BUILDER_VERSION}
    maker = ("litert-quantizer",) if quantizer == "litert" else ()
    usual = ("ethos-u-vela", "numpy", "optuna", "scikit-learn")
    for name in (*_TENSORFLOW_BUILDS, *maker, *_LITERT_BUILDS, *usual, *further):
        try:
            by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return by_name


def content_hash(content: bytes) -> str:
    """SHA-256 of a model, hex."""
    return hashlib.sha256(content).hexdigest()
