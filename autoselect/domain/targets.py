"""A target as data: its processors and kernels, rules, weights of the penalty and compiler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Any, ClassVar, Literal

from autoselect.domain.graph import Graph, Op
from autoselect.domain.recipe import IoType
from autoselect.errors import CompilerRefusal

SegmentRule = Literal["any", "scheduled", "listed", "leading", "none"]

Refuser = Literal["compiler", "runtime"]


class Precision(str, Enum):
    """The precision in which an op computes."""

    INT8 = "int8"
    INT16 = "int16"
    HYBRID = "hybrid"
    FLOAT = "float"
    CONVERSION = "conversion"
    """QUANTIZE from float or DEQUANTIZE to float."""


class Place(str, Enum):
    """The place where an op runs."""

    ACCELERATOR = "accelerator"
    HOST = "host"
    EITHER = "either"
    """On whichever side it is needed: shapes and indices."""
    NOWHERE = "nowhere"
    """The target refuses the model because of this op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyWeights:
    """Points of the penalty for each share; all must be positive, so that nothing is free.

    Those of ops with 16-bit activations have defaults, for profiles from before there were such ops.
    """

    float_macs: float
    float_ops: float
    crossings: float
    crossing_bytes: float
    segments: float
    int16_macs: float = 4.0
    int16_ops: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What a processor runs in one precision, and what that costs in the target's unit.

    Attributes:
        ops: Op types; None for all.
        per_mac: Cost of a multiply-accumulate.
        per_element: Cost of an element of the op's outputs.
        per_mac_of: Cost of a multiply-accumulate of op types where it is another.
        per_weight_of: Cost of reading one weight, of op types that may wait for their weights. Such an op reads each
            weight once an inference, and costs the larger of these reads and its multiply-accumulates.
    """

    ops: frozenset[str] | None
    per_mac: float
    per_element: float
    per_mac_of: Mapping[str, float] = field(default_factory=dict)
    per_weight_of: Mapping[str, float] = field(default_factory=dict)

    def of_mac(self, op_type: str, uses: float) -> float:
        """Cost of one multiply-accumulate of an op that uses each weight so many times an inference.

        It is at least the multiply-accumulate's share of reading the weight.
        """
        return max(self.per_mac_of.get(op_type, self.per_mac), self.per_weight_of.get(op_type, 0.0) / uses)

    def runs(self, op_type: str) -> bool:
        """Whether there is a kernel."""
        return self.ops is None or op_type in self.ops


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One of the two sides of a target.

    Attributes:
        name: For people.
        kernels: By precision; a precision that is missing does not run.
        max_rank: Largest count of dimensions of a tensor; None where there is no limit.
        max_stride: Largest step of a kernel over height and width; None where there is no limit.
        any_stride: Op types that take any step where they neither pad nor dilate.
        lacks_types: By op type, the data types that its kernels take neither as an input nor as an output. Constant
            inputs do not count.
    """

    name: str
    kernels: Mapping[Precision, Kernels]
    max_rank: int | None = None
    max_stride: int | None = None
    any_stride: frozenset[str] = frozenset()
    lacks_types: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A hard rule: a model with such an op is refused.

    Attributes:
        ops: Op types; None for all.
        precisions: Precisions in which they are refused.
        by: What refuses: the compiler of the target or its runtime.
        why: One sentence.
    """

    ops: frozenset[str] | None
    precisions: frozenset[Precision]
    by: Refuser
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Vela:
    """How Arm's Vela is called, in its own words.

    Attributes:
        accelerator_config: The NPU, for example ``ethos-u55-128``.
        system_config: A system of the configuration file.
        memory_mode: A memory mode of the configuration file.
        config: Text of a configuration file; None for the one that comes with Vela.
    """

    UNREADABLE: ClassVar[frozenset[str]] = frozenset({"int2", "int4", "uint4"})
    """Types of constants of which Vela 5.2.0 dies, of a floating-point exception and without a message."""

    ANY_STRIDE: ClassVar[frozenset[str]] = frozenset({"CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"})
    """Op types whose strides Vela does not limit where they neither pad nor dilate."""

    accelerator_config: str
    system_config: str
    memory_mode: str
    config: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LitertPlugin:
    """Which of LiteRT's compiler plugins compiles for a chip, and for which chip.

    Attributes:
        manufacturer: As LiteRT spells it, for example ``Qualcomm``.
        soc_model: The chip, for example ``SM8750``.
        libraries: Folder of the vendor's libraries; None where they are looked for, see
            :mod:`autoselect.compilers.libraries`.
    """

    manufacturer: str
    soc_model: str
    libraries: str | None = None


Compiler = Vela | LitertPlugin


def unreadable(op: Op, graph: Graph, compiler: Compiler | None) -> str | None:
    """Why a compiler cannot read a model because of an op; None if it can."""
    if not isinstance(compiler, Vela):
        return None
    dtypes = sorted({graph.tensors[i].dtype for i in op.constants} & Vela.UNREADABLE)
    if not dtypes:
        return None
    return f"Vela reads no {dtypes[0]} constants; weights of fewer levels, stored in int8, take as little"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of an accelerator's own, for the values that it works on.

    Attributes:
        size_bytes: All of it.
        block: Height, width and channels of the blocks in which values lie there; those at the end may not be full.
    """

    size_bytes: int
    block: tuple[int, int, int]

    def blocked(self, shape: Sequence[int]) -> int:
        """Elements of all blocks of a value."""
        *planes, height, width, channels = (1, 1, 1, *shape)
        sides = zip((height, width, channels), self.block, strict=True)
        return prod(planes) * prod(-(-side // step) * step for side, step in sides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target profile.

    Attributes:
        name: As on the command line.
        why: What it stands for, in one sentence.
        unit: Of all costs, for example ``NPU cycles``; ``points`` where ``shares`` makes the penalty.
        accelerator: What should run as much as possible; None where there is one processor only.
        host: What runs the rest.
        segments: How many pieces of work the accelerator takes: any number, formed as a delegate does; any number, as
            runs of a compiler's schedule or as runs in the order of the file; the leading one only; or none.
        crossing_fixed: Cost of a tensor that goes from one side to the other.
        crossing_per_byte: Cost of each of its bytes.
        io_type: Type of inputs and outputs that it expects; None where it takes any.
        per_channel: Whether it takes one scale for each output channel of the weights.
        rules: Hard rules, in order.
        shares: Points by share, for a target of unknown costs; None where the costs above make the penalty.
        compiler: None where no compiler is at hand.
        piece_fixed: Cost of each piece of the accelerator's work beyond the first, beside what it computes.
        ddr_per_byte: Cost of each byte that the accelerator reads from or writes to memory outside of it.
        ddr_per_op: Bytes that an op with constants moves beside these and what pieces exchange: tables and padding. By
            kind of op, as compiled whole models have shown it.
        memory: The accelerator's own; None where nobody has said.
        spills: Whether compiled mixes of the model at hand have shown that this memory is too small for them.
        int4: The repair that stores weights in 4 bits for its runtime, see :data:`autoselect.domain.recipe.REPAIRS`;
            None if its runtime reads none.
        parts: The chips of a target that stands for several, see :func:`together`.
        best: Of one of these chips, the cost that counts as 1.
    """

    name: str
    why: str
    unit: str
    accelerator: Processor | None
    host: Processor
    segments: SegmentRule
    crossing_fixed: float
    crossing_per_byte: float
    io_type: IoType | None
    per_channel: bool
    rules: tuple[Rule, ...] = ()
    shares: PenaltyWeights | None = None
    compiler: Compiler | None = None
    piece_fixed: float = 0.0
    ddr_per_byte: float = 0.0
    ddr_per_op: Mapping[str, float] = field(default_factory=dict)
    memory: Memory | None = None
    spills: bool = False
    int4: str | None = None
    parts: tuple[Target, ...] = ()
    best: float = 1.0

    @property
    def chips(self) -> tuple[Target, ...]:
        """The targets that it stands for; itself where it is one."""
        return self.parts or (self,)

    @property
    def compilers(self) -> tuple[Target, ...]:
        """The chips that have a compiler."""
        return tuple(chip for chip in self.chips if chip.compiler is not None)

    @property
    def asked(self) -> tuple[Target, ...]:
        """The chips whose compiler says of each op if the accelerator takes it, in place of a list of kernels."""
        return tuple(chip for chip in self.chips if isinstance(chip.compiler, LitertPlugin))

    @property
    def spilling(self) -> tuple[Target, ...]:
        """The chips whose own memory is too small for mixes of the model at hand."""
        return tuple(chip for chip in self.chips if chip.spills)

    @property
    def asks_compiler(self) -> bool:
        """Whether there are such."""
        return bool(self.asked)

    @property
    def takes_all(self) -> bool:
        """Whether no model is refused: there is no rule, and the host runs every op in every precision."""
        if self.parts:
            return all(part.takes_all for part in self.parts)
        kernels = [self.host.kernels.get(precision) for precision in Precision]
        return (
            not self.rules
            and self.per_channel
            and self.host.max_rank is None
            and self.host.max_stride is None
            and not self.host.lacks_types
            and all(k is not None and k.ops is None for k in kernels)
        )

    @property
    def runs_hybrid(self) -> bool:
        """Whether any hybrid op runs anywhere."""
        return self._runs(Precision.HYBRID)

    @property
    def runs_int16(self) -> bool:
        """Whether any op with 16-bit activations runs anywhere."""
        return self._runs(Precision.INT16)

    @property
    def favours_int16(self) -> bool:
        """Whether 16-bit ops run where integers do: on the accelerator, or on the host where that is all there is."""
        return self.runs_int16 and Precision.INT16 in (self.accelerator or self.host).kernels

    @property
    def is_cheaper_outside(self) -> bool:
        """Whether accelerator or host has a float or hybrid kernel that costs less than its 8-bit one, if it has any.

        Of several chips any one is enough.
        """
        if self.parts:
            return any(part.is_cheaper_outside for part in self.parts)
        return any(_is_cheaper_outside(side.kernels) for side in (self.accelerator, self.host) if side is not None)

    @property
    def is_one_processor(self) -> bool:
        """Whether it is one chip without an accelerator."""
        return self.accelerator is None and not self.parts

    @property
    def favours_int8(self) -> bool:
        """Whether 8-bit kernels of the main processor cost no more than kernels of any other precision anywhere.

        The main processor is the accelerator if there is one, else the host. Costs are compared for each op type; every
        one of several chips must favour 8 bits.
        """
        if self.parts:
            return all(part.favours_int8 for part in self.parts)
        first = self.accelerator or self.host
        integer = first.kernels.get(Precision.INT8)
        sides = [side for side in (self.accelerator, self.host) if side is not None]
        computing = (Precision.INT16, Precision.HYBRID, Precision.FLOAT)
        others = [side.kernels[precision] for side in sides for precision in computing if precision in side.kernels]
        return integer is not None and not any(_costs_less(other, integer) for other in others)

    @property
    def accelerates_integers_alone(self) -> bool:
        """Whether there is an accelerator, and float ops do not run on it."""
        return self.accelerator is not None and Precision.FLOAT not in self.accelerator.kernels

    def _runs(self, precision: Precision) -> bool:
        if any(rule.ops is None and precision in rule.precisions for rule in self.rules):
            return False
        return any(p is not None and precision in p.kernels for p in (self.accelerator, self.host))


def _is_cheaper_outside(kernels: Mapping[Precision, Kernels]) -> bool:
    integer = kernels.get(Precision.INT8)
    others = [kernels[p] for p in (Precision.HYBRID, Precision.FLOAT) if p in kernels]
    if integer is None:
        return bool(others)
    return any(_costs_less(other, integer) for other in others)


def _costs_less(rival: Kernels, other: Kernels) -> bool:
    """Whether kernels cost less than others for an element, or for a multiply-accumulate of any op type."""
    if rival.per_element < other.per_element or rival.per_mac < other.per_mac:
        return True
    ops = {op for kernels in (rival, other) for op in (*kernels.per_mac_of, *kernels.per_weight_of)}
    return any(rival.of_mac(op, uses) < other.of_mac(op, uses) for op in ops for uses in (1.0, math.inf))


def together(targets: Sequence[Target]) -> Target:
    """One target that stands for several chips, which all have to run the same file.

    An op counts as on the accelerator where every chip's takes it. The cost is the worst of the chips', each in units
    of :attr:`Target.best`. What one chip refuses is refused.

    Raises:
        ValueError: If two have one name or expect other types of inputs and outputs, or one has points in place of
            costs.
    """
    if without := [target.name for target in targets if target.shares is not None]:
        raise ValueError(f"{' and '.join(without)} has points in place of costs")
    io_types = {target.io_type for target in targets if target.io_type is not None}
    if len(io_types) > 1:
        raise ValueError(f"they expect inputs and outputs of {' and '.join(sorted(io_types))}")
    names = [target.name for target in targets]
    if alike := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two are called {alike[0]!r}; give one of the profiles another name")
    accelerators = [target.accelerator or target.host for target in targets]
    return Target(
        name=",".join(target.name for target in targets),
        why="One file for several chips: the worst of their costs counts, each in units of the chip's own best.",
        unit="times the best",
        accelerator=Processor(name="every chip's accelerator", kernels=_common(accelerators)),
        host=Processor(name="the host", kernels=_common([target.host for target in targets])),
        segments="any",
        crossing_fixed=0.0,
        crossing_per_byte=0.0,
        io_type=next(iter(io_types), None),
        per_channel=all(target.per_channel for target in targets),
        rules=tuple(rule for target in targets for rule in target.rules),
        parts=tuple(targets),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is seen of one chip on one model before a search.

    Attributes:
        best: As :attr:`Target.best`.
        ddr_per_op: As :attr:`Target.ddr_per_op`.
        spills: As :attr:`Target.spills`.
    """

    best: float = 1.0
    ddr_per_op: Mapping[str, float] = field(default_factory=dict)
    spills: bool = False


def as_seen(target: Target, seen: Sequence[Seen]) -> Target:
    """A target with what was seen of each of its chips."""
    chips = [
        replace(chip, best=answers.best, ddr_per_op=answers.ddr_per_op, spills=answers.spills)
        for chip, answers in zip(target.chips, seen, strict=True)
    ]
    return replace(target, parts=tuple(chips)) if target.parts else replace(chips[0], best=target.best)


def _common(processors: Sequence[Processor]) -> dict[Precision, Kernels]:
    """Every op of the precisions that all of them run; what runs where is for each chip to say."""
    common = set.intersection(*(set(processor.kernels) for processor in processors))
    return {
        precision: Kernels(ops=None, per_mac=0.0, per_element=0.0) for precision in Precision if precision in common
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What a compiler made of a model.

    Attributes:
        segments: Custom ops of the accelerator in the compiled file.
        host_ops: Other ops in it, by type.
        crossing_tensors: Tensors between the two.
        crossing_bytes: Bytes of these.
        sram_bytes: Memory that the compiler allotted in SRAM.
        dram_bytes: Memory that it allotted in DRAM: the values and weights that its memory mode keeps there.
        flash_bytes: Read-only memory of what the accelerator runs, as far as the compiler tells it.
        stored_bytes: Size of the compiled file, which has the weights as the compiler packed them.
        cycles: The compiler's estimate for the accelerator alone; 0 where it gives none.
        left: For each op that is left to the host, by the name of its first output, why.
        ddr_bytes: Bytes that the pieces move to and from memory outside of the accelerator, as far as the compiler
            says.
        moved: The same by kind, in the compiler's words.
        cost: What the compiler estimates of these, and the profile's cost of all else.
        lack: Why the host cannot run an op that the compiler has left to it; empty if it runs all of them.
        refusal: The compiler's own reason; empty where it compiled. Then all figures are 0.
    """

    segments: int = 0
    host_ops: Mapping[str, int] = field(default_factory=dict)
    crossing_tensors: int = 0
    crossing_bytes: int = 0
    sram_bytes: int = 0
    dram_bytes: int = 0
    flash_bytes: int = 0
    stored_bytes: int = 0
    cycles: int = 0
    left: Mapping[str, str] = field(default_factory=dict)
    ddr_bytes: int = 0
    moved: Mapping[str, int] = field(default_factory=dict)
    cost: float = 0.0
    lack: str = ""
    refusal: str = ""

    def require_host(self) -> None:
        """Refuse a model that compiles, but has an op left that the chip's host cannot run.

        Raises:
            CompilerRefusal: The message names the op.
        """
        if self.lack:
            raise CompilerRefusal(f"{self.lack}.")


def spilled_bytes(compiled: Mapping[str, Any]) -> int:
    """Bytes that an accelerator moves out of its own memory and back, because that is too small for a model.

    Args:
        compiled: Fields of :class:`Compiled`; empty of a model that was not compiled.
    """
    moved = compiled.get("moved", {})
    return int(moved.get("spill", 0) + moved.get("fill", 0))
