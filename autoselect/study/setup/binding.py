"""Binds a search space to a prepared case, with the pins of the user and of the target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from autoselect.cases.declared import declared
from autoselect.cases.prepare import Case
from autoselect.cases.settings import SearchSettings
from autoselect.domain.layers import names_in_float
from autoselect.domain.recipe import match_nodes, match_op_type
from autoselect.domain.search_space import BoundSpace
from autoselect.errors import RecipeError, UsageError
from autoselect.study.setup.problem import units_of
from autoselect.study.setup.space_file import SearchSpaceFile, bind
from autoselect.study.setup.target_rules import pins_of


def bind_case(space_file: SearchSpaceFile, case: Case, settings: SearchSettings) -> tuple[BoundSpace, tuple[str, ...]]:
    """Bind the space, with the pins of the user and of the target; and what the user should know of the latter."""
    keep_float, keep_int = (
        _pinned(getattr(settings, name), case, declared()[name].names) for name in ("keep_float", "keep_int")
    )
    decided = pins_of(case, settings, keep_float=keep_float, keep_int=keep_int)
    parts = units_of(case)
    space = bind(
        space_file,
        case.layers,
        keep_float=keep_float | decided.keep_float,
        keep_int=keep_int | decided.keep_int,
        units=parts,
    )
    # What moves together has 16 bits together, or not at all.
    barred = frozenset(name for unit in parts if not decided.not_int16.isdisjoint(unit) for name in unit)
    return replace(space, further=settings.states[1:], not_int16=barred), decided.messages


def _pinned(patterns: Iterable[str], case: Case, option: str) -> frozenset[str]:
    """Nodes that the user's names, globs and op types cover."""
    found: set[str] = set()
    types, floats = case.layers.op_types, names_in_float(case.graph, case.layers.nodes)
    for pattern in patterns:
        try:
            is_type = pattern in {*types.values(), *floats.values()}
            found.update((match_op_type if is_type else match_nodes)(pattern, types, floats))
        except RecipeError as exc:
            kinds = sorted(set(types.values()))
            raise UsageError(f"{option}: {exc} Op types of this model: {', '.join(kinds)}.") from exc
    return frozenset(found)
