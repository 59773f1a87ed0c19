"""Finds the vendor's libraries that a compiler plugin of LiteRT loads; brings none, installs none, opens none.

Tells the versions of installed modules, too.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import itertools
import os
import platform
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from autoselect.compilers.work_folder import work_folder
from autoselect.errors import UsageError

QNN_VARIABLE = "AUTOSELECT_QNN_LIBS"
"""Environment variable: the folder of Qualcomm's libraries."""

_SDK_PACKAGE = "ai_edge_litert_sdk_qualcomm"
_WHEEL_PACKAGE = "onnxruntime_qnn"
_UNUSED = "libQnnLpai.so"
"""LiteRT's plugin loads it and uses nothing of it for these chips; onnxruntime-qnn lacks it."""

NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"Qualcomm": ("libQnnHtp.so", "libQnnSystem.so", "libQnnIr.so", "libQnnSaver.so", "libHtpPrepare.so", _UNUSED)}
)
"""By manufacturer, the libraries that LiteRT's plugin loads. Others' plugins find theirs by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """Where a vendor's libraries are.

    Attributes:
        folder: Theirs.
        beside: Folders of what they need themselves.
        origin: Who named the folder: the profile, the variable, or a package with its version.
        stood_in: Libraries that are not there, of which nothing is used; an empty one stands in for each.
    """

    folder: Path
    beside: tuple[Path, ...]
    origin: str
    stood_in: tuple[str, ...]

    @contextmanager
    def search_path(self) -> Iterator[str]:
        """The value of ``LD_LIBRARY_PATH`` for a process that loads them; what stands in is there while this lasts."""
        with work_folder("autoselect-libraries-") as folder:
            for library in self.stood_in:
                (folder / library).write_bytes(empty_library())
            before = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
            yield ":".join([str(self.folder), *map(str, self.beside), str(folder), *before])

    def versions(self) -> dict[str, str]:
        """What tells these libraries from others: who named them, and the size of each file."""
        sizes = [f.stat().st_size for f in sorted(self.folder.glob("lib*.so"))]
        return {"libraries": f"{self.origin}, {len(sizes)} files of {sum(sizes)} bytes"}


def find_libraries(manufacturer: str, named: str | None = None) -> Libraries | None:
    """Find a vendor's libraries; None for a vendor whose plugin finds them by itself, if the profile names no folder.

    They are looked for where the profile says, then where the environment variable says, then in the package
    ``ai_edge_litert_sdk_qualcomm``, then in the package ``onnxruntime_qnn``. The first of these that is there counts.

    Args:
        manufacturer: As LiteRT spells it.
        named: The folder that the target's profile names.

    Raises:
        UsageError: If none is there, or one lacks a file, with the command that brings it.
    """
    needed = NEEDED.get(manufacturer)
    if needed is None:
        return _only_named(manufacturer, _whole(named)) if named else None
    for origin, folder in _places(named):
        correct = _CORRECT.get(origin, "")
        if correct and not folder.is_dir():
            raise UsageError(
                f"The libraries of {manufacturer} are not there: {folder} ({origin}) is no folder. {correct}"
            )
        missing = [name for name in needed if not (folder / name).is_file()]
        if set(missing) - {_UNUSED}:
            raise UsageError(
                f"The libraries of {manufacturer} are incomplete: {folder} ({origin}) has no {', '.join(missing)}. "
                f"{correct}{_BRING}"
            )
        beside = folder.parent / f"{folder.name}.libs"
        return Libraries(
            folder=folder, beside=(beside,) if beside.is_dir() else (), origin=origin, stood_in=tuple(missing)
        )
    raise UsageError(f"The libraries of {manufacturer} are not there. {_BRING}")


def _only_named(manufacturer: str, folder: Path) -> Libraries:
    """The folder that the profile names, for a vendor whose library names are not known; its files are not checked."""
    if not folder.is_dir():
        raise UsageError(
            f"The libraries of {manufacturer} are not there: {folder} (the profile) is no folder. Change libraries in "
            "the profile, or leave it out if the system finds them."
        )
    return Libraries(folder=folder, beside=(), origin="the profile", stood_in=())


_BRING = (
    "Install one of: pip install ai-edge-litert-sdk-qualcomm, which downloads Qualcomm's SDK; "
    "pip install 'autoselect[qualcomm]' (Python 3.11 or newer). Or set "
    f"{QNN_VARIABLE} to the folder of your own. They are Qualcomm's, under a licence that comes with them."
)


_CORRECT = {
    "the profile": "Change libraries in the profile, or leave it out. ",
    QNN_VARIABLE: f"Change the variable {QNN_VARIABLE}. ",
}
"""For each who may name a folder, the sentence that says how to correct a wrong one."""


def _whole(path: str) -> Path:
    """A folder that somebody has named, as seen from anywhere; ~ is their home."""
    return Path(os.path.expanduser(path)).absolute()  # Path.expanduser raises if a user has no home.


def _places(named: str | None) -> Iterator[tuple[str, Path]]:
    """Who names a folder, and the folder."""
    if named:
        yield "the profile", _whole(named)
    if variable := os.environ.get(QNN_VARIABLE):
        yield QNN_VARIABLE, _whole(variable)
    if folder := _sdk_folder():
        yield _named(_SDK_PACKAGE), folder
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    for place in spec.submodule_search_locations or () if spec is not None else ():
        yield _named(_WHEEL_PACKAGE), Path(place)


def _sdk_folder() -> Path | None:
    """The folder of the installed SDK. A package whose download failed gives none, or the word None."""
    if importlib.util.find_spec(_SDK_PACKAGE) is None:
        return None
    path = importlib.import_module(_SDK_PACKAGE).path_to_sdk_libs()
    return None if path in (None, "", "None") else Path(str(path))


def _named(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def version_of(package: str, module: str) -> str:
    """Version of an installed module; nothing is imported.

    Args:
        package: Package that usually provides the module.
        module: The module, for which any other package is taken that provides it, such as a nightly build or one for a
            GPU.

    Returns:
        The package's version; ``"unknown"`` if no package provides the module.
    """
    for name in itertools.chain((package,), _packages_of(module)):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "unknown"


def _packages_of(module: str) -> Iterator[str]:
    """Looked up only where they are needed: that reads what is known of all installed packages."""
    yield from importlib.metadata.packages_distributions().get(module, ())


def empty_library() -> bytes:
    """A shared library for this machine's processor that defines nothing: an ELF file of one page.

    Layout: System V ABI, chapters "Object Files" and "Program Loading and Dynamic Linking".
    """
    machine = {"x86_64": 62, "aarch64": 183}.get(platform.machine(), 62)
    strings, symbols, table, dynamic = 0xB0, 0xB8, 0xD0, 0xE0
    entries = [(4, table), (5, strings), (6, symbols), (10, 1), (11, 24), (0, 0)]  # HASH STRTAB SYMTAB STRSZ SYMENT
    end = dynamic + 16 * len(entries)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 6, 0, 0, 0, end, end, 0x1000)
    link = struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, end - dynamic, end - dynamic, 8)
    content = (header + load + link).ljust(table, b"\0")
    content += struct.pack("<IIII", 1, 1, 0, 0)
    return content + b"".join(struct.pack("<QQ", *entry) for entry in entries)
