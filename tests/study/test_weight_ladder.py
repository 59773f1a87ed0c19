"""Which layers take fewer levels: choices of least noise for their bytes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from settling import settled

from autoselect.cases.level_jobs import Weighed
from autoselect.cases.settings import make_settings
from autoselect.cases.settled import RepairChoice
from autoselect.domain.repair_sets import label
from autoselect.errors import UsageError
from autoselect.scoring.target_file import read_target
from autoselect.study.search import _without_rungs
from autoselect.study.setup import weight_ladder
from autoselect.study.setup.target_rules import check_objectives
from autoselect.study.setup.weight_ladder import Ladder, ladder_of, with_rungs

BITS = range(4, 9)


def weighed(packed_at_4: list[float], noise_at_4: list[float], noise_at_6: list[float] | None = None) -> Ladder:
    """Nodes ``n0``, ``n1``, … whose weights take as many bytes as at 4 bits, and as many again for each 4 bits more."""
    coarse = zip(packed_at_4, noise_at_4, strict=True)
    at_6 = noise_at_6 or [noise / 16.0 for noise in noise_at_4]
    rows = {
        4: [Weighed(node=f"n{i}", bits=4, weights=9, packed_bytes=b, noise=n) for i, (b, n) in enumerate(coarse)],
        6: [
            Weighed(node=f"n{i}", bits=6, weights=9, packed_bytes=1.5 * b, noise=n)
            for i, (b, n) in enumerate(zip(packed_at_4, at_6, strict=True))
        ],
        8: [
            Weighed(node=f"n{i}", bits=8, weights=9, packed_bytes=2 * b, noise=math.nan)
            for i, b in enumerate(packed_at_4)
        ],
    }
    return ladder_of(rows, BITS)


def test_each_rung_has_fewer_bytes_than_the_one_before_and_more_noise() -> None:
    rng = np.random.default_rng(0)
    found = weighed(rng.uniform(10, 1000, 30).tolist(), (10.0 ** rng.uniform(-6, 0, 30)).tolist())
    rungs = range(len(found.rungs))
    assert len(found.rungs) == weight_ladder.RUNGS
    assert [found.bytes_of(k) for k in rungs] == sorted((found.bytes_of(k) for k in rungs), reverse=True)
    assert [found.noise_of(k) for k in rungs] == sorted(found.noise_of(k) for k in rungs)
    assert found.bytes_of(rungs[-1]) == pytest.approx(found.packed[:, 0].sum())


def test_no_other_choice_of_as_few_bytes_has_less_noise() -> None:
    rng = np.random.default_rng(1)
    found = weighed(rng.uniform(10, 100, 5).tolist(), (10.0 ** rng.uniform(-4, 0, 5)).tolist())
    every = np.array(list(itertools.product(range(len(BITS)), repeat=5)))
    places = np.arange(5)
    sizes, noise = (
        np.array([table[places, choice].sum() for choice in every]) for table in (found.packed, found.noise)
    )
    for rung in range(len(found.rungs)):
        rivals = noise[sizes <= found.bytes_of(rung) + 1e-9]
        assert found.noise_of(rung) <= rivals.min() + 1e-12


def test_noise_falls_by_four_with_each_bit_beyond_what_8_bits_have() -> None:
    found = weighed([10.0], [0.256], [0.02])
    by_bits = dict(zip(found.bits, found.noise[0].tolist(), strict=True))
    assert by_bits[8] == 0.0
    assert by_bits[4] == pytest.approx(0.256 * (1.0 - 4.0**-4))  # It was measured with 8 bits' noise in it.
    assert by_bits[6] == pytest.approx(0.02 * (1.0 - 4.0**-2))
    assert by_bits[5] == pytest.approx(0.256 / 4.0 * (1.0 - 4.0**-3))
    assert by_bits[7] == pytest.approx(0.02 / 4.0 * (1.0 - 4.0**-1))


def test_layers_whose_noise_is_not_known_or_that_save_nothing_do_no_harm() -> None:
    found = weighed([10.0, 0.0, 10.0], [math.nan, 0.1, 0.1])
    assert found.rungs
    assert np.isfinite([found.noise_of(k) for k in range(len(found.rungs))]).all()
    assert all(rung[0] == rung[1] == len(BITS) - 1 for rung in found.rungs)
    assert {row["noise"] for row in found.rows() if row["node"] == "n0" and row["bits"] != 8} == {""}
    assert not ladder_of({4: [], 8: []}, BITS).rungs


def test_rungs_are_repairs_of_single_nodes_and_their_labels_stay_short() -> None:
    found = weighed([10.0] * 40, np.linspace(0.1, 1.0, 40).tolist())
    last = len(found.rungs) - 1
    assert found.repairs(last) == tuple(f"levels-4:n{i}" for i in range(40))
    names = [label(("bias", *found.repairs(k))) for k in range(len(found.rungs))]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 50
    assert label(("bias", "levels-4:conv")) == "bias + levels-4:conv"


def test_each_rung_is_tried_with_corrected_biases_and_with_biases_as_they_are() -> None:
    ladder, own = weighed([10.0] * 4, [0.1, 0.2, 0.3, 0.4]), RepairChoice(common=("ranges-percentile",))
    choice = with_rungs(own, ladder, ("bias", "ranges-percentile"), ("ranges-percentile",))
    by_levels = {rung: set(ladder.repairs(rung)) for rung in range(len(ladder.rungs))}
    for rung, levels in by_levels.items():
        names = (f"weights {rung + 1}", f"weights {rung + 1} as they are")
        corrected, plain = (set(choice.sets[name]) for name in names)
        assert corrected - plain == {"bias"}
        assert plain == {"ranges-percentile", *levels}
        assert {choice.added_noise[name] for name in names} == {ladder.noise_of(rung)}
    assert choice.sets["none"] == own.common
    if_not_asked = with_rungs(own, ladder, own.common, own.common)
    assert len(if_not_asked.sets) == 1 + len(ladder.rungs)


def test_rows_tell_which_rungs_give_a_node_its_bits() -> None:
    found = weighed([10.0, 10.0], [0.001, 1.0])
    rows = [row for row in found.rows() if row["node"] == "n0"]
    assert [row["bits"] for row in rows] == list(BITS)
    assert [row["measured"] for row in rows] == [True, False, True, False, True]
    told = [int(rung) for row in rows for rung in str(row["rungs"]).split()]
    assert sorted(told) == list(range(1, len(found.rungs) + 1))
    assert set(rows[0]) == set(weight_ladder.COLUMNS)


def test_fewer_bits_are_refused_where_no_objective_counts_what_they_save() -> None:
    target = read_target("integer-only")
    with pytest.raises(UsageError, match="--objectives accuracy,download,penalty"):
        check_objectives(settled(weights=5), target)
    check_objectives(settled(weights=5, objectives=("accuracy", "download", "penalty")), target)
    check_objectives(settled(), target)
    with pytest.raises(UsageError, match=r"'flash' .*compiler"):
        check_objectives(settled(weights=5, objectives=("accuracy", "flash", "penalty")), target)
    check_objectives(settled(weights=5, objectives=("accuracy", "flash")), read_target("ethos-u55-128"))


@pytest.mark.parametrize("bits", [3, 9])
def test_bits_that_nobody_can_round_to_are_refused(bits: int) -> None:
    with pytest.raises(UsageError, match="weights"):
        make_settings(weights=bits)


def test_a_ladder_without_rungs_is_told() -> None:
    flat = weighed([], [])
    assert flat.rungs == ()
    [message] = _without_rungs(flat, settled(weights=4, objectives=("accuracy", "size"), target="tflm"))
    assert "--per-tensor" in message
    [message] = _without_rungs(flat, settled(weights=4, objectives=("accuracy", "size"), target="litert-cpu"))
    assert "--per-tensor" not in message
    assert _without_rungs(weighed([10.0], [1e-3]), settled(weights=4)) == []
