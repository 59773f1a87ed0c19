from __future__ import annotations

import pytest
from reviewing import Reviewed

from autoselect.domain import words


@pytest.mark.parametrize(
    ("metric", "drop", "expected"),
    [
        pytest.param("accuracy", 0.021, "loses 2.1 points", id="share"),
        pytest.param("accuracy", 0.01, "loses 1.0 point", id="one point"),
        pytest.param("accuracy", -0.003, "gains 0.3 points", id="gain"),
        pytest.param("accuracy", 0.0, "loses nothing", id="nothing"),
        pytest.param("accuracy", 0.0004, "loses 0.04 points", id="small"),
        pytest.param("my.module:loss", 0.25, "is 0.25 loss worse", id="metric of one's own"),
        pytest.param("mse", -0.25, "is 0.25 mse better", id="less of an error"),
        pytest.param("accuracy", 1e-6, "loses less than 0.01 points", id="next to nothing"),
    ],
)
def test_a_drop_in_words(metric: str, drop: float, expected: str) -> None:
    assert words.lost(drop, metric) == expected


def test_closeness_is_said_as_it_is(reviewed: Reviewed) -> None:
    said = [words.lost(166.3, "sqnr_db"), words.lost_at_most(166.3, "sqnr_db"), words.asked(180.0, "sqnr_db")]
    reviewed("closeness", [*said, words.between(151.0, 167.0, "sqnr_db")])
    assert words.between(-9.0, 9.0, "sqnr_db") == "191 to 200 dB"
    assert words.between(-9.0, -1.0, "sqnr_db") == "200 to 200 dB"
    assert (words.within(180.0, "sqnr_db"), words.within(0.01, "accuracy")) == ("at least 20 dB", "within 1.0 point")


def test_bounds_and_limits_in_words(reviewed: Reviewed) -> None:
    bounds = [(0.012, "accuracy"), (-0.012, "accuracy"), (1e-6, "accuracy"), (0.2, "kl_divergence")]
    limits = [words.asked(drop, "accuracy") for drop in (0.01, -0.01)]
    limits += [words.asked(0.015, "accuracy", missed_by=drop) for drop in (0.01517, 0.02)]
    limits += [words.asked(180.0, "sqnr_db", missed_by=180.01), words.asked(-0.005, "accuracy", missed_by=-0.0049)]
    reviewed("bounds and a limit", [*(words.lost_at_most(*bound) for bound in bounds), *limits])


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        pytest.param(-0.005, 0.003, "0.5 points gained to 0.3 points lost", id="either"),
        pytest.param(0.002, 0.005, "0.2 points to 0.5 points lost", id="lost"),
        pytest.param(-0.005, -0.002, "0.2 points to 0.5 points gained", id="gained"),
        pytest.param(0.0, 0.0, "nothing lost", id="neither"),
    ],
)
def test_an_interval_in_words(low: float, high: float, expected: str) -> None:
    assert words.between(low, high, "accuracy") == expected


def test_an_integer_model_with_float_ops_is_not_all_integer(reviewed: Reviewed) -> None:
    assert [words.all_integer(count) for count in (None, 0, 1, 2)] == [
        "all-integer",
        "all-integer",
        "integer, 1 float op",
        "integer, 2 float ops",
    ]
    reviewed("integer models without and with float ops", map(words.whole_model, (0, 1)))


def test_scores_numbers_and_names(reviewed: Reviewed) -> None:
    assert words.said(0.928, "accuracy") == "92.8 % accuracy"
    assert words.said(31.4159, "psnr") == "31.42 dB"
    assert words.amount(-0.02, "agreement") == "2.0 points"
    assert words.listed([]) == ""
    reviewed("lists of names", [words.listed(list("abc")[:n]) for n in (1, 2, 3)])
    assert words.label("my_package.scores:rmse") == "rmse"
    assert [words.counted(n, "node") for n in (1, 3000)] == ["1 node", "3,000 nodes"]
