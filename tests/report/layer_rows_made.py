"""Made-up layer tables for the tests of figures and tables of a diagnosis."""

from __future__ import annotations

from typing import Any

import numpy as np

OPS = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "FULLY_CONNECTED")
LISTS = ("weight_minima", "weight_maxima", "weight_scales")


def made_rows(count: int, *, bad: tuple[int, ...] = (), ablated: bool = False, whole: bool = False) -> list[Any]:
    """Rows of healthy nodes, with rmse/scale of 2, 3, 4 … at ``bad``; row 1 has no error, row 2 an accumulated one."""
    rng = np.random.default_rng(count)
    rows = []
    for place in range(count):
        scale = float(rng.lognormal(-3, 1))
        row: dict[str, Any] = {
            "index": 2 * place,
            "op_name": OPS[place % len(OPS)],
            "tensor_name": f"net/block_{place // 4}/layer_{place}/a_rather_long_$tail$_of_<names>/BiasAdd",
            "scale": scale,
            "range": 255 * scale,
            "rmse/scale": float(rng.uniform(0.28, 0.4)),
            "sqnr_db": float(rng.normal(30, 3)),
            "verified": place != 2,
        }
        if ablated:
            row |= {"leave_one_in": float(rng.lognormal(-6, 2)), "leave_one_out": float(rng.uniform(0.01, 0.02))}
        if whole:
            growth = float("nan") if place == 0 else float(rng.uniform(0.7, 1.3))
            row |= {"travel_nsr": float(rng.lognormal(-6, 1)), "travel_rmse/scale": 0.5, "error_growth": growth}
        rows.append(row)
    for error, place in enumerate(bad, start=2):
        rows[place]["rmse/scale"] = float(error)
    rows[1]["rmse/scale"] = None
    return rows
