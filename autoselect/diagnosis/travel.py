"""How the error travels down the graph: accumulated at each node, and its growth from the nodes before."""

from __future__ import annotations

import math

from autoselect.domain.findings import Travel
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable


def travel(graph: Graph, accumulated: LayerTable) -> dict[str, Travel]:
    """Follow the accumulated error from node to node.

    Returns:
        By node name, in graph order; nodes without statistics are left out.
    """
    statistics = {n.index: s for n, s in zip(accumulated.nodes, accumulated.statistics, strict=True) if s is not None}
    powers = {index: float(10.0 ** (-figures.sqnr_db / 10.0)) for index, figures in statistics.items()}
    feeding = graph.nearest(powers)
    return {
        node.name: Travel(
            mean_squared_error=statistics[node.index].mean_squared_error,
            rmse_per_scale=statistics[node.index].rmse_per_scale,
            nsr=powers[node.index],
            growth=_growth(powers[node.index], [powers[i] for i in feeding[node.index]]),
        )
        for node in accumulated.nodes
        if node.index in statistics
    }


def _growth(power: float, before: list[float]) -> float:
    """Power over the largest before; NaN without any, infinite out of exact inputs."""
    largest = max((p for p in before if not math.isnan(p)), default=math.nan)
    if largest == 0.0:
        return math.inf if power > 0.0 else 1.0
    return power / largest
