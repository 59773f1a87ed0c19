"""What the functions return: frozen values that read like mappings, shown in a line or two and as a table."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pump
import pytest

import autoselect
from autoselect.domain.words import counted
from autoselect.report.card import card_of

LONGEST = 2 * 180
"""Characters of two lines of a notebook."""


@pytest.fixture(scope="module")
def results(finished: autoselect.Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("results")
    model = finished.model_path("recommended")
    recipe = next((finished.directory / "front").glob("*.recipe.json"))
    return {
        "evaluate": autoselect.evaluate(model, evaluation=pump.HELDOUT, reference=pump.MODEL_PATH),
        "build": autoselect.build(
            recipe, model=pump.MODEL_PATH, calibration="pump:calibration", output=folder / "built.tflite"
        ),
        "pick": autoselect.pick(finished.directory, output=folder / "picked.tflite"),
        "inspect": autoselect.inspect(model, compare=[pump.MODEL_PATH]),
        "classification_report": autoselect.classification_report(model, evaluation=pump.HELDOUT),
        "check": autoselect.check(**pump.NAMED, output=folder / "none", repairs=False, workers=1),
    }


ALL = ["evaluate", "build", "pick", "inspect", "classification_report", "check"]


@pytest.mark.parametrize("name", ALL)
def test_a_result_is_a_frozen_mapping(results: dict[str, Any], name: str) -> None:
    found = results[name]
    assert isinstance(found, Mapping)
    for field in dataclasses.fields(found):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(found, field.name, None)
        if field.name in found:
            assert found[field.name] is getattr(found, field.name) or found[field.name] == getattr(found, field.name)
    assert list(dict(found)) == list(found)
    with pytest.raises(KeyError):
        found["no_such_thing"]
    json.dumps({name: str(value) for name, value in found.items()})


class Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def table_of(found: Any) -> Balance:
    read = Balance()
    read.feed(found._repr_html_())
    assert read.open == []
    return read


@pytest.mark.parametrize("name", ALL)
def test_a_result_is_shown_in_short(results: dict[str, Any], name: str) -> None:
    shown = repr(results[name])
    assert shown.startswith(f"{type(results[name]).__name__}(")
    assert "\n" not in shown
    assert len(re.sub(r"'/\S+'", "PATH", shown)) <= LONGEST
    assert table_of(results[name]).rows == len(results[name])


def test_a_run_is_shown_in_short(finished: autoselect.Run) -> None:
    assert repr(finished) == (
        f"Run({str(finished.directory)!r}, complete, {len(finished.trials)} trials, front of {len(finished.front)}, "
        f"picks: {', '.join(finished.picks)})"
    )
    shown = finished._repr_html_()
    for row in ("float", "all-integer", "recommended"):
        assert re.search(rf"<tr><td>{row}", shown), row
    assert table_of(finished).rows <= 5


def test_a_recipe_is_shown_in_short() -> None:
    recipe = autoselect.Recipe(denylisted_nodes=frozenset({"a", "b"}), repairs=("bias",))
    assert repr(recipe) == (
        "Recipe(denylisted_nodes=<2>, fallback='drq', per_channel=True, io_type='float32', repairs=<1>)"
    )


def test_the_drop_is_told_against_the_reference(results: dict[str, Any]) -> None:
    found = results["evaluate"]
    base = autoselect.evaluate(pump.MODEL_PATH, evaluation=pump.HELDOUT)
    assert base.drop is None
    assert found.drop == pytest.approx(base.score - found.score)
    assert found.direction == "maximize"


def test_a_card_has_the_hash_of_the_samples_that_were_split(finished: autoselect.Run, tmp_path: Path) -> None:
    path = Path(shutil.copytree(finished.directory, tmp_path / "run"), "manifest.json")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    del manifest["hashes"]["heldout"]
    path.write_text(json.dumps(manifest), encoding="utf-8")
    for run, is_split in ((finished, False), (autoselect.load_run(path.parent), True)):
        card, hashes = card_of(run, str(run.front["id"].iloc[0]), title="model"), run.manifest["hashes"]
        (row,) = [line for line in card.splitlines() if line.startswith("| heldout")]
        assert hashes["evaluation" if is_split else "heldout"] in row
        assert ("one set" in card) is is_split


def test_a_card_lies_beside_the_model(finished: autoselect.Run, results: dict[str, Any], tmp_path: Path) -> None:
    picked = results["pick"]
    card = Path(picked.card).read_text(encoding="utf-8")
    assert Path(picked.card) == Path(picked.path).with_suffix(".md")
    row = picked.row
    for told in (
        f"`{picked.sha256}`",
        f"{100 * row['heldout_accuracy']:.1f} ({100 * row['heldout_low']:.1f}–{100 * row['heldout_high']:.1f})",
        f"{counted(int(row['float_ops']), 'op')} in float",
        f", {counted(int(row['segments']), 'accelerator segment')}.",
        "quantized from `pump_monitor.tflite`",  # the folder is nobody's business
        f"| calibration | {pump.CALIBRATION_COUNT} |",
        f"- tensorflow {finished.manifest['versions']['tensorflow']}",
        "## Limits of use",
    ):
        assert told in card, told
    tables = [line for line in card.splitlines() if line.startswith("|")]
    assert "(s)" not in card
    assert str(Path(pump.MODEL_PATH).parent) not in card
    assert {line.count("|") for line in tables[:5]} == {tables[0].count("|")}
    (tmp_path / "taken.md").write_text("mine", encoding="utf-8")
    with pytest.raises(autoselect.AutoselectError, match=r"taken\.md .*--force"):
        autoselect.pick(finished.directory, output=tmp_path / "taken.tflite")
    assert not (tmp_path / "taken.tflite").exists()
