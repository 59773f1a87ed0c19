"""Whom the recommended model harms, and the graphs of the picks, as rows of the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import made_run as made
import pytest

from autoselect.domain.quantities import possible
from autoselect.embedded import model_bytes
from autoselect.report.page import graphs, nodes, recommended
from autoselect.report.page.page import context, page_of
from autoselect.runs.files import write_table
from autoselect.runs.run import Run

CLASSES = "number,support,float_right,right,agreed\n0,50,40,40,50\n1,50,40,30,38\n2,50,30,33,45\n3,50,40,40,46\n"
SAMPLES = "index,group,sqnr_db,label,float_answer,answer\n17,pump 3,-2.0,1,1,0\n4,,11.5,0,0,0\n9,,200.0,0,0,0\n"


def test_the_classes_that_lose_most_come_first_then_those_with_other_answers(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    assert recommended.class_rows(run) == []
    (tmp_path / "heldout_classes.csv").write_text(CLASSES)
    rows = recommended.class_rows(run)
    assert [(row["name"], row["change"], row["changed"]) for row in rows] == [
        (1, "−10", 12),
        (3, "0", 4),
        (0, "0", 0),
        (2, "+3", 5),
    ]
    assert [row["share"] for row in rows] == [1.0, 0.0, 0.0, pytest.approx(0.3)]


def test_samples_equal_to_floats_are_none_of_the_furthest(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    (tmp_path / "heldout_samples.csv").write_text(SAMPLES)
    rows = recommended.sample_rows(run)
    assert [(row["index"], row["group"], row["sqnr"]) for row in rows] == [
        ("17", "pump 3", "−2.0 dB"),
        ("4", "", "11.5 dB"),
    ]
    html = page_of(run)
    assert "Samples furthest" in html
    assert "By class" not in html


def test_graphs_are_those_of_the_picks_whose_files_are_there(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    assert graphs.graphs(run, {}) == []
    wanted = run.summary["picks"]["balanced"]
    (tmp_path / "front").mkdir()
    (tmp_path / "front" / f"{wanted}.tflite").write_bytes(model_bytes())
    (found,) = graphs.graphs(run, {})
    assert (found["id"], found["picks"]) == (wanted, ["compact", "balanced"])
    assert len(found["ops"]) == 22
    for place, (_, kind, _, shape, macs, _, sources) in enumerate(found["ops"]):
        assert kind == "float"
        assert shape.startswith("float32 1×")
        assert macs >= 0
        assert all(source < place for source in sources)
    (again,) = graphs.graphs(run, {found["ops"][3][2]: 11})
    assert again["ops"][3][2] == 11
    assert list(context(run)["op_kinds"]) == ["float"]


def islands(run: Run, without: str, drop: str) -> list[tuple[str, str]]:
    pick = run.summary["picks"]["accurate"]
    (run.directory / "islands.csv").write_text(
        "id,nodes,size_bytes,penalty,id_without,drop_without,drop_gain\n"
        f'{pick},"[""block_0/node_1/Relu;block_0/node_1/BiasAdd""]",10,1.0,{without},{drop},0.0131\n'
    )
    return [(row["buys"], row["source"]) for row in nodes.island_rows(run, nodes.node_rows(run))]


def test_what_an_island_buys_is_said_on_held_out_samples_where_both_models_were_scored_there(tmp_path: Path) -> None:
    run = made.made_run(tmp_path)
    integer = run.trials.iloc[0]
    pick = run.front.iloc[0]
    drops = run.summary["references"]["fiq"]["heldout"], pick["heldout_accuracy"]
    expected = f"{100 * (drops[1] - drops[0]):.1f} points"
    assert islands(run, integer["id"], str(integer["drop"] + 0.05)) == [(expected, "held-out samples")]
    assert islands(run, "0000000000", str(pick["drop"] + 0.05)) == [("5.0 points", "search samples")]
    assert islands(run, "", "") == [("about 1.3 points", "estimate")]


def test_a_forecast_of_a_penalty_is_told_from_what_was_compiled(tmp_path: Path) -> None:
    """Forecasts of points are exact."""
    run = made.made_run(tmp_path)
    islands(run, "", "")
    (points,) = nodes.island_rows(run, nodes.node_rows(run))
    on_chip = replace(run, summary={**run.summary, "compiler": {"name": "Vela"}})
    (forecast,) = nodes.island_rows(on_chip, nodes.node_rows(on_chip))
    islands(run, str(run.trials.iloc[0]["id"]), "0.05")
    (compiled,) = nodes.island_rows(on_chip, nodes.node_rows(on_chip))
    assert [row["penalty"] for row in (points, forecast, compiled)] == ["+1.00", "about +1.00", "+1.00"]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("accuracy", 0.0, 1.0),
        ("mse", 0.0, float("inf")),
        ("penalty", 0.0, float("inf")),
        ("sqnr_db", float("-inf"), float("inf")),
        ("module:mine", float("-inf"), float("inf")),
    ],
)
def test_what_is_possible(name: str, least: float, most: float) -> None:
    assert possible(name) == (least, most)


def test_an_island_of_many_long_names_is_on_the_page(tmp_path: Path) -> None:
    names = ";".join(f"block_{i}/Relu" for i in range(20_000))
    path = tmp_path / "islands.csv"
    write_table(path, ("id", "nodes"), [{"id": "a", "nodes": names}])
    assert nodes.read_table(path, frozenset({"nodes"})) == [{"id": "a", "nodes": names}]
