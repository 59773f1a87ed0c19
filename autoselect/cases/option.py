"""How a setting is offered to users, in words that every surface reads; knows no terminal and no file format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NewType

DATA, GOAL, HARDWARE, SEARCH, OUTPUT, ADVANCED = PANELS = (
    "Data",
    "Goal",
    "Hardware",
    "Search",
    "Output",
    "Advanced",
)
"""Headings in the help of a command, in their order; the short help leaves out what is advanced."""

Bytes = NewType("Bytes", float)
"""A kind of value: a number of bytes, which users may write with a unit."""


@dataclass(frozen=True, slots=True)
class Option:
    """What users read of a setting, and how the command line spells it.

    Attributes:
        help: One or two sentences. ``{name}`` stands for another setting, spelt as where the sentence is read.
        more: What follows in Python's documentation.
        panel: Heading in the help of the command: one of ``PANELS``, or one of its own, which comes after those.
        names: On the command line, the long one first; by default its own, with ``--no-`` for a switch that is on.
        old: Former long name on the command line, which is still taken; ``--old/--no-old`` for a switch.
        kind: Of the value on the command line; by default a text where it is live, else the setting's own type.
        metavar: Stands for the value in the help of the command.
        low: Least value that the command line takes; the setting's own by default.
        high: Largest value that the command line takes; the setting's own by default.
        example: What a setting without a default may look like in a file.
        resume: What ``autoselect resume`` says of it where that may change it.
        live: True where it may be an object that its process alone has; a run is then resumed with it.
        argument: True where the command line takes it by its place.
        turns_off: True where the command line can only turn it off, which is what ``help`` describes.
        last: True where it says how to work: after what to do.
        only: Where it is offered alone, ``python`` or ``shell``; empty for both.
        name: In Python. This and what follows is filled in from the field of the settings.
        type: In Python.
        default: In Python; None stands for none, and for what depends on the model or the target.
        kept: True where the manifest of a run has its value.
    """

    help: str
    more: str = ""
    panel: str = ADVANCED
    names: str = ""
    old: str = ""
    kind: Any = None
    metavar: str | None = None
    low: float | None = None
    high: float | None = None
    example: Any = None
    resume: str = ""
    live: bool = False
    argument: bool = False
    turns_off: bool = False
    last: bool = False
    only: Literal["python", "shell", ""] = ""
    name: str = ""
    type: Any = None
    default: Any = None
    kept: bool = False
