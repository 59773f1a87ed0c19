"""The package from outside: what importing it costs and which names it promises."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autoselect
from autoselect.api.told import Live
from autoselect.cases.declared import declared

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
    for heavy in ("tensorflow", "optuna", "matplotlib", "keras", "ai_edge_litert", "torch", "onnx", "onnxruntime"):
        assert heavy not in probes[0]["modules"]


@pytest.mark.parametrize("name", [n for n in autoselect.__all__ if n != "__version__"])
def test_public_name_can_be_loaded(name: str) -> None:
    assert callable(getattr(autoselect, name))


def test_public_names_are_listed() -> None:
    assert set(autoselect.__all__) == set(dir(autoselect))


def test_who_cites_it_names_this_version() -> None:
    root = Path(__file__).resolve().parents[1]
    cited = re.search(
        r"^version: (\S+)\ndate-released: (\S+)$", (root / "CITATION.cff").read_text("utf-8"), re.MULTILINE
    )
    assert cited is not None
    assert cited[1] == autoselect.__version__
    assert f"## [{cited[1]}] - {cited[2]}" in (root / "CHANGELOG.md").read_text("utf-8")


def test_type_checkers_read_of_each_object_that_may_be_given_anew() -> None:
    live = {name: option.type for name, option in declared().items() if option.live}
    assert set(Live.__annotations__) == set(live)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'serach'"):
        _ = autoselect.serach  # type: ignore[attr-defined]


def test_search_stays_the_function_after_its_modules_are_loaded() -> None:
    import autoselect.cases.events

    assert callable(autoselect.search)


MOST_PARAMETERS = 12


def test_only_functions_made_of_declared_settings_take_many_arguments() -> None:
    made = set()
    for path in sorted(Path(autoselect.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            told = node.args
            names = [a.arg for a in (*told.posonlyargs, *told.args, *told.kwonlyargs, told.vararg, told.kwarg) if a]
            assert len(set(names) - {"self", "cls"}) <= MOST_PARAMETERS, f"{path.name}:{node.lineno}"
            if any(
                ast.unparse(mark).startswith(("takes(", "with_live")) for mark in getattr(node, "decorator_list", ())
            ):
                made.add(getattr(node, "name", ""))
    functions = {name: getattr(autoselect, name) for name in autoselect.__all__}
    many = {
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and len(inspect.signature(function).parameters) > MOST_PARAMETERS
    }
    assert many == made
    assert made


NEWER: dict[str, set[str]] = {
    "contextlib": {"chdir"},
    "datetime": {"UTC"},
    "enum": {"EnumCheck", "ReprEnum", "StrEnum", "verify"},
    "itertools": {"batched"},
    "typing": {"LiteralString", "Never", "Self", "Unpack", "assert_never", "assert_type", "override", "reveal_type"},
}
"""Names of the standard library that the oldest Python lacks and that are easily taken for old ones."""


def test_the_package_takes_nothing_that_the_oldest_python_lacks() -> None:
    taken = [
        f"{path.name}:{node.lineno}: {node.module}.{name.name}"
        for path in sorted(Path(autoselect.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10)))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.name in NEWER.get(node.module or "", ())
    ]
    assert taken == []
