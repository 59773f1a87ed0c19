"""Single steps from a candidate: one unit in another state, what that costs, and which step is worth it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autoselect.domain.recipe import Recipe
from autoselect.errors import UsageError
from autoselect.study.proposing.expectation import Likely
from autoselect.study.what_if.answer import WhatIf
from autoselect.study.what_if.changes import moved
from autoselect.study.what_if.choices import MOVES, STATES
from autoselect.study.what_if.questions import Forecast, Questions

GOALS = ("penalty", "size", "drop")
"""What a step may be to lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A step.

    Attributes:
        unit: Number of the unit that it moves.
        nodes: Names of its nodes.
        state: What they become: ``int8``, ``int16``, ``hybrid`` or ``float``.
        size_bytes: Of the candidate after it, which is exact.
        penalty: Likewise.
        drop: Expected after it, in the metric's units; None if nobody knows.
        drop_low: Lower end of an interval that holds nine in ten.
        drop_high: Its upper end.
        more_penalty: What it adds to the penalty.
        more_bytes: What it adds to the size.
        more_drop: What it adds to the expected drop, as answers tell the drops before and after it; None if nobody
            knows.
        guessed_more: The same if the drops before and after it are guessed, as of candidates that were not scored. So
            the start's own score, which may be better or worse than its guess, is in no step. None if nobody knows.
    """

    unit: int
    nodes: tuple[str, ...]
    state: str
    size_bytes: int
    penalty: float
    drop: float | None
    drop_low: float | None
    drop_high: float | None
    more_penalty: float
    more_bytes: int
    more_drop: float | None
    guessed_more: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step that is planned, or no step at all: then there is no unit."""

    unit: int
    state: str
    recipe: Recipe
    forecast: Forecast


def moves_from(questions: Questions, answer: WhatIf) -> list[Move]:
    """Each single step from a candidate that its target takes, in the order of units and states.

    All steps are planned, none is built, and the surrogate is asked once.
    """
    units = [tuple(sorted(unit.nodes)) for unit in questions.tried.problem.units]
    steps = list(_steps(questions, answer))
    guesses = _guessed(questions, steps)
    stay, *others = zip(steps, _told(questions, steps, guesses), guesses, strict=True)
    return [_move(stay, step, units[step[0].unit]) for step in others]


_Expected = tuple[_Step, Likely | None, Likely | None]
"""A step, what an answer tells of it, and what is guessed of it as of one who was not scored."""


def _move(before: _Expected, after: _Expected, nodes: tuple[str, ...]) -> Move:
    (start, *olds), (end, *news) = before, after
    more_drop, guessed = (
        None if new is None or old is None else new.drop - old.drop for old, new in zip(olds, news, strict=True)
    )
    new = news[0]
    return Move(
        unit=end.unit,
        nodes=nodes,
        state=end.state,
        size_bytes=end.forecast.plan.size_bytes,
        penalty=end.forecast.cut.penalty,
        drop=None if new is None else new.drop,
        drop_low=None if new is None else new.low,
        drop_high=None if new is None else new.high,
        more_penalty=end.forecast.cut.penalty - start.forecast.cut.penalty,
        more_bytes=end.forecast.plan.size_bytes - start.forecast.plan.size_bytes,
        more_drop=more_drop,
        guessed_more=more_drop if guessed is None else guessed,
    )


def _steps(questions: Questions, answer: WhatIf) -> Iterator[_Step]:
    """The candidate itself, then each step from it; of steps that make the same of all nodes the first.

    A step has the name of a state that a node of its unit gets: what has no hybrid form gets float.
    """
    place, pinned = questions.place_of(answer), questions.tried.problem.pinned
    start = questions.forecast(answer.recipe, place)
    yield _Step(unit=-1, state="", recipe=answer.recipe, forecast=start)
    met = {start.plan.kinds}
    numbers = {node.name: number for number, node in enumerate(questions.workshop.prepared.layers.nodes)}
    for i, unit in enumerate(questions.tried.problem.units):
        for state, option in MOVES.items():
            recipe = moved(answer.recipe, **{option: unit.nodes - pinned})
            if recipe == answer.recipe or (state == "int16" and not _has_int16(questions, answer)):
                continue
            forecast = questions.forecast(recipe, place)
            if STATES[state] not in {forecast.plan.kinds[numbers[name]] for name in unit.nodes}:
                continue
            if forecast.plan.kinds not in met and not questions.refusal(recipe, place, forecast):
                met.add(forecast.plan.kinds)
                yield _Step(unit=i, state=state, recipe=recipe, forecast=forecast)


def _has_int16(questions: Questions, answer: WhatIf) -> bool:
    """Whether 16-bit parts have been planned: to make them takes seconds, and the search did not have them."""
    return bool(questions.workshop.blueprint(answer.recipe, questions.place_of(answer)).int16_nodes)


def _guessed(questions: Questions, steps: Sequence[_Step]) -> list[Likely | None]:
    """What is expected of each candidate, as of one who was not scored; None where nobody knows."""
    tried = questions.tried
    indices = [i for i, step in enumerate(steps) if not tried.why_unknown(step.recipe, step.forecast.plan.kinds)]
    guesses: list[Likely | None] = [None] * len(steps)
    if tried.expectation is not None:
        masks = [tried.mask(steps[i].recipe) for i in indices]
        for i, likely in zip(indices, tried.expectation.likely_each(masks), strict=True):
            guesses[i] = likely
    return guesses


def _told(questions: Questions, steps: Sequence[_Step], guesses: Sequence[Likely | None]) -> list[Likely | None]:
    """What an answer tells of each candidate: by its own score if it has one, else the guess."""
    estimates = []
    for step, guess in zip(steps, guesses, strict=True):
        plan = step.forecast.plan
        estimates.append(questions.measured(step.recipe, plan, questions.tried.scored_as(step.recipe, plan)) or guess)
    return estimates


def cheapest(moves: Sequence[Move], goal: str) -> list[Move]:
    """The steps that lower a figure, what is worth most first.

    Steps to less penalty or size count by what they lower for each expected drop that they add; steps to less drop by
    what they lower for each penalty that they add. Those that add nothing come first, and of these what lowers most.
    What a step does to the drop is by one guess for both candidates; answers must tell less drop, too.

    Args:
        moves: Steps from one candidate.
        goal: One of ``GOALS``.

    Raises:
        UsageError: If there is no such goal, or nobody knows what steps lose.
    """
    if goal not in GOALS:
        raise UsageError(f"goal: expected one of {', '.join(GOALS)}; got {goal!r}.")
    if goal == "drop":
        if moves and all(move.more_drop is None for move in moves):
            raise UsageError("Nobody knows what such candidates lose, so no step can be chosen by it.")
        lower = [move for move in moves if move.more_drop is not None and move.more_drop < 0.0]
        return _ranked(lower, lambda move: -_or_nan(move.guessed_more), lambda move: move.more_penalty)
    if goal == "size":
        return _ranked(moves, lambda move: -float(move.more_bytes), lambda move: _or_nan(move.guessed_more))
    return _ranked(moves, lambda move: -move.more_penalty, lambda move: _or_nan(move.guessed_more))


def _ranked(moves: Sequence[Move], gain: Callable[[Move], float], price: Callable[[Move], float]) -> list[Move]:
    """The moves that gain, the best first; a step of an unknown price is behind all others."""

    def order(move: Move) -> tuple[int, float]:
        if math.isnan(price(move)):
            return 2, -gain(move)
        return (0, -gain(move)) if price(move) <= 0.0 else (1, -gain(move) / price(move))

    return sorted((move for move in moves if gain(move) > 0.0), key=order)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
