"""The demo keeps what the README says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import autoselect


@pytest.mark.slow
def test_the_demo_keeps_its_claims(tmp_path: Path) -> None:
    run = autoselect.demo(output=tmp_path / "run")
    references = run.summary["references"]
    assert references["float"]["size_bytes"] < 500_000
    assert references["fiq"]["heldout"] <= references["float"]["heldout"] - 0.03
    as_good = run.front[run.front["heldout_accuracy"] >= references["float"]["heldout"] - 0.005]
    assert as_good["float_macs_share"].min() < 0.5
    recommended = run.front.set_index("id").loc[run.picks["recommended"]]
    assert recommended["float_ops"] == 0
    assert recommended["heldout_drop"] <= run.summary["allowed_drop"]
    assert run.trials["reused"].mean() < 0.1  # What is known is hardly ever proposed again.
    assert autoselect.resume(run.directory).picks == run.picks
