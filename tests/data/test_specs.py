from __future__ import annotations

import functools
import math
from pathlib import Path

import pytest

from autoselect.data.specs import code_hash, load_object, name_of
from autoselect.errors import AutoselectError, DataError, MetricError, UsageError

GOOD = """
def calibration():
    return 7

class Loader:
    @staticmethod
    def rows():
        return 8
"""
MODULES = {
    "spec_good.py": GOOD,
    "spec_raises.py": "raise RuntimeError('no licence')\n",
    "spec_exits.py": "import sys\nsys.exit(3)\n",
    "spec_needs.py": "import a_package_nobody_has\n",
    "spec_package/__init__.py": "",
    "spec_package/inner.py": "value = 9\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    return tmp_path


@pytest.mark.usefixtures("project")
def test_loads_from_the_current_directory() -> None:
    assert load_object("spec_good:calibration", purpose="data")() == 7
    assert load_object("spec_good:Loader.rows", purpose="data")() == 8
    assert load_object("spec_package.inner:value", purpose="data") == 9


REFUSED = {
    "no colon": ("spec_good", UsageError, "package.module:name"),
    "a file": ("spec_good.py:calibration", UsageError, "without '.py'"),
    "a folder": ("folder/spec_good:calibration", UsageError, "without folders"),
    "no name": ("spec_good:", UsageError, "package.module:name"),
    "two colons": ("spec_good:a:b", UsageError, "package.module:name"),
    "missing module": ("spec_god:calibration", UsageError, "Did you mean 'spec_good'"),
    "missing submodule": ("spec_package.iner:value", UsageError, "Did you mean 'inner'"),
    "missing package": ("nowhere_at_all.inner:value", UsageError, "no module 'nowhere_at_all.inner'"),
    "missing name": ("spec_good:calibraton", UsageError, "Did you mean 'calibration'"),
    "script": ("__main__:calibration", UsageError, "move it to a module"),
    "module raises": ("spec_raises:x", DataError, "RuntimeError: no licence"),
    "module exits": ("spec_exits:x", DataError, "SystemExit"),
    "module needs another": ("spec_needs:x", DataError, "a_package_nobody_has"),
}


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("spec", "kind", "words"), REFUSED.values(), ids=REFUSED)
def test_refuses(spec: str, kind: type[AutoselectError], words: str) -> None:
    with pytest.raises(kind) as caught:
        load_object(spec, purpose="scoring data")
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert str(caught.value).startswith("scoring data: ")


@pytest.mark.usefixtures("project")
def test_who_asks_decides_what_a_broken_module_raises() -> None:
    with pytest.raises(MetricError, match="no licence"):
        load_object("spec_raises:x", purpose="metric", broken=MetricError)


def test_the_hash_of_code_is_that_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number, text in enumerate(
        ("def f():\n    return g()\ndef g():\n    return 1\n",) * 2 + ("def f():\n    return 2\n",)
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "of_the_user.py").write_text(text)
        namespace: dict[str, object] = {}
        exec(compile(text, folder / "of_the_user.py", "exec"), namespace)
        found.append(code_hash(namespace["f"]))
    assert found[0] == found[1] != found[2]


def test_the_hash_of_code_without_a_file_is_that_of_what_it_does() -> None:
    made: list[object] = []
    for place, factor in (("<cell 1>", 2), ("<cell 2>", 2), ("<cell 3>", 3)):
        namespace: dict[str, object] = {}
        exec(compile(f"def f(x):\n    return [{factor} * y for y in x]\n", place, "exec"), namespace)
        made.append(code_hash(namespace["f"]))
    assert made[0] == made[1] != made[2]
    assert code_hash(len) is None


class Called:
    def __call__(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("function", "name"),
    [(math.sin, "sin"), (Called(), "Called"), (functools.partial(functools.partial(pow, 2), 3), "pow")],
)
def test_a_function_is_named_without_its_address(function: object, name: str) -> None:
    assert name_of(function) == name
