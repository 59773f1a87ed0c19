"""What pages show of experiments is what the results hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENTS = ROOT / "experiments"
PAGES = sorted(
    str(path.relative_to(ROOT))
    for place in ("README.md", "docs/**/*.md", "experiments/README.md", "experiments/*/README.md")
    for path in ROOT.glob(place)
    if "<!-- results:" in path.read_text(encoding="utf-8")
)


@pytest.fixture
def pages(script: Callable[[Path], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """experiments/pages.py, with modules of its own."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    for name in ("studies", "shown"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return script(EXPERIMENTS / "pages.py")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_the_results_hold(pages: ModuleType, name: str) -> None:
    """If not: ``python experiments/pages.py`` writes it anew, and what the page concludes is to be read again."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert pages.written(text) == text


def test_most_studies_have_their_tables_written(pages: ModuleType) -> None:
    """A study that keeps results shows them by comments, and says what made them."""
    written = {source.split("/")[0] for name in PAGES for source in pages.sources_of((ROOT / name).read_text("utf-8"))}
    stamped = {path.parents[1].name for path in EXPERIMENTS.glob("*/results/stamp.json")}
    assert stamped <= written
    for study in stamped:
        sources = pages.sources_of((EXPERIMENTS / study / "README.md").read_text(encoding="utf-8"))
        assert f"{study}/stamp" in sources


def test_which_results_are_not_of_today(pages: ModuleType) -> None:
    """Lists them, and fails for none: a full pass takes a night. The summary of pytest shows the reason of a skip."""
    steps = pages.studies.read_steps()
    stale = {
        step.id: reason
        for step in steps.values()
        if step.results and not step.once and (reason := pages.studies.why_stale(step, steps))
    }
    if stale:
        told = "; ".join(sorted(stale))
        pytest.skip(f"{len(stale)} of {len(steps)} steps are not of today, see experiments/all.py --list: {told}")


@pytest.fixture
def results(pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results of another repository's one study."""
    folder = tmp_path / "experiments" / "sums" / "results"
    folder.mkdir(parents=True)
    (folder / "table.md").write_text("Said.\n\n| a |\n|---|\n| 1 |\n\n| b |\n|---|\n| 2 |\n", encoding="utf-8")
    (folder.parent / "page.py").write_text("def total():\n    return '3 %'\n", encoding="utf-8")
    monkeypatch.setattr(pages.studies, "ROOT", tmp_path)
    monkeypatch.setattr(pages.studies, "HERE", tmp_path / "experiments")
    return folder


def test_blocks_and_parts_of_lines_are_written_and_all_else_stays(pages: ModuleType, results: Path) -> None:
    text = (
        "Before.\n<!-- results: sums/table.md 2 -->\nold\n<!-- /results -->\n"
        "A total of <!-- results: sums/page.total -->7 %<!-- /results -->, all in all.\n"
    )
    assert pages.written(text) == (
        "Before.\n<!-- results: sums/table.md 2 -->\n\n| b |\n|---|\n| 2 |\n\n<!-- /results -->\n"
        "A total of <!-- results: sums/page.total -->3 %<!-- /results -->, all in all.\n"
    )
    assert pages.written(pages.written(text)) == pages.written(text)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("sums/table.md 3", "table.md has 2 tables"),
        ("sums/other.md", "there is no experiments/sums/results/other.md"),
        ("sums/page.mean", "experiments/sums/page.py has no such function"),
        ("words/page.mean", "there is no experiments/words/page.py"),
        ("sums/stamp", "no result of this study has a stamp"),
    ],
)
def test_a_source_that_is_not_there_is_told(pages: ModuleType, results: Path, source: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        pages.written(f"<!-- results: {source} -->\n<!-- /results -->")


def test_comments_that_are_not_in_pairs_are_told(pages: ModuleType, results: Path) -> None:
    with pytest.raises(ValueError, match="in pairs"):
        pages.written("<!-- results: sums/table.md 1 -->\n| a |")


def test_the_command_writes_pages_and_says_which(
    pages: ModuleType, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    page.write_text("<!-- results: sums/page.total -->2 %<!-- /results -->", encoding="utf-8")
    with pytest.raises(SystemExit):
        pages.main(["--check"])
    assert "2 %" in page.read_text(encoding="utf-8")
    pages.main([])
    assert capsys.readouterr().out == "README.md\nREADME.md\n"
    pages.main(["--check"])
    assert "3 %" in page.read_text(encoding="utf-8")
