"""What the page of a run says, asked of its rows and of its HTML; the browser's part is in test_page_browser."""

from __future__ import annotations

import ast
import inspect
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import made_run as made
import numpy as np
import pandas as pd
import pytest

import autoselect
from autoselect.cases.settings import make_settings
from autoselect.report.page import history as page_history
from autoselect.report.page import models as page_models
from autoselect.report.page import nodes as page_nodes
from autoselect.report.page.page import _packed, context, page_of, write_page

LIMIT_BYTES = 6_000_000


class Reader(HTMLParser):
    """Collects tags, and the text of each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def test_the_page_of_a_long_run_of_a_large_model_is_small_and_whole(tmp_path: Path) -> None:
    path = write_page(made.made_run(tmp_path, nodes=111, trials=300), tmp_path / "report.html")
    assert path.stat().st_size < LIMIT_BYTES
    html = path.read_text(encoding="utf-8")
    assert html.count("plotly.js (basic - minified)") == 1
    reader = read(html)
    loaded = [value for _, attrs in reader.tags for key, value in attrs.items() if key in ("src", "href") and value]
    assert [link for link in loaded if not link.startswith(("#", "data:,"))] == []


def test_names_are_text(tmp_path: Path) -> None:
    reader = read(page_of(made.made_run(tmp_path)))
    assert len(reader.scripts) == 5
    data = json.loads(reader.scripts[0])
    assert data["nodes"][0][1] == made.HOSTILE
    titles = [attrs.get("title") for _, attrs in reader.tags]
    assert made.HOSTILE in titles


def test_the_verdict_is_the_runs_own(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    headline, rest = "Recommended is 0123456789: it has a. b in its name.", "The rest. And more."
    run.summary.update(headline=headline, verdict=f"{headline} {rest}")
    assert (context(run)["headline"], context(run)["verdict"]) == (headline, rest)
    del run.summary["headline"]  # as in runs of earlier versions
    assert (context(run)["headline"], context(run)["verdict"]) == (f"{headline} {rest}", "")


def test_cards_hold_scores_interval_size_and_command(tmp_path: Path) -> None:
    run = made.made_run(tmp_path / "a folder")
    models = page_models.model_rows(run, {})
    cards = page_models.cards(run, models)
    assert [card["picks"] for card in cards] == [["accurate"], ["compact", "balanced"], ["integer"]]
    row = run.front.iloc[0]
    card = cards[0]
    assert (card["score"], card["samples"]) == (f"{100 * row['heldout_accuracy']:.1f} %", "held out")
    assert card["interval"] == f"{100 * row['heldout_low']:.1f} to {100 * row['heldout_high']:.1f}"
    assert card["command"] == f"autoselect pick '{run.directory}' --name accurate -o accurate.tflite"
    bar = card["bar"]
    assert 0 <= bar["low"] < bar["value"] < bar["high"] <= 100


def test_small_costs_of_a_chip_are_told_apart_on_the_cards(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    for table in (run.trials, run.front):
        table["penalty"] /= 1e4
    cards = page_models.cards(run, page_models.model_rows(run, {}))
    penalties = dict(zip(run.front["id"], run.front["penalty"], strict=True))
    assert [float(card["penalty"]) for card in cards] == [
        pytest.approx(penalties[card["id"]], rel=0.01, abs=1e-9) for card in cards
    ]


def test_every_trial_has_a_row_and_each_member_is_marked_once(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    again = run.trials[run.trials["id"] == run.front.loc[0, "id"]].assign(number=99, reused=True)
    object.__setattr__(run, "trials", pd.concat([run.trials, again], ignore_index=True))
    rows = page_models.model_rows(run, {made.HOSTILE: 0})
    assert len(rows) == len(run.trials)
    assert sorted(row["id"] for row in rows if row["front"]) == sorted(run.front["id"])
    failed = next(row for row in rows if row["state"] == "failed")
    assert (failed["score"], failed["error"]) == (None, "it <broke>")
    for row, recipe in zip(rows, run.trials["recipe"], strict=True):
        assert (row["nodes"] == [0]) == (made.HOSTILE in json.loads(recipe)["denylisted_nodes"])


def test_how_often_and_what_share_of_the_damage(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    (tmp_path / "sensitivity.csv").write_text(
        "tensor_name,unit,probe,estimate\n"
        + "".join(
            f'"{name}",{unit},1.0,{value}\n' for name, unit, value in (("a", 0, 3.0), ("b", 1, 1.0), ("c", 1, 1.0))
        )
    )
    object.__setattr__(run, "layer_statistics", pd.DataFrame({"tensor_name": ["a", "b", "c", "d"]}))
    members = run.front["id"].tolist()
    recipe = json.dumps({"denylisted_nodes": ["b"]})
    empty = json.dumps({"denylisted_nodes": []})
    run.trials["recipe"] = [recipe if name == members[0] else empty for name in run.trials["id"]]
    rows = page_nodes.node_rows(run)
    assert [row["buys"] for row in rows] == [0.75, 0.25, 0.25, None]
    assert [row["unit_size"] for row in rows] == [1, 2, 2, 1]
    assert [row["front"] for row in rows] == [0, 1 / len(members), 0, 0]


def test_each_node_says_what_is_broken_and_its_cheapest_cure(tmp_path: Path) -> None:
    run = made.made_run(tmp_path, nodes=4)
    shown = [row["cure"] for row in page_nodes.node_rows(run)]
    assert [(one["name"], one["broken"]) for one in shown[:3]] == [
        ("none needed", ""),
        ("corrected bias", "weights 31.0\N{NO-BREAK SPACE}dB"),
        ("16-bit activations", "activations −12.5\N{NO-BREAK SPACE}dB"),
    ]
    assert shown[3] is None
    assert "80% of" in shown[1]["reason"]
    assert "cheapest cure" in page_of(run)
    (tmp_path / "cures.csv").unlink()  # as in runs of earlier versions
    assert {row["cure"] for row in page_nodes.node_rows(run)} == {None}
    assert "heapest cure" not in page_of(run).partition('<script type="application/json"')[0]


def test_every_cure_has_a_word_of_its_own() -> None:
    told = {"none", "bias", "rounding", "range", "16 bit", "hybrid", "float"}
    assert set(page_nodes.CURED_BY) == told
    assert len(set(page_nodes.CURED_BY.values())) == len(told)


@pytest.mark.parametrize(
    ("reason", "fallback", "kind"),
    [
        pytest.param(None, "drq", "hybrid", id="as the recipe says"),
        pytest.param(None, "float", "float", id="float wanted"),
        pytest.param("no hybrid kernel", "drq", "float", id="no kernel"),
    ],
)
def test_strips_without_the_models_files(tmp_path: Path, reason: str | None, fallback: str, kind: str) -> None:
    run = made.made_run(tmp_path)
    name = "block_0/node_1/Relu;block_0/node_1/BiasAdd"
    run.trials["recipe"] = json.dumps({"denylisted_nodes": [name], "fallback": fallback})
    run.trials["fallbacks"] = json.dumps({name: reason} if reason else {})
    strip = page_nodes.strips(run, page_nodes.node_rows(run))[0]
    kinds = [part["kind"] for part in strip["runs"] for _ in range(part["length"])]
    assert kinds == ["integer", kind, *["integer"] * 10]


@pytest.mark.parametrize(("reason", "kind"), [(None, "int16"), ("it stays int8", "integer")])
def test_16_bit_nodes_are_drawn_and_the_legend_has_them_where_there_are_any(
    tmp_path: Path, reason: str | None, kind: str
) -> None:
    run = made.made_run(tmp_path)
    assert "int16" not in context(run)["kinds"]
    name = "block_0/node_1/Relu;block_0/node_1/BiasAdd"
    run.trials["recipe"] = json.dumps({"int16_nodes": [name]})
    run.trials["fallbacks"] = json.dumps({name: reason} if reason else {})
    found = context(run)
    assert [part["kind"] for part in found["strips"][0]["runs"]][:2] == ["integer", kind][: 2 if reason is None else 1]
    assert ("int16" in found["kinds"]) is (reason is None)


def test_other_limits_have_a_chart_and_a_table_that_say_the_same(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    found, table = context(run), pd.read_csv(tmp_path / "limits.csv", dtype={"id": str})
    points = found["data"]["allowed"]
    assert points["axis"] == "allowed drop, points"
    assert points["own"] == 100 * run.summary["allowed_drop"]
    np.testing.assert_allclose(points["drops"], 100 * table["allowed_drop"])
    assert points["ids"] == table["id"].tolist()
    np.testing.assert_allclose(points["penalty"], table["penalty"])
    assert points["low"] == table["penalty_low"].tolist()
    heading, *rows = found["allowed"]
    assert heading == ("allowed drop", "recommended", "penalty", "size", "chance to break")
    assert [row[1] for row in rows] == list(table["id"][table["id"] != table["id"].shift()])
    html = page_of(run)
    assert 'href="#allowed"' in html
    assert "Nine in ten resamples" in html
    assert all(f'data-label="recommended">{row[1]}</td>' in html for row in rows)


def test_limits_that_were_not_resampled_have_no_band_and_earlier_runs_no_section(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    table = pd.read_csv(tmp_path / "limits.csv")
    table.assign(penalty_low=None, penalty_high=None).to_csv(tmp_path / "limits.csv", index=False)
    assert set(context(run)["data"]["allowed"]["low"]) == {None}
    assert "Nine in ten resamples" not in page_of(run)
    (tmp_path / "limits.csv").unlink()
    assert (context(run)["allowed"], context(run)["data"]["allowed"]) == ([], None)
    assert 'href="#allowed"' not in page_of(run)


def test_hypervolume_never_falls_and_ends_at_its_whole(tmp_path: Path) -> None:
    run = made.made_run(tmp_path, trials=60)
    found = page_history.hypervolumes(run)
    assert len(found) == len(run.trials) - 1  # the failed trial is no evaluation
    values = [value for _, value in found]
    assert values == sorted(values)
    assert values[-1] == pytest.approx(1.0)


def test_hypervolume_of_two_candidates_by_hand(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    table = run.trials.iloc[:2].copy()
    table["accuracy"], table["size_bytes"], table["penalty"] = [0.5, 0.9], [10.0, 20.0], [0.0, 4.0]
    object.__setattr__(run, "trials", table)
    # In units of the spread the two are (1, 0, 0) and (0, 1, 1) below the corner (1.1, 1.1, 1.1).
    first = 0.1 * 1.1 * 1.1
    both = first + 1.1 * 0.1 * 0.1 - 0.1 * 0.1 * 0.1
    assert page_history.hypervolumes(run) == [(1, pytest.approx(first / both)), (2, pytest.approx(1.0))]


def test_racing_saves_the_samples_that_were_not_run(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    dropped = int((run.trials["state"] == "dropped").sum())
    saved = next(tile for tile in page_history.savings(run) if "saved by racing" in tile[1])
    assert saved[0] == f"{750 * dropped:,}"


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.24, "4.2 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")], ids=["s", "min", "h"]
)
def test_durations(seconds: float, text: str) -> None:
    assert page_history.duration(seconds) == text


@pytest.mark.parametrize("command", ["autoselect search model.tflite", None], ids=["typed", "from Python"])
def test_the_replay(tmp_path: Path, command: str | None) -> None:
    run = made.made_run(tmp_path)
    run.manifest["command"] = command
    told = page_history.replay(run)
    if command:
        assert told == command
    else:
        assert told.startswith("autoselect.search(\n    'models/made <i>up.tflite',\n    seed=3,")
        compile(told, "replay", "eval")


def test_the_replay_passes_what_the_function_takes(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    run.manifest.update(command=None, settings=make_settings(trials=7).model_dump())
    names = {found.arg for found in ast.walk(ast.parse(page_history.replay(run))) if isinstance(found, ast.keyword)}
    assert "trials" in names
    assert names <= set(inspect.signature(autoselect.search).parameters)


@pytest.mark.parametrize("kept", [0, 1, 2], ids=["nothing scored", "one trial", "two"])
@pytest.mark.parametrize("status", ["complete", "interrupted", "nothing_feasible"])
def test_small_runs_have_a_page(tmp_path: Path, kept: int, status: str) -> None:
    run = made.made_run(tmp_path, status=status)
    run.summary["references"] = run.summary["evaluated"] = {}  # as with an evaluator that has no split
    object.__setattr__(run, "trials", run.trials.iloc[:kept])
    object.__setattr__(run, "front", run.front[run.front["id"].isin(run.trials["id"])])
    run.summary["picks"] = {name: row.id for row in run.front.itertuples() for name in row.pick.split(",") if name}
    (tmp_path / "sensitivity.csv").unlink()
    (tmp_path / "islands.csv").write_text("id\nnonsense")
    html = page_of(run)
    assert re.search(r"<h1>made &lt;i&gt;up.tflite</h1>", html)
    assert ("scored yet." in html) == (run.front.empty)


def test_nodes_of_a_trial_are_bits_and_strips_have_an_end(tmp_path: Path) -> None:
    assert [_packed(places) for places in ([], [0], [1, 4], [0, 3, 9])] == ["0", "1", "12", "209"]
    strips = [{"id": str(i), "picks": "recommended" if i == 70 else ""} for i in range(90)]
    shown = [strip["id"] for strip in page_nodes.shown(strips)]
    assert shown == [*(str(i) for i in range(39)), "70"]
    assert page_nodes.shown(strips[:40]) == strips[:40]
