"""Objects named as ``package.module:name``; knows imports, not what the objects are for."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from autoselect.domain.words import did_you_mean
from autoselect.errors import AutoselectError, DataError, UsageError


def name_of(function: object) -> str:
    """The qualified name of a function, of the one inside a partial function, or of a callable object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def load_object(spec: str, *, purpose: str, broken: type[AutoselectError] = DataError) -> Any:
    """Import the object that ``package.module:name`` names.

    The current directory becomes importable, as with ``python -m``, and stays so: what is loaded
    may import its neighbours later.

    Args:
        spec: Module and name, joined by a colon. The name may hold dots (``module:Class.method``).
        purpose: What the object is for, the first words of every message: ``"the metric"``.
        broken: What is raised if the module itself raises while it is imported.

    Raises:
        UsageError: If the spec is malformed, or its module or name does not exist.
        AutoselectError: Of the type ``broken``.
    """
    module_name, attribute = _parts(spec, purpose)
    target: Any = _imported(module_name, spec, purpose, broken)
    for name in attribute.split("."):
        target = _member(target, name, spec, purpose)
    return target


def code_hash(function: object) -> str | None:
    """A hash of the code of a user's function: of the file that it lies in, with all that it calls there.

    Returns:
        SHA-256, hex, where there is such a file, else of the function's own bytecode; None where it has neither.
    """
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    try:
        return hashlib.sha256(Path(inspect.getfile(cast(Any, function))).read_bytes()).hexdigest()
    except (TypeError, OSError):  # typed into a session, or built in
        return None if code is None else hashlib.sha256(repr(_instructions(code)).encode()).hexdigest()


def _instructions(code: CodeType) -> tuple[object, ...]:
    """What a function does, without where it was written."""
    constants = [_instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return (code.co_code, code.co_names, constants)


def _parts(spec: str, purpose: str) -> tuple[str, str]:
    module_name, colon, attribute = spec.partition(":")
    words = [*module_name.split("."), *attribute.split(".")]
    if not colon or module_name.endswith(".py") or not all(word.isidentifier() for word in words):
        raise UsageError(
            f"{purpose}: expected 'package.module:name', got {spec!r}. Write the module with dots, without "
            "'.py' and without folders, then a colon and the name, and start in the folder that holds it."
        )
    return module_name, attribute


def _imported(module_name: str, spec: str, purpose: str, broken: type[AutoselectError]) -> ModuleType:
    if module_name == "__main__":
        raise UsageError(
            f"{purpose}: {spec!r} is of the script that runs, and another process has another one. Give the function "
            "itself, or move it to a module of its own."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as exc:  # The user's module may raise anything.
        if isinstance(exc, ModuleNotFoundError) and f"{module_name}.".startswith(f"{exc.name}."):
            raise UsageError(_no_module(module_name, spec, purpose)) from exc
        raise broken(
            f"{purpose}: expected module {module_name!r} to import, but it raised "
            f"{type(exc).__name__}: {exc}. Make `python -c 'import {module_name}'` work first."
        ) from exc


def _no_module(module_name: str, spec: str, purpose: str) -> str:
    parent, _, last = module_name.rpartition(".")
    folders = list(getattr(sys.modules.get(parent), "__path__", [])) if parent else [str(Path.cwd())]
    hint = did_you_mean(last, [module.name for module in pkgutil.iter_modules(folders)])
    return (
        f"{purpose}: expected an importable module in {spec!r}, but there is no module {module_name!r}"
        f".{hint} Start in the folder that holds it, or install its package."
    )


def _member(owner: Any, name: str, spec: str, purpose: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError as exc:
        public = [other for other in dir(owner) if not other.startswith("_")]
        holder = getattr(owner, "__name__", type(owner).__name__)
        raise UsageError(
            f"{purpose}: expected {holder!r} to hold {name!r} (from {spec!r}), but it does not"
            f".{did_you_mean(name, public)} Give a name defined at the top level of the module."
        ) from exc
