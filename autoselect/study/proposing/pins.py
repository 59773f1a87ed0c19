"""Makes proposals keep what a user decided of nodes, whatever earlier trials had. Knows names and masks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from autoselect.domain.pinned import Pins
from autoselect.domain.states import APART, SIXTEEN
from autoselect.domain.words import some
from autoselect.errors import UsageError
from autoselect.study.proposing.mask import Mask, Units, bits
from autoselect.study.proposing.problem import Hold, Problem


def holding(problem: Problem, pins: Pins) -> Hold:
    """Make the function that changes any candidate of a problem so that it keeps the user's pins.

    A unit of ``keep_float`` stays as it is if it is out of integers; else it gets the cheapest such state.

    Raises:
        UsageError: If pins put a unit into two states, or into one that the run does not give it.
    """
    out, integer, wide = (_units(problem, nodes, name) for name, nodes in pins.named.items())
    _refuse_both(problem, {"keep_int": integer, "keep_int16": wide, "keep_float": out})
    if wide and SIXTEEN not in problem.states:
        raise UsageError("keep_int16: the search of this run has no 16-bit nodes. Leave it out, or start a new run.")
    sixteen = problem.states.index(SIXTEEN) if wide else 0
    outside = next(place for place in problem.by_cost if problem.states[place] not in APART)

    def hold(mask: Mask) -> Mask:
        mask = problem.in_forms(mask.without(integer))
        mask = problem.put(mask, wide, sixteen) if wide else mask
        inside = out & ~problem.out_of_integers(mask)
        return problem.put(mask, inside, outside) if inside else mask

    _refuse_formless(problem, "keep_int", integer & problem.not_int8, "form in 8 bits")
    held = hold(Mask())
    _refuse_formless(problem, "keep_int16", wide & ~held.within(sixteen), "16-bit form")
    _refuse_formless(problem, "keep_float", out & ~problem.out_of_integers(held), "form outside of integers")
    return hold


def _units(problem: Problem, nodes: frozenset[str], name: str) -> Units:
    """The units of pinned nodes. Of a node that is in none the state is settled: then it must be this one.

    Raises:
        UsageError: If it is another.
    """
    units = problem.units_of(sorted(nodes))
    free = frozenset[str]().union(*(problem.units[i].nodes for i in units))
    settled = {node: "keep_float" if node in problem.pinned else "keep_int" for node in nodes - free}
    if strange := sorted(node for node, state in settled.items() if state != name):
        raise UsageError(
            f"{name}: the run keeps {some(strange, 3)} {_WORDS[settled[strange[0]]]} in every candidate, because of "
            "its target, its search space or its own pins. Leave it out."
        )
    return sum(1 << i for i in units)


_WORDS = {"keep_float": "out of integers", "keep_int": "in integers"}


def _refuse_both(problem: Problem, pinned: Mapping[str, Units]) -> None:
    for (name, units), (other, others) in combinations(pinned.items(), 2):
        if both := bits(units & others):
            nodes = sorted(problem.units[both[0]].nodes)
            raise UsageError(
                f"{name} and {other} both cover {some(nodes, 3)}, which the search moves together. Leave it out of one."
            )


def _refuse_formless(problem: Problem, name: str, units: Units, form: str) -> None:
    if lacking := bits(units):
        nodes = sorted(problem.units[lacking[0]].nodes)
        raise UsageError(f"{name}: {some(nodes, 3)} has no {form} in this run. Leave it out.")
