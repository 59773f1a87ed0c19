"""The package from outside: what importing it costs and which names it promises."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import autoselect

_PROBE = """
import json, sys, time
start = time.perf_counter()
import autoselect
print(json.dumps({"seconds": time.perf_counter() - start, "modules": sorted(sys.modules)}))
"""


def _fresh_import() -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_import_is_fast_and_loads_nothing_heavy() -> None:
    probes = [_fresh_import() for _ in range(3)]
    assert min(float(str(probe["seconds"])) for probe in probes) < 0.3
    for heavy in ("tensorflow", "optuna", "matplotlib", "keras", "ai_edge_litert"):
        assert heavy not in probes[0]["modules"]


@pytest.mark.parametrize("name", [n for n in autoselect.__all__ if n != "__version__"])
def test_public_name_can_be_loaded(name: str) -> None:
    assert callable(getattr(autoselect, name))


def test_public_names_are_listed() -> None:
    assert set(autoselect.__all__) == set(dir(autoselect))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'serach'"):
        _ = autoselect.serach  # type: ignore[attr-defined]


def test_search_stays_the_function_after_its_modules_are_loaded() -> None:
    import autoselect.cases.events

    assert callable(autoselect.search)
