"""Writes the address of the repository into every file that links to it: `make links`.

The one place to change is `Repository` in `pyproject.toml`. Which address the files have now, the README's `git clone`
says.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("README.md", "pyproject.toml", "CITATION.cff", "docs/notebook.ipynb", "docs/how-to/ci.md")


def name_of(address: str) -> str:
    """`OWNER/NAME` of an address; Colab and actions know only GitHub's."""
    found = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", address)
    if found is None:
        raise SystemExit(f"pyproject.toml: expected https://github.com/OWNER/NAME as Repository, got {address}.")
    return found[1]


def chosen() -> str:
    """The name that `pyproject.toml` says."""
    return name_of(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    )


def written(readme: str) -> str:
    """The name that the files have now."""
    return name_of(re.findall(r"^git clone (\S+)", readme, flags=re.MULTILINE)[0])


def renamed(text: str, old: str, new: str) -> str:
    """A file with its links led elsewhere."""
    return re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w-]|\.\w)", new, text)


if __name__ == "__main__":
    before, after = written((ROOT / "README.md").read_text(encoding="utf-8")), chosen()
    for path in map(ROOT.joinpath, LINKED):
        path.write_text(renamed(path.read_text(encoding="utf-8"), before, after), encoding="utf-8")
