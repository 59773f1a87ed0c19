"""A calibrated model as all of this room takes it: its file, and the key to its names."""

from __future__ import annotations

from dataclasses import dataclass

from autoselect.rewrites.names import NameMap
from autoselect.tflite.tflite_file import TfliteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedModel:
    """A calibrated float model under canonical names, with the key to its own names.

    Attributes:
        file: The model; without ranges where ``integer`` is given.
        names: The key.
        integer: Bytes of an integer model that another quantizer made of it, to take integer ops from; None where
            TensorFlow's quantizer is to make one.
        int16: The same with 16-bit activations; None where ``integer`` is, or where there is none.
    """

    file: TfliteFile
    names: NameMap
    integer: bytes | None = None
    int16: bytes | None = None

    @property
    def content(self) -> bytes:
        """Bytes of the model."""
        return self.file.content
