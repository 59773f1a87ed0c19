"""What the studies declare, what each depends on, and whether its results are of today; knows nothing of running them.

Each folder of a study has a ``study.toml``: a table for each step, that is for each command of its README. Beside the
results a ``stamp.json`` says what made them. A step is up to date if what it depends on is what the stamp has.

doit and DVC were weighed. doit keeps its state in one database, away from the results, and writes it when all tasks
have ended, so a killed night would be forgotten. DVC brings dozens of packages, deletes results before it makes them
anew, and cannot name data by a variable of the environment.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
STAMP = "stamp.json"
EQUAL = HERE / "equal.toml"
"""Changes of what decides results that left all of them as they were, each with its reason."""
ROOMS: Mapping[str, tuple[str, ...]] = {
    "sampler": ("study/proposing", "study/setup"),
    "verdict": ("scoring", "study/finishing", "domain/rule.py"),
    "chips": ("study/finishing/on_chip.py",),
}
"""What of the package's code decides results beside the builder, which has a version of its own."""
_ELSEWHERE = ("scoring/target_file.py", "study/finishing/on_chip.py")
"""Modules that do not count with their room. The first reads profiles: a change of its checks makes no result stale, a
change of a bundled profile does. Its defaults do not count either: who changes one runs the studies once more. The
second counts for the searches whose results are those of a chip's compiler or emulation."""
_COUNT = ("builder", "sampler", "verdict", "packages")
_NOT_COUNTED = ("python", "autoselect", "builder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of a study.

    Attributes:
        study: Name of the folder.
        name: Unique in the study.
        script: The program, a path in the folder.
        where: Options that say where it writes; ``{out}`` and ``{work}`` are folders, ``{STUDY.STEP}`` is the folder
            that another step wrote.
        full: Options of a full pass.
        small: Options of a small pass, which proves that the command still runs.
        writes: Its results, by their paths in ``{out}``; they are copied into the folder of the study's results. A step
            that writes none makes what other steps read.
        small_writes: Those that a small pass writes, if not all.
        prints: Result that holds what it prints.
        after: Steps that it reads from, as ``STUDY.STEP``.
        imports: Further folders of modules, as paths in the repository.
        data: Files and folders in the one that ``AUTOSELECT_REAL_DATA`` names.
        needs: Variables of the environment, and what each has to be. One that options name, as ``$NAME``, is needed for
            these options only.
        installs: Packages that have to be there beside autoselect's own.
        python: The interpreter, as ``$NAME``, if it is not this one.
        into: Folder of the repository for ``writes``, if it is not that of the study's results.
        once: Why it is not run again: its version is gone, or what it makes differs by machine and is kept.
        counts: What of the package counts: names of ``ROOMS``, ``builder``, ``packages``.
        time_columns: Heads of columns, heads of rows and JSON fields that hold times, or the memory that was taken:
            results that differ there alone are as before.
        runs_alone: True if it measures times: nothing else of a pass runs beside it.
        cost: How long a full pass takes on two cores: ``seconds``, ``minutes`` or ``hours``.
        tested: Where the small pass is tested: among the ``quick`` tests, the ``slow`` ones, or in neither, but by
            ``all.py --small`` at ``night``.
    """

    study: str
    name: str
    script: str
    where: str = ""
    full: str = ""
    small: str = ""
    writes: tuple[str, ...] = ()
    small_writes: tuple[str, ...] | None = None
    prints: str = ""
    after: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    needs: Mapping[str, str]
    installs: tuple[str, ...] = ()
    python: str = ""
    into: str = ""
    once: str = ""
    counts: tuple[str, ...] = _COUNT
    time_columns: tuple[str, ...] = ()
    runs_alone: bool = False
    cost: str = "minutes"
    tested: str = "slow"

    @property
    def id(self) -> str:
        return f"{self.study}.{self.name}"

    @property
    def folder(self) -> Path:
        return HERE / self.study

    @property
    def results(self) -> tuple[str, ...]:
        """All files that it leaves beside the README."""
        return (*self.writes, *((self.prints,) if self.prints else ()))

    def options(self, small: bool) -> str:
        """Of a pass, with names of folders to be filled in."""
        return f"{self.where} {self.small if small else self.full}"

    def reads_files_of(self, other: Step, small: bool) -> bool:
        """Whether it reads what another step made where that ran."""
        return f"{{{other.id}}}" in self.options(small)

    def place_of(self, name: str) -> Path:
        """Where a result lies."""
        return (ROOT / self.into if self.into and name in self.writes else self.folder / "results") / name

    @property
    def search_path(self) -> tuple[Path, ...]:
        """Folders of the modules that its script imports, of the package apart."""
        return (self.folder, *(ROOT / name for name in self.imports))


def read_steps() -> dict[str, Step]:
    """All steps of all studies by id, in an order in which they can run.

    Raises:
        ValueError: If a declaration does not name what a step has, or names a step that there is not.
    """
    steps: dict[str, Step] = {}
    for path in sorted(HERE.glob("*/study.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        common = {key: value for key, value in tables.items() if key == "needs" or not isinstance(value, dict)}
        for name in tables.keys() - common.keys():
            step = _step(path.parent.name, name, {**common, **tables[name]})
            steps[step.id] = step
    missing = {after for step in steps.values() for after in step.after} - steps.keys()
    if missing:
        raise ValueError(f"expected steps of a study.toml in 'after', got {sorted(missing)}")
    for step in steps.values():
        if not step.runs_alone and any(steps[name].runs_alone for name in step.after):
            raise ValueError(f"expected runs_alone in {step.id}, which reads from a step that runs alone at the end")
    ordered: dict[str, Step] = {}
    for step in sorted(steps.values(), key=lambda step: step.id):
        _add(step, steps, ordered)
    return ordered


def _step(study: str, name: str, table: Mapping[str, Any]) -> Step:
    unknown = table.keys() - Step.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Step.__dataclass_fields__)
        raise ValueError(f"{study}/study.toml, [{name}]: expected some of {known}, got {sorted(unknown)}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return Step(study=study, name=name, **{"needs": {}, **values})


def _add(step: Step, steps: Mapping[str, Step], ordered: dict[str, Step]) -> None:
    for after in step.after:
        _add(steps[after], steps, ordered)
    ordered[step.id] = step


def data_folder() -> Path:
    """The folder of real models and data."""
    return Path(os.environ.get("AUTOSELECT_REAL_DATA") or ROOT.parent / "shared" / "data").resolve()


def why_blocked(step: Step, small: bool = False) -> str:
    """What the step lacks here; empty if nothing."""
    if step.once:
        return step.once
    told = f"{step.python} {step.options(small)}"
    named = f"{step.python} {step.options(True)} {step.options(False)}"
    lacks = [f"no {name} in the folder of data" for name in step.data if not (data_folder() / name).exists()]
    for name, what in step.needs.items():
        if not os.environ.get(name) and (f"${name}" in told or f"${name}" not in named):
            lacks.append(f"set {name} to {what}")
    return "; ".join(lacks + [f"pip install {name}" for name in step.installs if not _is_installed(name)])


def _is_installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def inputs_of(step: Step, steps: Mapping[str, Step]) -> dict[str, str]:
    """All that decides the results, each with a version or a digest."""
    packages = dict(_packages())
    found = {"options": " ".join((step.script, step.full))}
    found |= {f"code of {path.relative_to(ROOT)}": digest_of_code(path.read_text("utf-8")) for path in scripts_of(step)}
    found |= {f"data {name}": digest_of(data_folder() / name) for name in step.data}
    for name in step.counts:
        if name == "builder":
            found[name] = packages["builder"]
        elif name == "packages":
            found |= {key: value for key, value in packages.items() if key not in _NOT_COUNTED}
        else:
            found[name] = _digest_of_rooms(ROOMS[name])
    if "verdict" in step.counts:
        found["search_spaces"] = _digest_of_tables(ROOT / "search_spaces")
    return found | {f"step {after}": _key_after(steps[after], steps) for after in step.after}


def _as_before(inputs: Mapping[str, str]) -> dict[str, str]:
    """A copy of what a step depends on, with numbers and digests of before the changes of ``equal.toml``."""
    equal, found = equal_inputs(EQUAL), dict[str, str]()
    for name, value in inputs.items():
        found[name] = value
        while (name, found[name]) in equal:
            found[name] = equal[name, found[name]]
    return found


@functools.cache
def equal_inputs(path: Path) -> Mapping[tuple[str, str], str]:
    """By name and value of an input, the value before a change that left all results as they were."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["equal"]
    return {(row["input"], row["now"]): row["before"] for row in rows if row["why"]}


def _key_after(step: Step, steps: Mapping[str, Step]) -> str:
    """Key of what a later step depends on: all that decides a step's results, or these results if they are kept."""
    if step.once:
        return key_of({name: digest_of(step.place_of(name)) for name in step.results})
    return key_of(_as_before(inputs_of(step, steps)))


def key_of(inputs: Mapping[str, str]) -> str:
    """A short name for all that decides a result."""
    return _digest(json.dumps(inputs, sort_keys=True).encode())


def why_stale(step: Step, steps: Mapping[str, Step]) -> str:
    """Why the results are not of today; empty if they are."""
    stamp = stamp_of(step)
    if stamp is None:
        return "never run"
    changed = [name for name in step.results if digest_of(step.place_of(name)) != stamp["results"].get(name)]
    now, then = _as_before(inputs_of(step, steps)), _as_before(stamp["inputs"])
    reasons = [f"{name} is not as it was written" for name in changed]
    for key in dict.fromkeys((*then, *now)):
        before, after = then.get(key), now.get(key)
        if before != after and after != "absent" and (before is not None or "history" not in stamp):
            reasons.append(_reason(key, before, after))
    return "; ".join(reasons)


def _reason(key: str, before: str | None, after: str | None) -> str:
    if before is None or after is None:
        return f"{key} is {'new' if before is None else 'gone'}"
    is_digest = key.startswith(("code ", "data ", "step ")) or key in {*ROOMS, "search_spaces"}
    return f"{key} changed" if is_digest else f"{key} {before} → {after}"


def stamp_of(step: Step) -> dict[str, Any] | None:
    """What made the results of a step, if that is known.

    Results that are older than stamps have one with ``history``: it holds what the repository had at the commit that
    wrote them, and nothing of options, data and packages.
    """
    path = step.folder / "results" / STAMP
    stamps: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return stamps.get(step.name)


def keep_stamp(step: Step, stamp: Mapping[str, Any]) -> None:
    """Write what made the results of a step beside them."""
    path = step.folder / "results" / STAMP
    stamps = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    stamps[step.name] = stamp
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(stamps, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def scripts_of(step: Step) -> list[Path]:
    """The script and all modules of the search path that it imports or names, directly or not."""
    found: dict[Path, None] = {}
    waiting = [step.folder / step.script]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            for name in _modules(path.read_text(encoding="utf-8")):
                places = (folder / f"{name}.py" for folder in step.search_path)
                waiting += [place for place in places if place.exists()][:1]
    return sorted(found)


@functools.cache
def _modules(source: str) -> tuple[str, ...]:
    """Names of modules that a source imports, or whose files it names, in order."""
    return tuple(sorted(set(_named(source))))


def _named(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^(\w+)(?:\.py$|:)", node.value)


@functools.cache
def digest_of_code(source: str) -> str:
    """Of a module without its docstrings and comments, so that words change no result."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return _digest("\n".join(line for line in lines if line.strip() and not line.strip().startswith("#")).encode())


@functools.cache
def _digest_of_rooms(names: Sequence[str]) -> str:
    paths = [path for name in names for path in _sources(ROOT / "autoselect" / name)]
    return _digest("".join(f"{p.relative_to(ROOT)} {digest_of_code(p.read_text('utf-8'))}\n" for p in paths).encode())


def _sources(place: Path) -> list[Path]:
    left_out = {ROOT / "autoselect" / name for name in _ELSEWHERE}
    return [place] if place.is_file() else sorted(set(place.rglob("*.py")) - left_out)


@functools.cache
def _digest_of_tables(folder: Path) -> str:
    """Of what the TOML files of a folder say, without their comments."""
    tables = {str(p.relative_to(folder)): tomllib.loads(p.read_text("utf-8")) for p in folder.rglob("*.toml")}
    return _digest(json.dumps(tables, sort_keys=True).encode())


def digest_of(place: Path) -> str:
    """Of a file, or of all files of a folder with their names; ``absent`` if it is not here."""
    if not place.exists():
        return "absent"
    if place.is_file():
        return _digest_of_file(place, _state(place))
    files = sorted(path for path in place.rglob("*") if path.is_file())
    lines = (f"{path.relative_to(place)} {_digest_of_file(path, _state(path))}\n" for path in files)
    return _digest("".join(lines).encode())


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@functools.cache
def _digest_of_file(path: Path, state: tuple[int, int]) -> str:
    """Read once for each state of the file."""
    return _digest(path.read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@functools.cache
def _packages() -> tuple[tuple[str, str], ...]:
    from autoselect.cases.versions import versions

    return tuple(versions().items())
