"""What candidates are put together from, and how: every op and every tensor in each of its forms, and what each takes.

A candidate takes each op from one of several whole builds. A value is computed once, in the form of its op; readers
of another form share one conversion. :meth:`Blueprint.plan` says which parts that makes, for a forecast and for a
file alike: :mod:`~.parts` reads the blueprint from whole builds, :mod:`~.stitch` writes what is planned. Holds plain
values only, so that any process can forecast; refuses to know files and accuracy.

A *slot* is a value in one form: as the float model has it, or quantized with one scale.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoselect.domain.graph import Graph, Op, OpKind, Tensor, fewest_runs
from autoselect.domain.recipe import Fallback
from autoselect.tflite import footprint as fp


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes of its own, and the items that it shares with other parts as a bit mask.

    ``packed`` is what the constants among its own bytes take after packing.
    """

    own: int
    items: int
    packed: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """One op in one form.

    Attributes:
        source: Which whole build has it: ``float``, ``hybrid``, ``integer`` or ``int16``.
        position: Its place there.
        reads: The slots that it reads; ``~value`` for a value that it takes in whatever form there is.
        writes: The slots that it writes.
        cost: Of the op and its constants.
        record: The op, with slots as tensors.
    """

    source: str
    position: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    cost: Cost
    record: Op


@dataclass(frozen=True, slots=True)
class Conversion:
    """One QUANTIZE or DEQUANTIZE: what it reads, what it writes, the op with the tensor that it writes, its cost."""

    reads: int
    writes: int
    cost: Cost
    record: Op


@dataclass(frozen=True, slots=True)
class Choice:
    """An op of the blueprint in all its forms.

    Attributes:
        integer: In integers; for an op that is no node its only form.
        left_out: In float; None for an op that is no node.
        hybrid: With int8 weights and float activations; None where that has no kernel.
        is_root: True for an op that has an effect beside its outputs.
        values: The values that it writes.
        int16: With 16-bit activations; None where that has no form.
    """

    integer: Part
    left_out: Part | None
    hybrid: Part | None
    is_root: bool
    values: tuple[int, ...]
    int16: Part | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A candidate's parts.

    Attributes:
        size_bytes: Size of the file that they make.
        kinds: What becomes of each node, in graph order: ``integer``, ``int16``, ``hybrid`` or ``float``; ``folded``
            for one whose output nobody reads.
        graph: The graph without its constants. Its tensors are all slots of the blueprint, its ops those of ``steps``.
        steps: The ops in order of execution.
        own: For each value the slot that is computed; the others are converted from it.
        places: For each op of the float model that is in the plan its place among ``steps``.
        cost: Of all parts; its items are those of any.
    """

    size_bytes: int
    kinds: tuple[str, ...]
    graph: Graph
    steps: tuple[Part | Conversion, ...]
    own: Sequence[int]
    places: Mapping[int, int]
    cost: Cost = Cost(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """The candidates of one calibrated model, one granularity, one interface and one choice of repairs.

    Attributes:
        nodes: Op index of each node.
        choices: The ops, in an order in which every form of every op comes after what it reads. The first of them are
            not those of the float model: :attr:`indices` tells.
        indices: For each of ``choices`` the index of the float model's op; -1 for one that only a whole build has.
        place_of: For each node its place among ``choices``.
        tensors: One for each slot.
        value_of: For each slot the value that it is a form of.
        inputs: The model's inputs, slots.
        given: Slots that no op writes and every candidate has: the inputs, and outputs that are constants.
        outputs: The model's outputs, slots.
        own_costs: For each slot what its tensor takes where its op writes it.
        conversions: For each slot that an op may write, or an input, those to the other forms, in order: what is
            converted from another conversion's result comes after it.
        frame: What all candidates have.
        item_bytes: For each bit of a cost's items the bytes.
        item_packed: Likewise what constants take after packing; 0 for what is none.
        no_int16: Why nodes have no 16-bit form, by position among the nodes; of a blueprint that was read with the
            16-bit build. The others have none either where it was read without.
        unsteady: Parts of which the target's compiler says otherwise in one model than in another; they count as left.
        gathers: Whether ops are listed so that those which the target's compiler takes stand in the fewest runs.
    """

    nodes: tuple[int, ...]
    choices: tuple[Choice, ...]
    indices: tuple[int, ...]
    place_of: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    value_of: tuple[int, ...]
    inputs: tuple[int, ...]
    given: tuple[int, ...]
    outputs: tuple[int, ...]
    own_costs: tuple[Cost, ...]
    conversions: Mapping[int, tuple[Conversion, ...]]
    frame: Cost
    item_bytes: tuple[int, ...]
    item_packed: tuple[float, ...] = ()
    no_int16: Mapping[int, str] = field(default_factory=dict)
    unsteady: int = 0
    gathers: bool = False

    @property
    def int16_nodes(self) -> tuple[int, ...]:
        """Positions of the nodes that have a 16-bit form."""
        return tuple(i for i, place in enumerate(self.place_of) if self.choices[place].int16 is not None)

    @property
    def forms(self) -> dict[int, dict[str, str | None]]:
        """The forms of each op of the float model, by its index and by kind, as kinds are in :class:`Plan`.

        For each form why the target's compiler leaves it to the host: empty where it takes it, None where it was not
        asked.
        """
        by_place = dict[int, dict[str, str | None]]()
        for index, choice in zip(self.indices, self.choices, strict=True):
            if index >= 0:
                parts = (choice.integer, choice.left_out, choice.hybrid, choice.int16)
                by_place[index] = {
                    part.record.kind.value: part.record.left_because for part in parts if part is not None
                }
        return by_place

    def plan(
        self,
        denied: Collection[int],
        fallback: Fallback = "drq",
        in_float: Collection[int] = (),
        in_int16: Collection[int] = (),
    ) -> Plan:
        """Plan one candidate.

        Args:
            denied: Positions among the nodes, in graph order, of those that the recipe denylists.
            fallback: As in the recipe.
            in_float: Positions of those that stay float whatever the fallback.
            in_int16: Positions of those with 16-bit activations, none of them denied; integer where there is no such
                form.
        """
        chosen = [choice.integer for choice in self.choices]
        for position in denied:
            place = self.place_of[position]
            choice = self.choices[place]
            is_hybrid = fallback == "drq" and position not in in_float and choice.hybrid is not None
            part = choice.hybrid if is_hybrid else choice.left_out
            chosen[place] = choice.integer if part is None else part
        for position in in_int16:
            place = self.place_of[position]
            chosen[place] = self.choices[place].int16 or chosen[place]
        own = self._own_slots(chosen)
        needed, live = self._needed(chosen, own)
        return self._put_together(chosen, own, needed, live)

    def _own_slots(self, chosen: Sequence[Part]) -> list[int]:
        own = [-1] * (max(self.value_of, default=-1) + 1)
        for slot in self.given:
            own[self.value_of[slot]] = slot
        for part in chosen:
            for slot in part.writes:
                own[self.value_of[slot]] = slot
        return own

    def _needed(self, chosen: Sequence[Part], own: Sequence[int]) -> tuple[bytearray, list[bool]]:
        """Which slots are read, and which ops are there at all; an op is where someone reads what it writes."""
        needed, wanted = bytearray(len(self.value_of)), bytearray(len(own))
        value_of = self.value_of
        for slot in self.outputs:
            needed[slot] = wanted[value_of[slot]] = 1
        live = [False] * len(chosen)
        for place in range(len(chosen) - 1, -1, -1):
            choice = self.choices[place]
            for value in choice.values:
                if wanted[value]:
                    break
            else:
                if not choice.is_root:
                    continue
            live[place] = True
            for slot in chosen[place].reads:
                if slot < 0:
                    wanted[~slot] = 1
                else:
                    needed[slot] = wanted[value_of[slot]] = 1
        return needed, live

    def _put_together(
        self, chosen: Sequence[Part], own: Sequence[int], needed: bytearray, live: Sequence[bool]
    ) -> Plan:
        drawn = _Drawing(self, own, needed, self.frame)
        for slot in self.given:
            drawn.write(slot)
        places: dict[int, int] = {}
        for place, part in enumerate(chosen):
            if live[place]:
                drawn.add(part)
                if self.indices[place] >= 0:
                    places[self.indices[place]] = len(drawn.steps) - 1
                for slot in part.writes:
                    drawn.write(slot)
        for slot in self.outputs:
            drawn.fetch(slot)
        kinds = tuple(_KIND[chosen[place].record.kind] if live[place] else "folded" for place in self.place_of)
        plan = Plan(
            size_bytes=fp.file_size(drawn.cost.own + int(_weigh(drawn.cost.items, self.item_bytes))),
            kinds=kinds,
            graph=Graph(tensors=self.tensors, ops=tuple(drawn.ops), inputs=self.inputs, outputs=self.outputs),
            steps=tuple(drawn.steps),
            own=own,
            places=places,
            cost=drawn.cost,
        )
        return gathered(plan) if self.gathers else plan

    def packed_bytes(self, plan: Plan) -> float:
        """About what the constants of a candidate take after packing, by the entropy of their levels."""
        return plan.cost.packed + _weigh(plan.cost.items, self.item_packed)


def _weigh(items: int, weights: Sequence[float]) -> float:
    weight = 0.0
    while items:
        low = items & -items
        weight += weights[low.bit_length() - 1]
        items ^= low
    return weight


def gathered(plan: Plan) -> Plan:
    """The plan with its ops in an order in which those that a compiler takes stand in the fewest runs.

    What has an effect beside its outputs keeps its place, and everything with it.
    """
    ops = plan.graph.ops
    if not all(op.outputs for op in ops):
        return plan
    order = fewest_runs(plan.graph, [op.left_because == "" for op in ops])
    at = {before: now for now, before in enumerate(order)}
    return replace(
        plan,
        graph=replace(plan.graph, ops=tuple(ops[i] for i in order)),
        steps=tuple(plan.steps[i] for i in order),
        places={index: at[place] for index, place in plan.places.items()},
    )


_KIND = {kind: kind.value for kind in OpKind}


class _Drawing:
    """A plan under way: a QUANTIZE stands behind what it reads, a DEQUANTIZE before what first reads it.

    So a value waits in its smaller form where it has both.
    """

    def __init__(self, blueprint: Blueprint, own: Sequence[int], needed: bytearray, frame: Cost) -> None:
        self._blueprint, self._own, self._needed = blueprint, own, needed
        self._waiting: dict[int, Conversion] = {}
        self.steps: list[Part | Conversion] = []
        self.ops: list[Op] = []
        self._bytes, self._items, self._packed = frame.own, frame.items, frame.packed

    @property
    def cost(self) -> Cost:
        """What the file costs: its frame and all parts that are drawn."""
        return Cost(self._bytes, self._items, self._packed)

    def add(self, part: Part) -> None:
        record, own = part.record, self._own
        for slot in part.reads:
            if slot < 0:
                record = replace(record, inputs=tuple(own[~s] if s < 0 else s for s in part.reads))
            elif slot in self._waiting:
                self.fetch(slot)
        self._append(part, record, part.cost)

    def write(self, slot: int) -> None:
        """The tensor that is written, and the conversions of it that someone needs."""
        self._add(self._blueprint.own_costs[slot])
        chain = self._blueprint.conversions.get(slot)
        if not chain:
            return
        needed = self._needed
        for conversion in reversed(chain):
            if needed[conversion.writes]:
                needed[conversion.reads] = 1
        for conversion in chain:
            if needed[conversion.writes]:
                if conversion.record.op_type == "DEQUANTIZE":
                    self._waiting[conversion.writes] = conversion
                else:
                    self.fetch(conversion.reads)
                    self._append(conversion, conversion.record, conversion.cost)

    def fetch(self, slot: int) -> None:
        """Put a conversion that waits for its first reader."""
        conversion = self._waiting.pop(slot, None)
        if conversion is not None:
            self.fetch(conversion.reads)
            self._append(conversion, conversion.record, conversion.cost)

    def _append(self, step: Part | Conversion, record: Op, cost: Cost) -> None:
        self.steps.append(step)
        self.ops.append(record)
        self._add(cost)

    def _add(self, cost: Cost) -> None:
        self._bytes += cost.own
        self._items |= cost.items
        self._packed += cost.packed
