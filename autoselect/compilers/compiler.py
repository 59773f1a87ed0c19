"""What every compiler of a chip can be asked; knows no compiler.

A verdict is a fact or it is nothing: :class:`~autoselect.errors.CompilerRefusal` says that the compiler does not take
the model, and may be kept. Whatever else goes wrong (a crash, a missing library, a full disk, a time limit) is another
error, and says nothing of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from autoselect.domain.targets import Compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Which ops of a model a compiler takes.

    Attributes:
        pieces: For each piece of the chip's work, in order, the indices of its ops, ascending.
        left: For each op that is left to the host, by index, why.
    """

    pieces: tuple[tuple[int, ...], ...]
    left: Mapping[int, str]


class ChipCompiler(Protocol):
    """The compiler of one target."""

    def require(self) -> None:
        """Raise where the compiler cannot run.

        Raises:
            UsageError: With what is missing, and the command that brings it.
        """

    def versions(self) -> Mapping[str, str]:
        """What a verdict depends on beside the model and the target: programs and libraries, with their versions."""

    def partition(self, content: bytes, *, timeout_seconds: float) -> Partition:
        """Ask which ops of a model the chip runs.

        Args:
            content: Of a ``.tflite``.
            timeout_seconds: After which the compiler counts as hung.

        Raises:
            CompilerRefusal: If the compiler refuses the model as a whole, with its reason.
            WorkerDied: If it hung or was killed.
            JobFailed: If it failed in another way.
        """

    def compile(self, content: bytes, *, timeout_seconds: float) -> Compiled:
        """Compile a model for the chip, and say what became of it; raises what :meth:`partition` raises."""

    def compiled(self, content: bytes, *, timeout_seconds: float) -> tuple[Compiled, bytes]:
        """What the compiler makes of a model, and the compiled file, which the chip's runtime loads."""
