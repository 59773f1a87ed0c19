from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.picks import PICK_NAMES, FrontMember, named_picks


def member(
    name: str, drop: float, size: float, penalty: float, noise: float = 0.0, fidelity: float = 0.0
) -> FrontMember:
    return FrontMember(id=name, drop=drop, noise=noise, fidelity=fidelity, size_bytes=size, penalty=penalty)


FLOAT_SIZE, FLOAT_PENALTY = 1000.0, 100.0
INTEGER, MIXED, FLOAT = (
    member("integer", 0.05, 250, 0.0),
    member("mixed", 0.004, 300, 10.0),
    member("float", 0.0, 1000, 100.0),
)


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        pytest.param([INTEGER], ["integer"] * 4, id="one member is every pick"),
        pytest.param([INTEGER, MIXED, FLOAT], ["float", "mixed", "mixed", "mixed"], id="a knee between the ends"),
        pytest.param(
            # Within its noise, the integer member is as accurate as float: a control, where nothing is to be gained.
            [member("integer", 0.004, 250, 0.0, noise=0.006), member("float", 0.0, 1000, 100.0)],
            ["float", "integer", "integer", "integer"],
            id="noise buys no float ops",
        ),
        pytest.param(
            [member("worse", 0.09, 250, 0.0), member("bad", 0.05, 400, 30.0)],
            ["bad", "bad", "bad", "bad"],
            id="nothing within the allowed drop: the closest",
        ),
        pytest.param(
            [member("tiny", 0.005, 250, 40.0), member("small", 0.006, 299, 5.0), member("large", 0.001, 301, 2.0)],
            ["large", "large", "small", "large"],
            id="files within 5 % of the float file are equally small",
        ),
        pytest.param(
            [member("a", 0.0, 300, 20.0), member("b", 0.0, 280, 20.0), member("c", 0.0, 300, 10.0)],
            ["c", "c", "c", "c"],
            id="ties in the drop go to the lower penalty",
        ),
        pytest.param(
            [member("b", 0.0, 300, 20.0), member("a", 0.0, 300, 20.0)],
            ["a", "b", "a", "a"],
            id="equal members: the first id, and for balanced the first member",
        ),
        pytest.param(
            [member("better", -0.02, 300, 10.0), member("integer", 0.0, 290, 0.0)],
            ["better", "integer", "integer", "integer"],
            id="better than float counts as no drop for the knee",
        ),
        pytest.param(
            [
                member("lucky", -0.02, 300, 10.0, fidelity=20.0),
                member("close", 0.002, 310, 12.0, noise=0.005, fidelity=40.0),
                member("closest", 0.02, 900, 90.0, noise=0.005, fidelity=60.0),
            ],
            ["close", "lucky", "lucky", "lucky"],
            id="accurate: of those within their noise of no drop, the closest to float",
        ),
    ],
)
def test_picks_by_hand(front: list[FrontMember], expected: list[str]) -> None:
    picks = named_picks(front, allowed_drop=0.01, float_size_bytes=FLOAT_SIZE, float_penalty=FLOAT_PENALTY)
    assert picks == dict(zip(PICK_NAMES, expected, strict=True))


def test_an_empty_front_has_no_picks() -> None:
    assert named_picks([], allowed_drop=0.01, float_size_bytes=FLOAT_SIZE, float_penalty=FLOAT_PENALTY) == {}


FRONTS = st.lists(
    st.tuples(st.integers(-3, 9), st.integers(0, 4), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=6
).map(
    lambda rows: [
        member(f"m{i}", drop / 100, size * 100, float(penalty), noise=noise / 100)
        for i, (drop, noise, size, penalty) in enumerate(rows)
    ]
)


@given(FRONTS)
def test_compact_and_integer_keep_to_the_allowed_drop(front: list[FrontMember]) -> None:
    picks = named_picks(front, allowed_drop=0.02, float_size_bytes=FLOAT_SIZE, float_penalty=FLOAT_PENALTY)
    drops = {m.id: m.drop for m in front}
    limit = max(0.02, min(drops.values()))
    assert drops[picks["compact"]] <= limit
    assert drops[picks["integer"]] <= limit
    noise = {m.id: m.noise for m in front}
    assert drops[picks["accurate"]] <= max(min(drops.values()), 0.0) + noise[picks["accurate"]]


# Drops over the allowed 0.01 (the worst of the front is 0.02, so 0.02 is the unit), then the two costs.
KNEES = {
    "the nearest to the ideal": ([[0.9, 0.9], [0.1, 0.1], [0.0, 1.0]], "b"),
    "another cost, another knee": ([[0.0, 0.0], [0.9, 0.9], [1.0, 0.0]], "a"),
}


@pytest.mark.parametrize(("costs", "expected"), KNEES.values(), ids=KNEES)
def test_the_knee_weighs_the_costs_that_it_is_given(costs: list[list[float]], expected: str) -> None:
    front = [member("a", 0.0, 300, 9.0), member("b", 0.01, 300, 9.0), member("c", 0.02, 300, 9.0)]
    limits = {"allowed_drop": 0.01, "float_size_bytes": FLOAT_SIZE, "float_penalty": FLOAT_PENALTY}
    assert named_picks(front, **limits, costs=np.array(costs))["balanced"] == expected
