"""The page on architecture says what the contracts say, and every room says what it is."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS: dict[str, Any] = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}
ROOMS = sorted(path.parent for path in (ROOT / "autoselect").rglob("__init__.py") if path.parent.name != "autoselect")


def layers(contract: str) -> list[set[str]]:
    return [set(layer.split(" | ")) for layer in CONTRACTS[contract]["layers"]]


def test_the_picture_has_the_layers_of_the_contract() -> None:
    picture = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert picture is not None
    assert [set(line.replace("└─", " ").split()) for line in picture[1].splitlines()] == layers("layers")


@pytest.mark.parametrize("room", ["study", "quantize", "report"])
def test_the_table_has_the_rooms_within_a_room(room: str) -> None:
    row = re.search(rf"^\| `{room}` \| (.*) \|$", PAGE, re.MULTILINE)
    assert row is not None
    named = [set(re.findall(r"`(\w+)`", part)) for part in row[1].split(", ")]
    assert named == layers(room)[: len(named)]
    within = {path.name for path in ROOMS if path.parent.name == room}
    assert within <= set.union(*named)


@pytest.mark.parametrize("room", [path.name for path in ROOMS if path.parent.name == "autoselect"])
def test_every_room_has_its_sentence(room: str) -> None:
    assert re.search(rf"\*\*`{room}`\*\*", PAGE)


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: ".".join(path.parts[path.parts.index("autoselect") + 1 :]))
def test_every_room_says_what_it_is_and_what_it_refuses_to_know(room: Path) -> None:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    assert said is not None
    what, _, refused = said.partition("\n\n")
    assert what.endswith(".")
    assert refused.startswith("It refuses to ")


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`((?:cases|study|runs|quantize)(?:\.\w+)+)`", PAGE))))
def test_what_the_page_names_is_there(named: str) -> None:
    parts = named.split(".")
    for depth in range(len(parts), 0, -1):
        path = ROOT.joinpath("autoselect", *parts[:depth])
        if path.is_dir() or path.with_suffix(".py").exists():
            break
    if rest := parts[depth:]:
        assert re.search(rf"^(?:def|class) {rest[0]}\b", path.with_suffix(".py").read_text(), re.MULTILINE)
    else:
        assert path.is_dir() or path.with_suffix(".py").exists()
