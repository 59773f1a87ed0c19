"""A graph that can be looked at and edited, and rewrites of it in an order; knows no op type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.tflite_file import TfliteFile


class GraphView:
    """The main graph of a model, with who writes and who reads each tensor; edits go through it, or it is made anew."""

    def __init__(self, model: fb.Model) -> None:
        """Look at a model; it is changed in place by edits."""
        self.model, self.graph = model, model.subgraphs[0]
        self._writers: dict[int, fb.Operator] = {}
        self._readers: dict[int, list[fb.Operator]] = {}
        self._outputs: frozenset[int] = frozenset()
        self._look()

    def _look(self) -> None:
        self._writers = {i: op for op in self.graph.operators for i in fb.indices(op.outputs)}
        self._readers = {}
        for op in self.graph.operators:
            for index in dict.fromkeys(fb.indices(op.inputs)):
                self._readers.setdefault(index, []).append(op)
        self._outputs = frozenset(fb.indices(self.graph.outputs))

    def type_of(self, op: fb.Operator) -> str:
        """Type of an op."""
        return fb.op_type(self.model, op)

    def typed(self, *op_types: str) -> list[fb.Operator]:
        """The ops of some types, in the graph's order."""
        return [op for op in self.graph.operators if self.type_of(op) in op_types]

    def tensor(self, index: int) -> fb.Tensor:
        """A tensor by its index."""
        return self.graph.tensors[index]

    def shape(self, index: int) -> tuple[int, ...]:
        """Static shape of a tensor."""
        return fb.shape_of(self.tensor(index))

    def writer(self, index: int) -> fb.Operator | None:
        """The op that writes a tensor."""
        return self._writers.get(index)

    def readers(self, index: int) -> Sequence[fb.Operator]:
        """The ops that read a tensor, in order, each once."""
        return self._readers.get(index, ())

    def is_output(self, index: int) -> bool:
        """Whether a tensor is an output of the model."""
        return index in self._outputs

    def sole_reader(self, index: int) -> fb.Operator | None:
        """The op that alone reads what an op writes, once; None where there is none, or a caller reads it too."""
        readers = self.readers(index)
        if len(readers) != 1 or index not in self._writers or self.is_output(index):
            return None
        return readers[0] if fb.indices(readers[0].inputs).count(index) == 1 else None

    def replace(self, gone: Collection[fb.Operator], new: Sequence[fb.Operator] = ()) -> None:
        """Put ops in the place of the last one of others, or only take these out."""
        ids = {id(op) for op in gone}
        last = max((at for at, op in enumerate(self.graph.operators) if id(op) in ids), default=-1)
        behind = self.graph.operators[last + 1 :]
        self.graph.operators = [op for op in self.graph.operators[: last + 1] if id(op) not in ids] + [*new, *behind]
        self._look()


def has_ops(*op_types: str) -> Callable[[fb.Model], bool]:
    """A condition: that a subgraph of the model has an op of one of these types."""

    def holds(model: fb.Model) -> bool:
        return any(fb.op_type(model, op) in op_types for graph in model.subgraphs for op in graph.operators or [])

    return holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One way to replace parts of a model by others.

    Attributes:
        name: What the rewrite does, in a few words.
        applies: The condition, a function that takes little time: False if the model has no part to replace.
        deed: A function that changes a model in place, and returns one item for each part that it replaced.
        note: A sentence for the user, with ``{}`` for the number of parts; empty if the user need not know.
    """

    name: str
    applies: Callable[[fb.Model], bool] = lambda _: True
    deed: Callable[[fb.Model], Collection[Any]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a list of rewrites did.

    Attributes:
        found: For each rewrite that changed something, by its name, what that gave.
        notes: Their sentences.
    """

    found: dict[str, Collection[Any]]
    notes: tuple[str, ...]


def rewrite(model: fb.Model, rewrites: Iterable[Rewrite]) -> Done:
    """Rewrite a model in place, one rewrite after the other."""
    parts_by_name, notes = {}, []
    for step in rewrites:
        if step.applies(model) and (parts := step.deed(model)):
            parts_by_name[step.name] = parts
            notes += [step.note.format(len(parts))] if step.note else []
    return Done(found=parts_by_name, notes=tuple(notes))


def rewritten(file: TfliteFile, rewrites: Sequence[Rewrite]) -> TfliteFile:
    """A rewritten copy of a model that others hold; the model itself where no rewrite applies."""
    if not any(step.applies(file.model) for step in rewrites):
        return file
    model = file.copied()
    rewrite(model, rewrites)
    return TfliteFile(model=model)
