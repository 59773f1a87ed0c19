"""Which runtimes load a model: the ops that older ones lack, each tried on the versions themselves.

A runtime is LiteRT of some version, or the interpreter inside TensorFlow of some version. What is not in the table
runs on all that were tried. Scores on one runtime say little of another, which may compute an op otherwise; that is
not known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autoselect.domain.graph import Graph, Op
from autoselect.errors import UsageError

Family = Literal["LiteRT", "TensorFlow"]

Version = tuple[int, ...]

OLDEST: Mapping[Family, Version] = {"LiteRT": (2, 1, 0), "TensorFlow": (2, 19)}
"""The oldest versions that were tried; what a still older one loads is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """An op that older runtimes do not run.

    Attributes:
        op_type: Its type.
        reads: Type of what it computes from.
        writes: Type of what it computes.
        litert: The first version of LiteRT that runs it.
        tensorflow: The first version of TensorFlow whose interpreter does; None if none does yet.
    """

    op_type: str
    reads: str
    writes: str
    litert: Version = OLDEST["LiteRT"]
    tensorflow: Version | None = None

    @property
    def told(self) -> str:
        """What it is, in words."""
        return f"{self.op_type} {'of' if self.reads == self.writes else f'from {self.reads} to'} {self.writes}"


LACKS = (
    Lack(op_type="QUANTIZE", reads="int8", writes="int16", litert=(2, 1, 3)),
    Lack(op_type="TILE", reads="int16", writes="int16", litert=(2, 1, 3)),
    Lack(op_type="GELU", reads="int16", writes="int16", tensorflow=(2, 20)),
    Lack(op_type="SQRT", reads="int8", writes="int8", tensorflow=(2, 21)),
)
"""Found by loading and running mixed models of many nets; see ``experiments/runtimes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One runtime."""

    family: Family
    version: Version

    @property
    def name(self) -> str:
        """As people say it."""
        return f"{self.family} {version_text(self.version)}"

    def lacks(self, lack: Lack) -> bool:
        """Whether it is one of those that do not run an op."""
        first = lack.litert if self.family == "LiteRT" else lack.tensorflow
        return first is None or self.version < first

    def why_not(self, op_type: str, dtype: str) -> str | None:
        """Why it does not run an op that reads and writes one type; None if it does, as far as is known."""
        return next(
            (
                f"{self.name} has no {lack.told}"
                for lack in LACKS
                if (lack.op_type, lack.reads, lack.writes) == (op_type, dtype, dtype) and self.lacks(lack)
            ),
            None,
        )


def needs_of(graph: Graph) -> dict[str, str]:
    """The oldest runtimes that load a model, of those that were tried.

    Returns:
        ``litert``, the version of LiteRT; ``tensorflow``, the version of TensorFlow whose interpreter loads it, empty
        if none does yet; and ``because``, the ops that the oldest runtimes lack, with how often they occur.
    """
    counts = Counter(lack for op in graph.ops if (lack := _lack(op, graph)) is not None)
    lacks = [lack for lack in LACKS if lack in counts]
    versions = [OLDEST["TensorFlow"], *(lack.tensorflow for lack in lacks)]
    versions_known = [version for version in versions if version is not None]
    return {
        "litert": version_text(max([OLDEST["LiteRT"], *(lack.litert for lack in lacks)])),
        "tensorflow": version_text(max(versions_known)) if len(versions_known) == len(versions) else "",
        "because": ", ".join(f"{lack.told} ({counts[lack]})" for lack in lacks),
    }


def why_refused(graph: Graph, runtime: Runtime | None) -> str | None:
    """Why a runtime refuses a model: its first op that the runtime lacks; None if it takes the model."""
    for op in graph.ops if runtime is not None else ():
        lack = _lack(op, graph)
        if lack is not None and runtime is not None and runtime.lacks(lack):
            return f"{runtime.name} has no {lack.told}, which computes {graph.tensors[op.outputs[0]].name!r}"
    return None


def _lack(op: Op, graph: Graph) -> Lack | None:
    if not (op.inputs and op.outputs):
        return None
    types = graph.tensors[op.inputs[0]].dtype, graph.tensors[op.outputs[0]].dtype
    return next((lack for lack in LACKS if (lack.op_type, (lack.reads, lack.writes)) == (op.op_type, types)), None)


_WRITTEN = re.compile(r"(?:litert-)?(\d+\.\d+\.\d+)|(tensorflow)(?:-(\d+\.\d+))?")


def read_runtime(text: str) -> Runtime:
    """A runtime by what users call it: ``2.1.0``, ``tensorflow`` (the oldest that was tried), ``tensorflow-2.21``.

    Raises:
        UsageError: If it is none, or older than what was tried.
    """
    oldest = ", ".join(f"{family} {version_text(version)}" for family, version in OLDEST.items())
    if (match := _WRITTEN.fullmatch(text.strip().lower())) is None:
        raise UsageError(
            f"expected a version of LiteRT such as 2.1.0, or tensorflow, or tensorflow-2.21, got {text!r}."
        )
    family: Family = "TensorFlow" if match[2] else "LiteRT"
    number = match[1] or match[3]
    version = tuple(map(int, number.split("."))) if number else OLDEST[family]
    if version < OLDEST[family]:
        raise UsageError(f"what {family} {number} loads is not known. The oldest that were tried are {oldest}.")
    return Runtime(family=family, version=version)


def version_text(version: Version) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))
