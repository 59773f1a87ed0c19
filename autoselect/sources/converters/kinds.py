"""Which models another Python converts: ONNX files and programs of ``torch.export``, known by what is in them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from autoselect.errors import ModelError
from autoselect.tflite import flatbuffer as fb

Kind = Literal["onnx", "torch"]

_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
"""Fields of an ONNX model, and the wire type of each: 0 for a number, 2 for bytes."""
_PROGRAMS = ("models/model.json", "serialized_exported_program.json")
_PROMISES = {
    ".onnx": "an ONNX model, or it is cut off:",
    **dict.fromkeys((".pt2", ".pt", ".pth"), "a program of torch.export, or it is cut off:"),
}
_ADVICE = (
    "Weights alone or TorchScript do not do. Make the module, then save its program: "
    "torch.export.save(torch.export.export(module.eval(), inputs), 'model.pt2').",
    "Export or copy it again, and check it with onnx.checker.",
)


def kind_of(source: Path | bytes) -> Kind | None:
    """What a file or its bytes hold; None for all that other parts of autoselect read.

    Raises:
        ModelError: If a file cannot be read, or its name says that it is such a model, and it is none.
    """
    if isinstance(source, Path) and not source.is_file():
        return None
    try:
        kind = _kind_in(source)
    except OSError as exc:
        called = "in memory" if isinstance(source, bytes) else str(source)
        raise ModelError(f"The model file {called} cannot be read: {exc.strerror}.") from exc
    if kind is None and isinstance(source, Path) and source.suffix in _PROMISES:
        _refuse_others(source)
    return kind


def _refuse_others(path: Path) -> None:
    with path.open("rb") as file:
        first = file.read(64)
    if first[4:8] != fb.FILE_IDENTIFIER and not first.startswith(fb.LFS_POINTER):
        raise ModelError(
            f"{path.name} is not {_PROMISES[path.suffix]} it has {path.stat().st_size} bytes and begins with "
            f"{first[:12]!r}. {_ADVICE[path.suffix == '.onnx']}"
        )


def _kind_in(source: Path | bytes) -> Kind | None:
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                return "torch" if any(name.endswith(_PROGRAMS) for name in archive.namelist()) else None
        file.seek(0)
        return "onnx" if _is_onnx(file, size) else None


def _is_onnx(file: io.BufferedIOBase, size: int) -> bool:
    """Whether the fields of a message follow each other to the end, are those of a model, and hold a graph."""
    seen = set()
    while file.tell() < size:
        tag = _number(file)
        field, wire = tag >> 3, tag & 7
        if _FIELDS.get(field) != wire:
            return False
        value = _number(file)
        if value < 0 or (wire and file.seek(value, io.SEEK_CUR) > size):
            return False
        seen.add(field)
    version, graph = 1, 7
    return {version, graph} <= seen


def _number(file: io.BufferedIOBase) -> int:
    """A number of seven bits a byte, the lowest first; -1 at the end of the file."""
    number = 0
    for place, byte in enumerate(_bytes(file)):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number
    return -1


def _bytes(file: io.BufferedIOBase) -> Iterator[int]:
    for _ in range(10):
        yield from file.read(1)
