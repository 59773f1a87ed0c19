"""What a user says of a source beside its place: a signature and sizes; and what a source leaves open."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoselect.errors import ModelError, UsageError

Shapes = Mapping[str, tuple[int, ...]]
"""By input, each axis's size, the batch's included."""

Feedback = Mapping[str, str]
"""Outputs that are fed back, with the input that each becomes at the next step."""

_SHAPE = re.compile(r"([^=]+)=(\d+(?:x\d+)*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeInput:
    """One input of a source.

    Attributes:
        key: What callers call it.
        name: Of its tensor.
        sizes: By axis; None where the size is free.
    """

    key: str
    name: str
    sizes: tuple[int | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All that it may be called."""
        return (self.key, self.name, self.name.removesuffix(":0"))

    @property
    def is_open(self) -> bool:
        """True where a size beside the batch is free."""
        return any(size is None for size in self.sizes[1:])

    def __str__(self) -> str:
        """As ``--shape`` takes it, with question marks for what is free."""
        return f"{self.key}={'x'.join('?' if size is None else str(size) for size in self.sizes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user says of a source.

    Attributes:
        signature: Key of the signature to take; None for the only one.
        shapes: Sizes of inputs by key or tensor name.
        converter_python: The Python that converts models of other frameworks; None for this one.
    """

    signature: str | None = None
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    converter_python: str | None = None

    def __bool__(self) -> bool:
        """True where anything is wished of the model itself."""
        return self.signature is not None or bool(self.shapes)

    def with_sizes(self, sizes: Shapes) -> Wishes:
        """These wishes with the sizes of further inputs."""
        return replace(self, shapes=(*self.shapes, *sizes.items()))


NO_WISHES = Wishes()


class FreeSizes(ModelError):
    """A source whose inputs have free sizes beside the batch: they come from ``--shape`` or from samples.

    Attributes:
        inputs: All inputs of the source.
    """

    def __init__(self, inputs: tuple[FreeInput, ...]) -> None:
        super().__init__(inputs)
        self.inputs = inputs

    def __str__(self) -> str:
        """The message; an exception that crosses processes is made again from its arguments."""
        open_inputs = [spec for spec in self.inputs if spec.is_open]
        return (
            f"The model has free sizes beside its batch: {', '.join(map(str, open_inputs))}. "
            f"Fix them with --shape (shapes=... in Python), for example --shape {_example(open_inputs[0])}."
        )


def _example(free: FreeInput) -> str:
    return f"{free.key}={'x'.join('1' if at == 0 else str(size or 64) for at, size in enumerate(free.sizes))}"


def wishes_of(
    signature: str | None,
    shapes: Mapping[str, Sequence[int]] | None,
    converter_python: str | os.PathLike[str] | None = None,
) -> Wishes:
    """Check what a user says of a source.

    Raises:
        UsageError: If a shape is none.
    """
    chosen = []
    for name, shape in (shapes or {}).items():
        sizes = tuple(shape) if isinstance(shape, (tuple, list)) else ()
        if not sizes or not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
            raise UsageError(
                f"The shape of input {name!r} must be whole numbers from 1 on, the batch first, such as (1, 16000); "
                f"got {shape!r}."
            )
        chosen.append((name, sizes))
    python = None if converter_python is None else os.fspath(converter_python)
    return Wishes(signature=signature, shapes=tuple(chosen), converter_python=python)


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]] | None:
    """Read what ``--shape`` takes: ``name=1x16000``; None where it takes nothing.

    Raises:
        UsageError: If a text is none, or an input comes twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        match = _SHAPE.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"--shape: expected an input and its sizes, the batch first, such as audio=1x16000; got {text!r}."
            )
        if match.group(1) in shapes:
            raise UsageError(f"--shape: input {match.group(1)!r} comes twice. Give each input once.")
        shapes[match.group(1)] = tuple(int(size) for size in match.group(2).split("x"))
    return shapes or None


def parse_feedback(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Read what ``--feedback`` takes: ``output=input``; None where it takes nothing.

    Raises:
        UsageError: If a text is none, or an output comes twice.
    """
    feedback: dict[str, str] = {}
    for text in texts or ():
        output, _, target = (part.strip() for part in text.partition("="))
        if not output or not target:
            raise UsageError(f"--feedback: expected an output and an input, such as state_out=state_in; got {text!r}.")
        if output in feedback:
            raise UsageError(f"--feedback: output {output!r} comes twice. Give each output once.")
        feedback[output] = target
    return feedback or None


def sizes_of(inputs: Sequence[FreeInput], shapes: Sequence[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    """Fix the size of every axis of every input.

    Args:
        inputs: Of the source.
        shapes: What the user wishes.

    Returns:
        Shape by input key. A free batch that nobody wishes otherwise is 1.

    Raises:
        UsageError: If a shape is of no input, or does not fit its input.
        FreeSizes: If a size beside the batch stays free.
    """
    chosen: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes:
        match = next((spec for spec in inputs if name in spec.names), None)
        if match is None:
            raise UsageError(f"--shape: the model has no input {name!r}. Its inputs: {', '.join(map(str, inputs))}.")
        _refuse_unfit(match, shape)
        chosen[match.key] = shape
    if any(spec.is_open and spec.key not in chosen for spec in inputs):
        raise FreeSizes(tuple(inputs))
    return {spec.key: chosen.get(spec.key) or tuple(1 if s is None else s for s in spec.sizes) for spec in inputs}


def _refuse_unfit(free: FreeInput, shape: tuple[int, ...]) -> None:
    given = f"{free.key}={'x'.join(map(str, shape))}"
    if len(shape) != len(free.sizes):
        raise UsageError(f"--shape: expected {len(free.sizes)} sizes, as in {free}, got {len(shape)}: {given}.")
    for axis, (size, wanted) in enumerate(zip(free.sizes, shape, strict=True)):
        if size is not None and size != wanted:
            raise UsageError(
                f"--shape: axis {axis} of input {free.key!r} is fixed to {size} in the model, got {wanted}: {given}. "
                f"Only what is marked ? can be chosen: {free}."
            )
