from __future__ import annotations

from typing import Any

import pytest

from autoselect.domain.objectives import Objective
from autoselect.domain.quantities import QUANTITIES, chosen_objectives, objectives_of
from autoselect.errors import UsageError

CHOSEN = {
    "a text": ("accuracy,size,penalty", ("accuracy", "size", "penalty")),
    "a text with spaces": (" accuracy , latency ", ("accuracy", "latency")),
    "names": (["accuracy", "size", "segments"], ("accuracy", "size", "segments")),
    "the metric comes first, the rest stay in order": ("penalty,accuracy,size", ("accuracy", "penalty", "size")),
    "four": ("accuracy,float_ops,arena_bytes,npu_cycles", ("accuracy", "float_ops", "arena_bytes", "npu_cycles")),
    "the metric's own name": ("psnr,crossing_bytes", ("accuracy", "crossing_bytes")),
}


@pytest.mark.parametrize(("names", "expected"), CHOSEN.values(), ids=CHOSEN)
def test_objectives_are_read_from_texts_and_names(names: str | list[str], expected: tuple[str, ...]) -> None:
    assert chosen_objectives(names, {"psnr"}) == expected


WRONG = {
    "unknown, the nearest": ("accuracy,sise", r"no objective 'sise'.*'size'"),
    "unknown, near a metric of one's own": ("psnrr,size", r"'psnrr'.*'psnr'"),
    "unknown and near nothing": ("accuracy,xyz", r"'xyz'. Objectives: accuracy, size, .*latency"),
    "empty": ("", r"no objective ''"),
    "another metric's name": ("top5,size", r"no objective 'top5'"),
    "twice": ("accuracy,size,size", r"'size' is named twice"),
    "twice by two names": ("accuracy,psnr,size", r"'accuracy' is named twice"),
    "one": ("accuracy", r"two to four objectives at once, got 1"),
    "five": ("accuracy,size,penalty,segments,latency", r"two to four objectives at once, got 5"),
    "a number": (3, r"names of objectives .*got 3"),
    "numbers": ([1, 2], r"names of objectives .*got \[1, 2\]"),
    "without the metric": ("size,penalty", r"must be the metric \('accuracy', or its own name\), got size, penalty"),
}


@pytest.mark.parametrize(("names", "words"), WRONG.values(), ids=WRONG)
def test_what_is_no_choice_is_told(names: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        chosen_objectives(names, {"psnr"})
    assert caught.value.exit_code == 2


def test_a_metric_that_is_called_like_a_quantity_does_not_hide_it() -> None:
    assert chosen_objectives("accuracy,size", {"size"}) == ("accuracy", "size")


def test_objectives_of_a_study() -> None:
    assert objectives_of(("accuracy", "latency", "size"), "psnr", "maximize") == (
        Objective(name="psnr", direction="maximize"),
        Objective(name="latency_ms", direction="minimize"),
        Objective(name="size_bytes", direction="minimize"),
    )


def test_columns_are_told_apart() -> None:
    assert len({quantity.column for quantity in QUANTITIES.values()}) == len(QUANTITIES)
