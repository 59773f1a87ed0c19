"""The benchmark's own files: out of a folder, or fetched into it; never another file than the one that is named."""

from __future__ import annotations

import hashlib
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ADDRESS = "https://raw.githubusercontent.com/mlcommons/tiny"
"""Under the Apache License 2.0."""
_NEWEST = "1afd2c9820f795965a6134facd0b4dfae41ef23f"
_IMAGES = "benchmark/training/image_classification/trained_models"
_SECONDS = 60.0


class AbsentError(Exception):
    """A file cannot be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Published:
    """Where a file lies in mlcommons/tiny, at which commit, and its SHA-256."""

    commit: str
    path: str
    sha256: str

    @property
    def url(self) -> str:
        """Of the bytes."""
        return f"{ADDRESS}/{self.commit}/{self.path}"


FILES = {
    Path(file.path).name: file
    for file in (
        Published(
            "6a8c9b1cd88227dc56687d37eaa3ec818f8f58fa",
            "v0.1/training/keyword_spotting/trained_models/aww_ref_model.tflite",
            "d408165ef64b8f05f1b7e92102e89064d849bd70ba5ac82e78429ba7ef761f02",
        ),
        Published(
            _NEWEST,
            "benchmark/training/keyword_spotting/trained_models/kws_ref_model.tflite",
            "aeea436800704fce17b17292e4412630ad856e9d777c044c64ef748a880bd0ae",
        ),
        Published(
            _NEWEST,
            f"{_IMAGES}/pretrainedResnet.tflite",
            "b5c0046d6e0328b4956afd6baa29555a29b1f1c65bdd45aaed75b7cd484d9f79",
        ),
        Published(
            _NEWEST,
            f"{_IMAGES}/pretrainedResnet_quant.tflite",
            "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
        ),
        Published(
            _NEWEST,
            f"{_IMAGES}/pretrainedResnet_large_float.tflite",
            "fb17ae9c1b6d0e5bd97f0f35024f207556261d7310b249716c87cc0628214b0e",
        ),
        Published(
            _NEWEST,
            f"{_IMAGES}/pretrainedResnet_large_int8.tflite",
            "dc27dcd823f5665533352f7da516b0c9bc6f089914b8283782e55961b3423fcf",
        ),
    )
}


def benchmark_file(folder: Path, name: str) -> Path:
    """One of :data:`FILES`, fetched if it is not in the folder.

    Raises:
        AbsentError: If it can be neither found nor fetched.
        ValueError: If what is there, or what came, is another file.
    """
    path, known = folder / name, FILES[name]
    if path.exists():
        _check(path.read_bytes(), known, str(path))
        return path
    try:
        with urllib.request.urlopen(known.url, timeout=_SECONDS) as reply:
            content = reply.read()
        _check(content, known, known.url)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as exc:
        raise AbsentError(f"{name} is not in {folder}, and {known.url} cannot be fetched there: {exc}") from exc
    return path


def _check(content: bytes, known: Published, source: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != known.sha256:
        raise ValueError(f"{source} has SHA-256 {found}, expected {known.sha256}: delete it, so that it is fetched")
