"""Writes the model card of one member of a front: what a reader of the file alone must know; runs no model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from autoselect.domain.words import counted, some
from autoselect.report.tables import frames
from autoselect.report.tables.result_lines import cells
from autoselect.runs.run import Run

_NAMES_SHOWN = 12
_NODES = {
    "denylisted_nodes": "Nodes left out of the integers",
    "denylisted_ops": "Op types left out of the integers",
    "float_nodes": "Of these nodes, float and not hybrid",
    "int16_nodes": "Nodes with 16-bit activations",
}


def card_of(run: Run, member: str, *, title: str) -> str:
    """The card as Markdown."""
    environment = Environment(loader=PackageLoader("autoselect.report"), undefined=StrictUndefined, trim_blocks=True)
    references = [row for row in frames.reference_rows(run.summary) if row.reference in ("float", "fiq")]
    (chosen,) = [row for row in frames.front_rows(run.front, run.summary) if row.label == member]
    table = cells([*((row.label, row) for row in references), ("this model", chosen)], run.summary, with_interval=True)
    path = run.directory / "front" / f"{member}.recipe.json"
    recipe = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    record = run.front.set_index("id").loc[member].to_dict()
    return environment.get_template("card.md.j2").render(
        title=_clean(title),
        member=member,
        source=_clean(Path(str((run.manifest.get("sources") or {}).get("model"))).name),
        sha256=record.get("sha256"),
        heading=table[0],
        rows=table[1:],
        row=chosen,
        size=frames.format_size(chosen.size_bytes),
        computes=_computes(frames.number(record.get("float_ops")), frames.number(record.get("segments"))),
        recipe=recipe,
        nodes={told: some(_names(recipe.get(key) or ()), _NAMES_SHOWN) for key, told in _NODES.items()},
        repairs=", ".join(recipe.get("repairs") or ()),
        counts=run.manifest.get("counts") or {},
        hashes=run.manifest.get("hashes") or {},
        versions=run.manifest.get("versions") or {},
        target=_clean(str(run.summary.get("target") or "integer-only")),
        created=str(run.manifest.get("created") or "").partition("T")[0],
        heldout=chosen.heldout is not None,
    )


def _computes(float_ops: float | None, segments: float | None) -> str:
    """How much is in float and in how many pieces the rest is; empty where that is not known."""
    if float_ops is None or segments is None:
        return ""
    return (
        f"{counted(round(float_ops), 'op')} in float (hybrid ones too), {counted(round(segments), 'integer segment')}."
    )


def _names(names: Iterable[str]) -> list[str]:
    return [f"`{_clean(name)}`" for name in sorted(names)]


def _clean(text: str) -> str:
    """A name from a model as one piece of Markdown."""
    return " ".join(text.replace("`", "'").replace("|", "/").split())
