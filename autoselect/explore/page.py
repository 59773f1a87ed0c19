"""The page itself: one answer with everything in it, so that it works without the internet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoselect._version import __version__
from autoselect.domain.looks import LOOKS
from autoselect.report.page.page import asset, rendered

_OWN = "autoselect.explore"


def page_of(data: Mapping[str, Any], nonce: str) -> str:
    """The page as HTML.

    Args:
        data: What a session says of its run.
        nonce: Of the scripts that a browser may run.
    """
    return rendered(
        _OWN,
        "explore.html.j2",
        name=data["name"],
        version=__version__,
        directory=data["directory"],
        metric=data["metric_label"],
        data=dict(data),
        nonce=nonce,
        kinds=LOOKS,
        style=asset("templates/report.css"),
        page_style=asset("templates/explore.css", _OWN),
        graph_script=asset("templates/graph_view.js"),
        script=asset("templates/explore.js", _OWN),
        plotly=asset("vendor/plotly-basic.min.js"),
        dagre=asset("vendor/dagre.min.js"),
    )
