from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoselect.domain.layers import COLUMNS, STATISTICS, LayerStatistics, LayerTable, Node, table_from_rows

FINITE = st.floats(-1e6, 1e6)


def node(index: int, **changes: object) -> Node:
    name = f"n{index}"
    return Node(**{"index": index, "name": name, "op_type": "ADD", **changes})  # type: ignore[arg-type]


def measured(mse: float, scale: float = 1.0, **changes: object) -> LayerStatistics:
    values: dict[str, object] = {
        "tensor_index": 3,
        "num_elements": 8.0,
        "stddev": 0.1,
        "mean_error": 0.0,
        "max_abs_error": 0.5,
        "mean_squared_error": mse,
        "scale": scale,
        "zero_point": -4,
        "sqnr_db": 20.0,
        "verified": True,
    }
    return LayerStatistics(**{**values, **changes})  # type: ignore[arg-type]


def table(*errors: float | None) -> LayerTable:
    nodes = [node(i) for i in range(len(errors))]
    statistics = [None if e is None else measured(e) for e in errors]
    return LayerTable(nodes=tuple(nodes), statistics=tuple(statistics))


def test_derived_figures() -> None:
    figures = measured(0.25, scale=0.5)
    assert figures.range == 127.5
    assert figures.rmse_per_scale == 1.0
    assert math.isnan(measured(0.25, scale=0.0).rmse_per_scale)


@pytest.mark.parametrize(
    ("layers", "order"),
    [
        pytest.param(table(1.0, 3.0, 2.0), ["n1", "n2", "n0"], id="largest first"),
        pytest.param(table(2.0, 1.0, 2.0), ["n0", "n2", "n1"], id="ties in graph order"),
        pytest.param(table(None, 1.0, math.nan, 2.0), ["n3", "n1", "n0", "n2"], id="no figure comes last"),
        pytest.param(table(), [], id="no nodes"),
    ],
)
def test_ranking(layers: LayerTable, order: list[str]) -> None:
    assert layers.ranked_by("mean_squared_error") == order


def test_every_statistic_is_a_column_of_numbers() -> None:
    layers = table(0.25, None)
    expected = [8.0, 0.1, 0.0, 0.5, 0.25, 1.0, -4.0, 20.0, 255.0, 0.5]
    found = [layers.statistic(name) for name in STATISTICS]
    assert [column[0] for column in found] == expected
    assert all(np.isnan(column[1]) for column in found)
    with pytest.raises(KeyError):
        layers.statistic("verified")


def test_what_may_be_searched() -> None:
    layers = table(1.0, 1.0)
    assert len(layers) == 2
    assert dict(layers.op_types) == {"n0": "ADD", "n1": "ADD"}


@pytest.mark.parametrize(
    ("nodes", "statistics", "message"),
    [
        pytest.param((node(0),), (), "1 nodes but 0 statistics", id="lengths"),
        pytest.param((node(1), node(0)), (None, None), "graph order", id="order"),
    ],
)
def test_columns_that_do_not_fit(nodes: tuple[Node, ...], statistics: tuple[None, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LayerTable(nodes=nodes, statistics=statistics)


@st.composite
def tables(draw: st.DrawFn) -> LayerTable:
    names = draw(st.lists(st.text("ab/;:#1,\"'", min_size=1), unique=True, max_size=4))
    nodes = [
        node(
            i,
            name=n,
            macs=draw(st.integers(0, 10**9)),
        )
        for i, n in enumerate(names)
    ]
    figures = st.builds(
        measured,
        FINITE.map(abs),
        st.floats(1e-9, 10.0),
        mean_error=FINITE,
        zero_point=st.integers(-128, 127),
        tensor_index=st.integers(0, 500),
        verified=st.booleans(),
    )
    return LayerTable(nodes=tuple(nodes), statistics=tuple(draw(st.none() | figures) for _ in nodes))


@given(tables())
def test_rows_round_trip(layers: LayerTable) -> None:
    assert table_from_rows(layers.rows()) == layers


@given(tables())
def test_rows_round_trip_through_csv(layers: LayerTable) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(layers.rows())
    assert table_from_rows(list(csv.DictReader(io.StringIO(text.getvalue())))) == layers


def test_the_columns_of_a_row() -> None:
    row = table(0.25).rows()[0]
    assert tuple(row) == COLUMNS
    assert (row["op_name"], row["tensor_name"], row["tensor_idx"], row["rmse/scale"]) == ("ADD", "n0", 3, 0.5)
