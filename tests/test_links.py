"""Every link to the repository agrees with the one place that says where it is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEW = "acme/quant.tools"
OURS = r"""(?x) (?:
    ^git\ clone\ https://github\.com/ | \bgit\+https://github\.com/ | colab\.research\.google\.com/github/
    | ^(?:Repository|Issues|Changelog)\ =\ "https://github\.com/ | ^repository-code:\ https://github\.com/
    | -\ uses:\ (?!actions/)
    ) ([\w.-]+/[\w.-]+)"""
"""Where a file links to its own repository: what to clone, install, open, read and use as an action."""


@pytest.fixture
def repository(script: Callable[[Path], ModuleType]) -> ModuleType:
    return script(ROOT / "docs" / "repository.py")


def ours(text: str) -> list[str]:
    return re.findall(OURS, text, flags=re.MULTILINE)


def test_all_links_agree(repository: ModuleType) -> None:
    found = {name: ours((ROOT / name).read_text(encoding="utf-8")) for name in repository.LINKED}
    assert [name for name, links in found.items() if not links] == []
    assert {link for links in found.values() for link in links} == {repository.chosen()}, "run `make links`"


def test_no_other_file_links_to_it(repository: ModuleType) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no checkout")
    paths = [
        name
        for name in listed.stdout.split("\0")
        if name.endswith((".md", ".py", ".toml", ".yml", ".ipynb", ".j2", ".cff"))
    ]
    linking = {name for name in paths if repository.chosen() in (ROOT / name).read_text(encoding="utf-8")}
    assert linking - {"docs/repository.py", "tests/test_links.py"} == set(repository.LINKED)


def test_one_line_changes_them_all(repository: ModuleType) -> None:
    old = repository.written((ROOT / "README.md").read_text(encoding="utf-8"))
    for name in repository.LINKED:
        text = (ROOT / name).read_text(encoding="utf-8")
        changed = repository.renamed(text, old, NEW)
        assert set(ours(changed)) == {NEW}
        assert changed.count(NEW) == text.count(old)
        assert repository.renamed(changed, NEW, old) == text


@pytest.mark.parametrize("address", ["REPOSITORY_URL", "https://gitlab.com/a/b", "https://github.com/a", ""])
def test_other_addresses_are_refused(repository: ModuleType, address: str) -> None:
    with pytest.raises(SystemExit, match="expected https"):
        repository.name_of(address)
