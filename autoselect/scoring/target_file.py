"""Reads target profiles from their data files, and checks them; knows no model.

A profile is a TOML file::

    schema_version = 1
    name = "my-npu"
    why = "One sentence."
    unit = "NPU cycles"                 # of all costs
    segments = "any"                    # pieces of work: any, scheduled, listed, leading or none
    io = "int8"                         # optional: the type of inputs and outputs that it expects
    per_channel = true                  # optional: false where weights need one scale a tensor

    [crossing]                          # of a tensor that goes from one side to the other
    fixed = 5000.0
    per_byte = 0.25

    [accelerator]                       # optional; [host] has the same keys
    name = "my NPU"
    max_rank = 4                        # optional
    max_stride = 3                      # optional
    lacks_types = { CAST = ["uint8"] }  # optional: types that kernels of an op do not take, constants apart
    [accelerator.int8]                  # int8, int16, hybrid, float, conversion; what is missing does not run
    ops = ["CONV_2D", "ADD"]            # or "all"
    per_mac = 0.01
    per_element = 0.25
    per_mac_of = { LSTM = 1.0 }         # optional: of op types where it is another
    per_weight_of = { CONV_2D = 0.5 }   # optional: of op types that may wait for weights, each of which is read once

    [[reject]]                          # optional: hard rules
    ops = ["HARD_SWISH"]                # or "all"
    precisions = ["float"]
    by = "compiler"                     # or runtime
    why = "One sentence."

    [penalty]                           # optional: points by share instead of costs

    [piece]                             # optional: of the pieces of the accelerator's work
    fixed = 100.0                       # of each beyond the first
    ddr_per_byte = 2.5e-5               # of each byte that it reads from or writes to memory outside of it

    [compiler]                          # optional
    kind = "vela"                       # with accelerator_config, system_config, memory_mode, and config (optional):
                                        # the chip's own vela.ini, a path from the profile's folder; or
    kind = "litert-plugin"              # with manufacturer, soc_model, and libraries (optional): a folder

A profile may say ``extends = "name"`` of a bundled one, or ``extends = "path.toml"`` of a file, from its own folder:
what it does not say itself is as there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from autoselect.data.bundled import lasting, read_toml
from autoselect.data.texts import first_wrong, read_text
from autoselect.domain.recipe import IoType
from autoselect.domain.targets import (
    Compiler,
    Kernels,
    LitertPlugin,
    Memory,
    PenaltyWeights,
    Precision,
    Processor,
    Refuser,
    Rule,
    SegmentRule,
    Target,
    Vela,
    together,
)
from autoselect.domain.words import did_you_mean
from autoselect.errors import UsageError
from autoselect.tflite import flatbuffer as fb

DEFAULT_TARGET = "integer-only"


def _known_op(name: str) -> str:
    prefix, _, custom = name.partition(":")
    if prefix == "custom" and custom:
        return custom
    if name not in fb.OP_TYPES.values():
        raise ValueError(f"there is no TensorFlow Lite op {name!r}")
    return name


def _known_type(name: str) -> str:
    if name not in fb.TENSOR_DTYPES.values():
        meant = did_you_mean(name, fb.TENSOR_DTYPES.values()).strip()
        raise ValueError(f"there is no type {name!r} of tensors{meant and f' ({meant})'}")
    return name


_Ops = Literal["all"] | list[Annotated[str, AfterValidator(_known_op)]]


def _plain(name: str) -> str:
    if not re.fullmatch(r"[^,/\\\x00-\x1f]{1,100}", name) or name != name.strip():
        raise ValueError(
            "a name has 1 to 100 characters, no comma, slash, backslash or end of a line, and no blank at its ends"
        )
    return name


_Cost = Annotated[float, Field(strict=True, ge=0.0, le=1e12)]
_Points = Annotated[float, Field(strict=True, gt=0.0, le=1e12)]
_Size = Annotated[int, Field(strict=True, gt=0)]
_Name = Annotated[str, AfterValidator(_plain)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Kernels(_Strict):
    ops: _Ops
    per_mac: _Cost
    per_element: _Cost
    per_mac_of: dict[Annotated[str, AfterValidator(_known_op)], _Cost] = {}
    per_weight_of: dict[Annotated[str, AfterValidator(_known_op)], _Cost] = {}


class _Processor(_Strict):
    name: str
    max_rank: _Size | None = None
    max_stride: _Size | None = None
    lacks_types: dict[Annotated[str, AfterValidator(_known_op)], list[Annotated[str, AfterValidator(_known_type)]]] = {}
    int8: _Kernels | None = None
    int16: _Kernels | None = None
    hybrid: _Kernels | None = None
    float: _Kernels | None = None
    conversion: _Kernels | None = None


class _Crossing(_Strict):
    fixed: _Cost
    per_byte: _Cost


class _Rule(_Strict):
    ops: _Ops
    precisions: Annotated[list[Precision], Field(min_length=1)]
    by: Refuser
    why: str


class _Vela(_Strict):
    kind: Literal["vela"]
    accelerator_config: str
    system_config: str
    memory_mode: str
    config: str | None = None

    @model_validator(mode="after")
    def _is_configured(self) -> _Vela:
        if self.config is not None:
            sections = f"System_Config.{self.system_config}", f"Memory_Mode.{self.memory_mode}"
            self.config = _configuration(self.config, sections)
        return self


def _configuration(text: str, sections: Sequence[str]) -> str:
    """The named sections of a ``vela.ini``, each with all that it inherits, without comments.

    Vela parses the file twice. Its second parser takes no ``#``, no colon, and parents only above their children.
    """
    parser = ConfigParser(interpolation=None, inline_comment_prefixes=(";", "#"))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # Keys keep their capitals.
    try:
        parser.read_string(text)
    except ConfigParserError as exc:
        raise ValueError(f"the file of config is no INI file: {' '.join(str(exc).split())}") from exc
    blocks = []
    for section in sections:
        block, name, seen = dict[str, str](), section, set[str]()
        while name:
            if name not in parser:
                raise ValueError(f"the file of config has no section [{name}]; it has {', '.join(parser.sections())}")
            if name in seen:
                raise ValueError(f"section [{name}] of the file of config inherits from itself")
            seen.add(name)
            own = dict(parser[name])
            parent = next((own.pop(key) for key in parser[name] if key.lower() == "inherit"), "")
            block, name = {**own, **block}, parent
        _refuse_unread(section, block)
        blocks.append("\n".join([f"[{section}]", *(f"{key}={value}" for key, value in block.items())]))
    return "\n\n".join(blocks) + "\n"


_AREAS = ("Sram", "Dram", "OnChipFlash", "OffChipFlash")
_PORTS = ("Axi0", "Axi1")
_COUNTS = ("ports_used", "burst_length", "max_reads", "max_writes", "read_latency", "write_latency")
_WISHED: Mapping[str, Callable[[str], float] | tuple[str, ...]] = {
    "core_clock": float,
    "arena_cache_size": int,
    **dict.fromkeys(("axi0_port", "axi1_port"), _AREAS),
    **dict.fromkeys(("const_mem_area", "arena_mem_area", "cache_mem_area"), _PORTS),
    **{f"{area}_clock_scale": float for area in _AREAS},
    **{f"{area}_{what}": int for area in _AREAS for what in _COUNTS},
}
"""What Vela reads of a ``vela.ini``, and what it expects there: a number of a type, or one of some names."""
_KEYS = {key.lower(): key for key in _WISHED}


def _refuse_unread(section: str, block: Mapping[str, str]) -> None:
    """Refuse a key that Vela does not read, and a value that makes Vela end with an exception.

    Raises:
        ValueError: With the key, and what Vela expects.
    """
    for said, value in block.items():
        where, key = f"[{section}] of the file of config: {said}", _KEYS.get(said.lower())
        if key is None:
            meant = did_you_mean(said, _WISHED).strip()
            raise ValueError(f"{where} is no key that Vela reads{meant and f' ({meant})'}")
        wished = _WISHED[key]
        if isinstance(wished, tuple):
            if value not in wished:
                raise ValueError(f"{where}={value}: expected one of {', '.join(wished)}")
            continue
        number = _number(value, wished)
        if number is None or not math.isfinite(number) or number < 0 or (number == 0 and wished is float):
            expected = "positive number" if wished is float else "whole number of 0 or more"
            raise ValueError(f"{where}={value}: expected a {expected}")


def _number(text: str, kind: Callable[[str], float]) -> float | None:
    try:
        return kind(text)
    except ValueError:
        return None


class _LitertPlugin(_Strict):
    kind: Literal["litert-plugin"]
    manufacturer: str
    soc_model: str
    libraries: str | None = None


_Compiler = Annotated[_Vela | _LitertPlugin, Field(discriminator="kind")]


class _Piece(_Strict):
    fixed: _Cost
    ddr_per_byte: _Cost


class _Memory(_Strict):
    size_bytes: _Size
    block: tuple[_Size, _Size, _Size]


class _Weights(_Strict):
    float_macs: _Points
    float_ops: _Points
    crossings: _Points
    crossing_bytes: _Points
    segments: _Points
    int16_macs: _Points = 4.0
    int16_ops: _Points = 4.0


class _Profile(_Strict):
    schema_version: Literal[1]
    name: _Name
    why: str
    unit: str
    segments: SegmentRule
    io: IoType | None = None
    per_channel: StrictBool = True
    int4: Literal["int4-litert", "int4-tflm"] | None = None
    crossing: _Crossing
    accelerator: _Processor | None = None
    host: _Processor
    reject: list[_Rule] = []
    penalty: _Weights | None = None
    piece: _Piece = _Piece(fixed=0.0, ddr_per_byte=0.0)
    memory: _Memory | None = None
    compiler: _Compiler | None = None


def read_target(name_or_path: str | Path = DEFAULT_TARGET) -> Target:
    """A bundled target profile by name, or a user's own by path; of several with commas between them all together.

    Raises:
        UsageError: If there is no such file, with the nearest name; or a key is missing, unknown or wrong, with its
            path.
    """
    names = _several(name_or_path)
    if len(names) > 1:
        try:
            return together([read_target(name) for name in names])
        except ValueError as exc:
            if isinstance(exc, UsageError):
                raise
            raise UsageError(f"One file cannot serve the targets {', '.join(names)}: {exc}.") from exc
    content = _content(names[0])
    try:
        profile = _Profile.model_validate(content)
    except ValidationError as exc:
        keys = {key for table in _Strict.__subclasses__() for key in table.model_fields}
        raise UsageError(f"Target {name_or_path!r}, {first_wrong(exc, keys)}") from exc
    if (profile.accelerator is None) != (profile.segments == "none"):
        raise UsageError(
            f"Target {name_or_path!r}, segments: expected 'none' without an accelerator and another rule with one, got "
            f"{profile.segments!r}."
        )
    if (profile.segments == "listed") != isinstance(profile.compiler, _LitertPlugin):
        raise UsageError(
            f"Target {name_or_path!r}, segments: expected 'listed' with a compiler of kind litert-plugin and with no "
            f"other, got {profile.segments!r}."
        )
    return _target(profile)


def target_hash(name_or_path: str | Path) -> str:
    """SHA-256 of what a profile says, so that a run does not go on with another one.

    How weights of 4 bits are stored does not count: the recipes of a run say it.
    """
    contents = [{key: said for key, said in _content(name).items() if key != "int4"} for name in _several(name_or_path)]
    said = json.dumps(contents if len(contents) > 1 else contents[0], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def lasting_target(name_or_path: str | Path) -> str:
    """A name by which any folder finds the target, see :func:`autoselect.data.bundled.lasting`."""
    return ",".join(map(lasting, _several(name_or_path)))


def _several(name_or_path: str | Path) -> list[str]:
    """The names in a list with commas; a file's path is one, commas or not.

    Raises:
        UsageError: If one is named twice, or a name is missing.
    """
    if isinstance(name_or_path, Path) or os.path.isfile(name_or_path):
        return [str(name_or_path)]
    names = [name.strip() for name in name_or_path.split(",")]
    if "" in names or len(set(names)) < len(names):
        raise UsageError(f"Target {name_or_path!r}: expected different names with one comma between them.")
    return names


_GONE = {
    "hexagon": "LiteRT has no Hexagon delegate any more. For the NPU of a Qualcomm chip choose its compiler: "
    "qualcomm-sm8750, or another qualcomm-… target.",
}
"""Targets of earlier versions, and what to choose in their place."""


def _content(name_or_path: str) -> dict[str, Any]:
    if name_or_path in _GONE:
        raise UsageError(f"There is no target {name_or_path!r} any more. {_GONE[name_or_path]}")
    content = _with_text_of_config(read_toml(name_or_path, folder="targets", kind="target"), name_or_path)
    base = content.pop("extends", None)
    if base is None:
        return content
    if isinstance(base, str) and base.endswith(".toml"):  # A file beside it, as its compiler's configuration.
        base = str(Path(name_or_path).parent / base)
    if not isinstance(base, str) or "extends" in read_toml(base, folder="targets", kind="target"):
        raise UsageError(f"Target {name_or_path!r}, extends: expected a profile that extends no other, got {base!r}.")
    return _merged(_content(base), content)


def _with_text_of_config(content: dict[str, Any], name_or_path: str) -> dict[str, Any]:
    """A profile with the text of the file that ``compiler.config`` names in its place."""
    compiler = content.get("compiler")
    if not isinstance(compiler, dict) or not isinstance(compiler.get("config"), str):
        return content
    path = Path(name_or_path).parent / compiler["config"]
    try:
        text = read_text(path)
    except (OSError, ValueError) as exc:
        raise UsageError(
            f"Target {name_or_path!r}, compiler.config: {path} cannot be read: {getattr(exc, 'strerror', None) or exc}."
        ) from exc
    return {**content, "compiler": {**compiler, "config": text}}


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A table with what another one says, and what it says itself in place of that.

    An op for which it has a cost of a multiply-accumulate waits for weights only if it says that itself. A processor of
    another name lacks only the types of which it says so.
    """
    tables = {k: _merged(base[k], v) for k, v in own.items() if isinstance(v, dict) and isinstance(base.get(k), dict)}
    table = {**base, **own, **tables}
    if "lacks_types" in base and own.get("name", base.get("name")) != base.get("name"):
        table["lacks_types"] = own.get("lacks_types", {})
    products, weights = own.get("per_mac_of"), base.get("per_weight_of")
    if isinstance(products, dict) and isinstance(weights, dict) and isinstance(own.get("per_weight_of", {}), dict):
        kept = {op: cost for op, cost in weights.items() if op not in products}
        table["per_weight_of"] = {**kept, **own.get("per_weight_of", {})}
    return table


def _target(profile: _Profile) -> Target:
    any_stride = Vela.ANY_STRIDE if isinstance(profile.compiler, _Vela) else frozenset[str]()
    return Target(
        name=profile.name,
        why=profile.why,
        unit=profile.unit,
        accelerator=None if profile.accelerator is None else _processor(profile.accelerator, any_stride),
        host=_processor(profile.host),
        segments=profile.segments,
        crossing_fixed=profile.crossing.fixed,
        crossing_per_byte=profile.crossing.per_byte,
        io_type=profile.io,
        per_channel=profile.per_channel,
        int4=profile.int4,
        rules=tuple(
            Rule(ops=_ops(rule.ops), precisions=frozenset(rule.precisions), by=rule.by, why=rule.why)
            for rule in profile.reject
        ),
        shares=None if profile.penalty is None else PenaltyWeights(**profile.penalty.model_dump()),
        compiler=None if profile.compiler is None else _compiler(profile.compiler),
        piece_fixed=profile.piece.fixed,
        ddr_per_byte=profile.piece.ddr_per_byte,
        memory=None if profile.memory is None else Memory(**profile.memory.model_dump()),
    )


def _compiler(section: _Vela | _LitertPlugin) -> Compiler:
    made = Vela if isinstance(section, _Vela) else LitertPlugin
    return made(**section.model_dump(exclude={"kind"}))


def _processor(section: _Processor, any_stride: frozenset[str] = frozenset()) -> Processor:
    given: dict[Precision, Any] = {precision: getattr(section, precision.value) for precision in Precision}
    return Processor(
        name=section.name,
        max_rank=section.max_rank,
        max_stride=section.max_stride,
        lacks_types={op_type: frozenset(types) for op_type, types in section.lacks_types.items()},
        any_stride=any_stride,
        kernels={
            precision: Kernels(
                ops=_ops(k.ops),
                per_mac=k.per_mac,
                per_element=k.per_element,
                per_mac_of=k.per_mac_of,
                per_weight_of=k.per_weight_of,
            )
            for precision, k in given.items()
            if k is not None
        },
    )


def _ops(ops: str | list[str]) -> frozenset[str] | None:
    return None if isinstance(ops, str) else frozenset(ops)
