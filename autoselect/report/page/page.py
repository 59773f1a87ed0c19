"""Writes ``report.html``: one file, no network, made of plain rows; computes nothing and runs no model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from autoselect._version import __version__
from autoselect.domain.looks import LOOKS, OF_NODES
from autoselect.domain.quantities import possible
from autoselect.domain.words import SHARES, label
from autoselect.report.page import chips as page_chips
from autoselect.report.page import graphs as page_graphs
from autoselect.report.page import history as page_history
from autoselect.report.page import models as page_models
from autoselect.report.page import nodes as page_nodes
from autoselect.report.page import recommended as page_recommended
from autoselect.report.tables.chip_results import asks_compiler
from autoselect.report.tables.frames import target_name
from autoselect.runs.files import plain, write_text
from autoselect.runs.run import Run

_STATUS = {
    "complete": "complete",
    "interrupted": "stopped early",
    "nothing_feasible": "complete; nothing meets the limits",
}


def write_page(run: Run, path: Path) -> Path:
    """Write the page of a run.

    Raises:
        StorageError: If it cannot be written.
    """
    write_text(path, page_of(run))
    return path


def page_of(run: Run) -> str:
    """The page of a run as HTML."""
    return rendered(
        "autoselect.report",
        "report.html.j2",
        **context(run),
        style=asset("templates/report.css"),
        script=asset("templates/report.js"),
        graph_script=asset("templates/graph_view.js") + asset("templates/graph.js"),
        plotly=asset("vendor/plotly-basic.min.js"),
        dagre=asset("vendor/dagre.min.js"),
    )


def rendered(package: str, template: str, **shown: Any) -> str:
    """A page of a package's folder ``templates``; it may include templates of the report."""
    loader = ChoiceLoader([PackageLoader(package), PackageLoader("autoselect.report")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["words"] = _words
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":"), "allow_nan": False}
    return environment.get_template(template).render(**shown)


def context(run: Run) -> dict[str, Any]:
    """Everything that the template shows, as plain rows; ``data`` is what the page's script works on."""
    nodes = page_nodes.node_rows(run)
    places = {node["name"]: place for place, node in enumerate(nodes)}
    models, strips = page_models.model_rows(run, places), page_nodes.strips(run, nodes)
    graphs = page_graphs.graphs(run, places)
    heldout = any(row["heldout"] for row in models)
    references = page_models.reference_points(run)
    metric, on_chip = str(run.summary["metric"]), asks_compiler(run.summary)
    verdict = _unbroken(str(run.summary["verdict"]))
    headline = _unbroken(str(run.summary.get("headline") or verdict))
    return {
        "model": model_name(run),
        "version": __version__,
        "directory": str(run.directory),
        "status": _STATUS.get(run.status, run.status),
        "counts": run.summary.get("counts") or {},
        "evaluated": run.summary.get("evaluated") or {},
        "metric": label(metric),
        "headline": "No candidate has been scored yet." if run.front.empty else headline,
        "verdict": "" if run.front.empty else verdict.removeprefix(headline).strip(),
        "ended_early": run.summary.get("ended_early"),
        "cards": page_models.cards(run, models),
        "nodes": nodes,
        "estimated": page_nodes.has_estimates(run),
        "thresholds": page_nodes.THRESHOLDS,
        "cured": any(node["cure"] for node in nodes),
        "limits": page_nodes.LIMITS,
        "strips": page_nodes.shown(strips),
        "more_strips": len(strips) - len(page_nodes.shown(strips)),
        "kinds": {
            kind: OF_NODES[kind] for kind in OF_NODES if any(p["kind"] == kind for s in strips for p in s["runs"])
        },
        "graphs": graphs,
        "chips": page_chips.sections(run),
        "chip": target_name(run.summary) if on_chip else "",
        "target": target_name(run.summary),
        "integers_are_free": bool(run.trials.loc[run.trials["origin"] == "baseline:fiq", "penalty"].eq(0.0).any()),
        "chip_names": list(dict.fromkeys(chip["name"] for graph in graphs for chip in graph.get("chips", ()))),
        "op_kinds": {op[1]: LOOKS[op[1]] for graph in graphs for op in graph["ops"] if op[1] in LOOKS},
        "heldout": heldout,
        "members": [row for row in models if row["front"]],
        "allowed": page_models.allowed_rows(run),
        "classes": page_recommended.class_rows(run),
        "class_count": page_recommended.class_count(run),
        "samples": page_recommended.sample_rows(run),
        "islands": page_nodes.island_rows(run, nodes),
        "levels": page_recommended.level_rows(run, {node["name"]: node["short"] for node in nodes}),
        "stages": page_history.stages(run),
        "savings": page_history.savings(run),
        "facts": page_history.facts(run),
        "replay": page_history.replay(run),
        "warnings": page_history.warnings_of(run),
        "advice": page_history.advice(run),
        "data": plain(
            {
                "metric": {
                    "label": label(metric),
                    "share": metric in SHARES,
                    "maximize": run.summary.get("direction") != "minimize",
                    "possible": possible(metric),
                    "samples": "held out" if heldout else "search",
                },
                "costs": page_models.cost_axes(run.summary),
                "on_chip": on_chip,
                "command": page_models.export_command(run, "{}"),
                "models": [row | {"nodes": _packed(row["nodes"])} for row in models],
                "references": references,
                "nodes": [[node["short"], node["name"], node["error"], node["buys"], node["cure"]] for node in nodes],
                "kinds": {strip["id"]: [[part["kind"], part["length"]] for part in strip["runs"]] for strip in strips},
                "words": {kind: look.node_word or look.word for kind, look in LOOKS.items()},
                "graphs": graphs,
                "hypervolume": page_history.hypervolumes(run),
                "allowed": page_models.allowed_points(run),
            }
        ),
    }


def _packed(places: Iterable[int]) -> str:
    """Numbers of nodes as the bits of one number, in hexadecimal: of a thousand nodes a trial else has kilobytes."""
    return f"{sum(1 << place for place in places):x}"


def _words(text: str) -> Markup:
    """A sentence as markup; what it has in backticks, names of picks and commands, is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _unbroken(text: str) -> str:
    """The text with its per cent signs and units kept on the line of their numbers."""
    return re.sub(r"(?<=\d) (?=%|kB|MB|B\b|points?\b)", "\N{NO-BREAK SPACE}", text)


def model_name(run: Run) -> str:
    """The name of the model's file; ``model`` for one that only the process of the search had."""
    source = str((run.manifest.get("sources") or {}).get("model") or "")
    return Path(source).name if source else "model"


def asset(name: str, package: str = "autoselect.report") -> Markup:
    """A style sheet or script: no data, and no end tag of a script in it, so it goes into the page as it is."""
    return Markup(files(package).joinpath(name).read_text(encoding="utf-8"))
