"""What a user pins for the trials to come is in every proposal, whatever is known already."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reviewing import Reviewed
from synthetic import synthetic

from autoselect.domain.pinned import Pins
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import states_of
from autoselect.errors import UsageError
from autoselect.study.proposing.mask import Mask, bits
from autoselect.study.proposing.observations import Seen
from autoselect.study.proposing.pins import holding
from autoselect.study.proposing.problem import Forecast, Problem, Unit
from autoselect.study.proposing.proposers import Proposer, random_masks
from autoselect.study.proposing.surrogate_proposer import SurrogateProposer
from autoselect.study.recording.manifest import pinned_in_words, pinned_trials

GROUPS = ("a", "bc", "d", "e", "fg", "h")
COSTS = {"int16": 1, "hybrid": 4, "float": 9}


def problem_of(*, int16: bool = True, narrow: str = "", not_int8: str = "", not_outside: str = "") -> Problem:
    """Units of one-letter nodes in the states hybrid, 16 bits and float; narrow ones have no 16-bit form."""
    space = BoundSpace(
        dimensions=(),
        keep_float=frozenset("x"),
        not_int8=frozenset(not_int8),
        not_outside=frozenset(not_outside),
    )

    def forecast(nodes: frozenset[str], further: Mapping[str, frozenset[str]], _repairs: object) -> Forecast:
        wide, exact = further.get("int16", frozenset()) - set(narrow), further["float"]
        left = nodes - (further.get("int16", frozenset()) & set(narrow)) - (space.not_outside - wide)
        states = {n: "int16" if n in wide else "float" if n in exact else "hybrid" for n in sorted(left)}
        penalty = float(sum(COSTS[state] for state in states.values()))
        return Forecast(100 + len(left), penalty, tuple(states.items()))

    units = [Unit(nodes=frozenset(g), op_type="ADD", position=i, sensitivity=0.1) for i, g in enumerate(GROUPS)]
    near = [frozenset({i - 1, i + 1} & set(range(len(GROUPS)))) for i in range(len(GROUPS))]
    return Problem(
        units,
        near,
        forecast,
        space=space,
        states=states_of("search", int16=int16),
    )


PINS = Pins(keep_float=frozenset("ah"), keep_int=frozenset("b"), keep_int16=frozenset("e"))
OUT, INTEGER, WIDE = 0b100001, 0b000010, 0b001000
EVERYTHING = OUT | INTEGER | WIDE | 0b010100


@st.composite
def masks(draw: Callable[..., int]) -> Mask:
    return Mask(*(draw(st.integers(0, 63)), (draw(st.integers(0, 63)), draw(st.integers(0, 63)))))


@given(masks())
def test_what_is_pinned_holds_and_all_else_stays(mask: Mask) -> None:
    problem = problem_of()
    held = holding(problem, PINS)(mask)
    assert problem.out_of_integers(held) & (OUT | INTEGER) == OUT
    assert held.left_out & INTEGER == 0
    assert held.within(problem.states.index("int16")) & WIDE == WIDE
    for unit in bits(EVERYTHING & ~(OUT | INTEGER | WIDE)):
        assert held.state_of(unit) == mask.state_of(unit)
    for unit in bits(OUT & problem.out_of_integers(mask)):
        assert held.state_of(unit) == mask.state_of(unit)
    assert holding(problem, PINS)(held) == held


@given(masks())
def test_without_pins_nothing_changes(mask: Mask) -> None:
    problem = problem_of()
    assert holding(problem, Pins())(mask) == mask == problem.hold(mask)


REFUSED: dict[str, tuple[Pins, str]] = {
    "one node in two": (
        Pins(keep_float=frozenset("d"), keep_int=frozenset("d")),
        "keep_int and keep_float both cover d, which the search moves together",
    ),
    "one unit in two": (
        Pins(keep_int=frozenset("b"), keep_int16=frozenset("c")),
        "keep_int and keep_int16 both cover b, c, which",
    ),
    "what is left out anyway": (Pins(keep_int=frozenset("x")), "keep_int: the run keeps x out of integers in every"),
    "what is in integers anyway": (Pins(keep_float=frozenset("y")), "keep_float: the run keeps y in integers in every"),
    "a form that is lacking": (Pins(keep_int16=frozenset("d")), "keep_int16: d has no 16-bit form in this run"),
}


@pytest.mark.parametrize(("pins", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_kept_is_told(pins: Pins, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        holding(problem_of(narrow="d"), pins)


@pytest.mark.parametrize(
    ("held", "pins", "words"),
    [
        ({"not_int8": "d"}, Pins(keep_int=frozenset("d")), "keep_int: d .* 8 bits"),
        ({"not_outside": "d"}, Pins(keep_float=frozenset("d")), "keep_float: d .* outside"),
    ],
)
def test_what_the_target_holds_cannot_be_kept_otherwise(held: dict[str, str], pins: Pins, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        holding(problem_of(**held), pins)  # type: ignore[arg-type]


def test_a_search_without_16_bits_keeps_none() -> None:
    with pytest.raises(UsageError, match="16-bit nodes"):
        holding(problem_of(int16=False), PINS)


def test_what_is_as_pinned_anyway_is_fine() -> None:
    hold = holding(problem_of(), Pins(keep_float=frozenset("x"), keep_int=frozenset("y")))
    assert hold(Mask(63)) == Mask(63)


PROPOSERS: dict[str, Callable[[Problem, int], Proposer]] = {
    "surrogate": lambda problem, seed: SurrogateProposer(problem, seed, 60),
    "random": random_masks,
}


@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("count", [8, 20])
def test_proposals_keep_pins_that_earlier_trials_do_not(name: str, count: int) -> None:
    """Of few units all candidates are listed, of many they are bred from trials that break the pins."""
    truth = synthetic(count, 3)
    seen = truth.run(PROPOSERS[name](truth.problem, 0), 16)
    out, integer = 0b0110, 0b1001
    pins = Pins(keep_float=frozenset({"n1", "n2"}), keep_int=frozenset({"n0", "n3"}))
    assert any(s.mask.left_out & 0b1111 != out for s in seen)
    truth.problem.hold = holding(truth.problem, pins)
    further = continued(PROPOSERS[name](truth.problem, 1), seen, truth.seen)
    assert len(further) == 12
    for one in further:
        assert one.mask.left_out & (out | integer) == out
    assert len({s.mask for s in (*seen, *further)}) == len(seen) + len(further)


def continued(proposer: Proposer, before: list[Seen], scored: Callable[[Mask], Seen], trials: int = 12) -> list[Seen]:
    found: list[Seen] = []
    for _ in range(trials):
        mask = proposer.propose([*before, *found], [])
        assert mask is not None
        found.append(scored(mask))
    return found


@pytest.mark.parametrize("name", PROPOSERS)
def test_proposals_end_where_pins_leave_nothing(name: str) -> None:
    truth = synthetic(6, 0)
    truth.problem.hold = holding(truth.problem, Pins(keep_int=frozenset(f"n{i}" for i in range(4))))
    seen = truth.run(PROPOSERS[name](truth.problem, 0), 30)
    assert {s.mask.left_out for s in seen} == {0, 0b010000, 0b100000, 0b110000}


def test_the_surrogate_learns_from_trials_that_break_the_pins() -> None:
    """It need not begin anew: the first proposals are as cheap as those of a search without the knowledge later on."""
    truth = synthetic(20, 3)
    seen = truth.run(SurrogateProposer(truth.problem, 0, 60), 30)
    truth.problem.hold = holding(truth.problem, Pins(keep_float=frozenset({"n5"})))
    knowing = continued(SurrogateProposer(truth.problem, 1, 60), seen, truth.seen, 8)
    afresh = truth.run(SurrogateProposer(truth.problem, 1, 60), 8)
    assert _best(knowing) <= _best(afresh)
    assert _best(knowing) < truth.problem.forecast(Mask(truth.problem.everything)).penalty


def _best(seen: list[Seen]) -> float:
    """The least penalty of those that lose little, in units of the dearest."""
    return min((s.penalty for s in seen if s.loss is not None and s.loss < 0.2), default=float("inf"))


def test_pins_are_told_by_their_names() -> None:
    assert Pins.of({"keep_float": "SOFTMAX", "keep_int": ["a", "b"]}) == Pins(
        keep_float=frozenset({"SOFTMAX"}), keep_int=frozenset("ab")
    )
    assert not Pins.of({})
    with pytest.raises(UsageError, match="keep_float, keep_int, keep_int16; got 'float'"):
        Pins.of({"float": ["a"]})


def test_the_manifest_says_which_trials_had_pins(reviewed: Reviewed) -> None:
    first = pinned_trials({}, 9, Pins(keep_int=frozenset("ba")))
    assert first == [
        {"first_trial": 10, "last_trial": None, "keep_float": [], "keep_int": ["a", "b"], "keep_int16": []}
    ]
    reviewed("trials under pins", pinned_in_words({"pinned": first}))
    (ended,) = pinned_trials({"pinned": first}, 13)
    assert (ended["first_trial"], ended["last_trial"]) == (10, 13)
    assert pinned_trials({"pinned": [ended]}, 20) == [ended], "What has ended stays."
    assert pinned_trials({"pinned": first}, 9) == [], "No trial was proposed under it."
    assert [one["first_trial"] for one in pinned_trials({"pinned": [ended]}, 20, PINS)] == [10, 21]
