"""The tutorial "A model by hand", step by step in a browser, on a run of the demo as `make demo` makes it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from asked_page import served
from opened_explore import agrees, settled, window
from PIL import Image

import autoselect
from autoselect.report.tables.frames import format_penalty

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def tour() -> Iterator[ModuleType]:
    """The script that writes the tutorial's table and pictures."""
    spec = importlib.util.spec_from_file_location("explore_tour", DOCS / "explore_tour.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["explore_tour"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["explore_tour"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return autoselect.demo(output=tmp_path_factory.mktemp("demo") / "run", workers=1).directory


@pytest.mark.slow
def test_what_the_search_did_not_try_is_said_to_be_unknown(browser: Browser, demo: Path) -> None:
    with served(demo) as (_, server), window(browser, server.url) as page:
        tried = [set(repairs) for repairs in server.get("/api/run")["repair_sets"]]
        own = set(autoselect.load_run(demo).what_if().recipe.repairs)
        lone = next(name for name in sorted(own) if own - {name} not in tried)
        page.click("#repairs-menu summary")
        page.uncheck(f"#repairs input[value='{lone}']")
        settled(page)
        answer = autoselect.load_run(demo).what_if(repairs=sorted(own - {lone}))
        assert answer.drop is None
        assert answer.unknown
        agrees(page, answer)
        assert f"Nobody knows what it would lose: {answer.unknown}" in page.inner_text("#answer")
        assert page.locator("#interval").is_hidden()
        assert page.locator("#plot").evaluate("e => e.data.find(t => t.name === 'this candidate').y") == []


@pytest.mark.slow
def test_a_person_who_knows_the_model_makes_by_hand_what_is_as_cheap_as_the_recommended_model(
    browser: Browser, demo: Path, tour: ModuleType
) -> None:
    recommended = autoselect.load_run(demo).what_if("recommended")
    pictures: list[str] = []
    with served(demo) as (_, server), window(browser, server.url) as page:
        steps = list(tour.by_hand(page, pictures.append))
    assert pictures == ["1", "2", "3", "4", "5"]
    assert [step.said for step in (steps[0], *steps[-2:])] == ["Start from all int8", "Score", "Tick three repairs"]
    run = autoselect.load_run(demo)
    nodes = [*run.what_if("int8").nodes]
    moved = [name for words, count in tour.KNOWN.items() for name in [n for n in nodes if words in n][:count]]
    asked = run.what_if("int8", int16=moved)  # On some processors the search has tried it by itself.
    made = run.trials[run.trials["number"] == asked.trial].iloc[0]
    assert made["penalty"] <= recommended.penalty
    assert made["drop"] <= recommended.allowed_drop
    shown = steps[-2].figures
    assert shown["scored drop"] == f"{100 * made['drop']:.2f}".replace("-", "−")
    assert shown["penalty"] == format_penalty(made["penalty"])
    assert shown["size"] == f"{made['size_bytes'] / 1e3:.1f} kB"
    repaired = run.what_if(made["id"], repairs=tour.REPAIRS)
    assert repaired.penalty <= recommended.penalty
    assert repaired.drop_high <= recommended.allowed_drop
    assert steps[-1].figures["within the limit"] == f"{100 * repaired.chance_within:.0f} %"


def test_the_tutorial_has_the_steps_and_pictures_of_the_script(tour: ModuleType) -> None:
    text = tour.TUTORIAL.read_text(encoding="utf-8")
    kept = tour.TABLE.search(text)
    assert kept is not None
    assert len(kept[0].splitlines()) == 2 + 1 + sum(tour.KNOWN.values()) + 2
    for words in tour.KNOWN:
        assert f"**{words}**" in text
    for number in range(1, 6):
        assert 10_000 < (DOCS / "images" / f"explore_{number}.png").stat().st_size < 160_000


def test_the_tutorial_shows_the_whole_film(tour: ModuleType) -> None:
    text = tour.TUTORIAL.read_text(encoding="utf-8")
    assert {(width, scheme) for width, _, scheme in tour.FILM} == {
        (w, s) for w in (1440, 820) for s in ("light", "dark")
    }
    film = {name.format(number): size for number in range(1, 6) for size, name in tour.FILM.items()}
    assert {path.name for path in (DOCS / "images").glob("explore_*")} == film.keys()
    for name, (width, height, scheme) in film.items():
        assert f"](images/{name})" in text
        with Image.open(DOCS / "images" / name) as picture:
            assert picture.size == (width, height)
            red, green, blue = picture.convert("RGB").getpixel((2, 2))
            assert (min(red, green, blue) > 200) is (scheme == "light")
    assert sum((DOCS / "images" / name).stat().st_size for name in film) < 1_000_000
