"""Functions that take declared settings; says what callers, editors and the documentation read of them."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar, cast

from autoselect.cases.declared import declared, told_of
from autoselect.cases.settings import SearchSettings
from autoselect.cases.shared_settings import Settings, SharedSettings
from autoselect.data.kinds import Samples

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Function = TypeVar("_Function", bound=Callable[..., object])


class Live(TypedDict, total=False):
    """Settings whose values may be Python objects that no file can keep, such as a function.

    Only type checkers read this class.
    """

    model: Any
    calibration: Samples | None
    integer: str | Path | bytes | None
    evaluation: Samples | None
    metric: str | Callable[..., float] | None
    evaluator: str | Callable[..., Any] | None
    heldout: Samples | None


def takes(
    settings: Callable[_Arguments, Settings],
) -> Callable[[Callable[[Settings], _Result]], Callable[_Arguments, _Result]]:
    """Make a function of settings one of keyword arguments, with their types, defaults and sentences.

    The function gets the settings as they were given, not checked yet.

    Args:
        settings: A class of settings, from whose fields type checkers take the arguments.
    """
    kind = cast("type[Settings]", settings)
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=option.type)
        if option.argument
        else inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
        for name, option in declared(kind).items()
        if option.only != "shell"
    ]

    def change(function: Callable[[Settings], _Result]) -> Callable[_Arguments, _Result]:
        signature = inspect.signature(function).replace(parameters=parameters)
        wrapper = _called_as(function, signature, lambda given: function(kind.model_construct(None, **given)))
        return explained(wrapper, kind)

    return change


def _called_as(
    function: Callable[..., _Result], signature: inspect.Signature, call: Callable[[dict[str, Any]], _Result]
) -> Callable[..., _Result]:
    """The function with another signature; it is called with the arguments by their names."""

    @functools.wraps(function)
    def told(*args: object, **kwargs: object) -> _Result:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as exc:
            raise TypeError(f"{function.__name__}() {exc}") from None
        return call(given)

    del told.__wrapped__  # which readers of signatures would follow
    told.__signature__ = signature  # type: ignore[attr-defined]
    return told


def with_live(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Spell out the ``**live`` of a function: what may be an object of one process alone, each None by default."""
    written = inspect.signature(function)
    first, *own = [p for p in written.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    live = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option.type)
        for name, option in declared().items()
        if option.live
    ]
    signature = written.replace(parameters=[first, *live, *own])
    called = cast("Callable[..., _Result]", function)
    return explained(_called_as(called, signature, lambda given: called(**given)))


def explained(function: _Function, kind: type[SharedSettings] = SearchSettings) -> _Function:
    """Add what is declared of its settings to the arguments that the docstring of a function explains."""
    text = inspect.getdoc(function)
    if text is None:  # Python was told to leave docstrings out (-OO).
        return function
    before, after = re.split(r"^(?=Returns:|Raises:)", text, maxsplit=1, flags=re.MULTILINE)
    head, _, block = before.partition("Args:\n")
    own = {entry[1]: entry[0] for entry in re.finditer(r"^    (\w+):.*(?:\n {5}.*)*", block, flags=re.MULTILINE)}
    lines = [own.get(name) or _sentences(name, kind) for name in inspect.signature(function).parameters]
    function.__doc__ = "\n".join([f"{head}Args:", *lines, "", after])
    return function


def _sentences(name: str, kind: type[SharedSettings]) -> str:
    text = textwrap.fill(f"{name}: {told_of(name, kind, in_python=True)}", 100, break_on_hyphens=False)
    return textwrap.indent(text.replace("\n", "\n    "), "    ")
