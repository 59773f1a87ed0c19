from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoselect.domain.graph import OpKind
from autoselect.domain.recipe import Recipe
from autoselect.domain.verdicts import judge
from autoselect.errors import TargetRefusal, TrialError, UsageError, WorkerDied
from autoselect.scoring import vela
from autoselect.scoring.target_file import read_target

U55 = read_target("ethos-u55-128")

FAKES = {
    "hangs": ("import time; time.sleep(60)", WorkerDied, r"took longer than 1 s"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", WorkerDied, r"died of SIGKILL"),
    "refuses": (
        "import sys; sys.exit('RuntimeError: Compilation failed: Error: no\\n - good\\nFailed to parse TFLite file')",
        TargetRefusal,
        r"Vela refuses the candidate for ethos-u55-128: no - good$",
    ),
    "fails without a word": ("import sys; sys.exit(3)", TargetRefusal, r"it gave no reason"),
}


@pytest.mark.parametrize(("program", "error", "words"), FAKES.values(), ids=FAKES)
def test_a_compiler_that_fails_costs_one_trial(program: str, error: type[TrialError], words: str) -> None:
    with pytest.raises(error, match=words):
        vela.compile_model(b"", U55, timeout_seconds=1.0, command=(sys.executable, "-c", program))


def test_without_vela_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match=r"pip install 'autoselect\[ethos-u\]'"):
        vela.require_vela()


def test_a_target_without_a_compiler_is_refused() -> None:
    with pytest.raises(UsageError, match="has no compiler"):
        vela.compile_model(b"", replace(U55, compiler=None), timeout_seconds=1.0)


def test_what_vela_makes_of_two_segments() -> None:
    pytest.importorskip("ethosu")
    from test_target_penalty import prepared

    node = prepared().nodes[2].name
    candidate = prepared().builder.build(Recipe(denylisted_nodes=frozenset({node}), fallback="float", io_type="int8"))
    found = vela.compile_model(candidate.content, U55, timeout_seconds=120.0)
    assert (found.segments, found.host_ops) == (2, {"DEQUANTIZE": 1, "CONV_2D": 1, "QUANTIZE": 1})
    assert found.crossing_bytes == 2 * 8 * 8 * 16
    assert found.cycles > 0
    # The CPU's part is the profile's: the float op and its conversions, and two crossings.
    host = sum(
        p.cost
        for p, op in zip(judge(candidate.graph, U55).placements, candidate.graph.ops, strict=True)
        if op.kind is not OpKind.INTEGER
    )
    assert found.cost == pytest.approx(found.cycles + host + 2 * (2000 + 0.25 * 8 * 8 * 16))


def test_vela_refuses_with_its_own_reason(tmp_path: Path) -> None:
    pytest.importorskip("ethosu")
    with pytest.raises(TargetRefusal, match="Vela refuses"):
        vela.compile_model(b"no model", U55, timeout_seconds=120.0)
