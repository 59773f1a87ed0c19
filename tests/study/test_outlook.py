from __future__ import annotations

import pytest

from autoselect.study.outlook import probe_samples


@pytest.mark.parametrize(
    ("search_samples", "expected"), [(0, 8), (1, 2), (15, 2), (16, 2), (24, 3), (63, 7), (64, 8), (1000, 8)]
)
def test_a_probe_takes_an_eighth_of_a_candidate_between_two_and_eight(search_samples: int, expected: int) -> None:
    assert probe_samples(search_samples) == expected
