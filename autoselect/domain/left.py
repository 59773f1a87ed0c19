"""What an accelerator leaves, of whatever counts segments and float ops; the one place for it."""

from __future__ import annotations


class CountsLeft:
    """Has ``segments``, ``float_ops`` and ``off_chip``: ops that the target's compiler leaves, None if none decides."""

    __slots__ = ()

    segments: int
    float_ops: int
    off_chip: int | None

    @property
    def left_ops(self) -> int:
        """Ops that the accelerator does not run: if no compiler decides, those that compute in float."""
        return self.float_ops if self.off_chip is None else self.off_chip

    @property
    def partitions(self) -> int:
        """The segments by the word of compilers."""
        return self.segments
