"""What each node can be, and why it cannot be something else; plans whole models, scores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoselect.compilers.opening import compiler_of
from autoselect.data.bundled import bundled_names
from autoselect.domain.recipe import Recipe
from autoselect.errors import UsageError
from autoselect.scoring.target_file import read_target
from autoselect.study.what_if.questions import Questions
from autoselect.study.what_if.tried import whole_recipe

STATES: Mapping[str, str] = {"int8": "integer", "int16": "int16", "hybrid": "hybrid", "float": "float"}
"""What a user calls the states of a node, and what plans call them."""

MOVES: Mapping[str, str] = {"int8": "int8", "int16": "int16", "hybrid": "deny", "float": "in_float"}
"""Which of the changes puts a node into a state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What one node can be.

    Attributes:
        name: Of the node.
        op_type: Its type.
        unit: Number of the unit that the search moves it with; None where no candidate has it otherwise.
        lacks: Why it has no such form, by state; states that it can have are missing.
    """

    name: str
    op_type: str
    unit: int | None
    lacks: Mapping[str, str]


def choices_of(questions: Questions) -> list[Choice]:
    """What each node of a run's model can be, in graph order.

    Raises:
        PreparationError: If planning fails.
    """
    workshop, problem = questions.workshop, questions.tried.problem
    place, nodes, template = workshop.place(), workshop.prepared.layers.nodes, workshop.settings.template
    names = [node.name for node in nodes]
    units = {name: i for i, unit in enumerate(problem.units) for name in unit.nodes}
    plans = {
        state: workshop.plan(whole_recipe(state, names, (), template), place).kinds
        for state in ("int8", "hybrid", "float")
    }
    wide = _lacking_int16(questions, template, names)
    choices = []
    for i, node in enumerate(nodes):
        lacks = {
            state: _NO_KERNEL[state] for state, kinds in plans.items() if kinds[i] not in (STATES[state], "folded")
        }
        if template.fallback == "float":
            lacks["hybrid"] = "the run's candidates have no hybrid nodes: what is left out of integers is float"
        if node.name in wide:
            lacks["int16"] = wide[node.name]
        choices.append(Choice(name=node.name, op_type=node.op_type, unit=units.get(node.name), lacks=lacks))
    return choices


_NO_KERNEL = {"int8": "it has no integer kernel", "hybrid": "it has no hybrid form", "float": "it has no float form"}


def _lacking_int16(questions: Questions, template: Recipe, names: list[str]) -> dict[str, str]:
    """Nodes without a 16-bit form, and why."""
    workshop = questions.workshop
    try:
        blueprint = workshop.blueprint(whole_recipe("int16", names, names, template), workshop.place())
    except UsageError as exc:
        return dict.fromkeys(names, str(exc))
    with_form = set(blueprint.int16_nodes)
    return {
        name: blueprint.no_int16.get(i, "it has no such kernel").rstrip(".")
        for i, name in enumerate(names)
        if i not in with_form
    }


def targets_at_hand(own: str) -> list[str]:
    """The targets that can be asked about, that of the run first: the bundled ones but those without their compiler."""
    return list(dict.fromkeys([own, *filter(_is_at_hand, bundled_names("targets"))]))


def _is_at_hand(name: str) -> bool:
    try:
        for chip in read_target(name).asked:
            compiler_of(chip).require()
    except UsageError:
        return False
    return True
