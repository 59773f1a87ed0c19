"""Writes the model card of one member of a front: what a reader of the file alone must know; runs no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from autoselect.domain.words import counted, difference, said, some
from autoselect.report.tables import frames
from autoselect.report.tables.chip_results import OnChip, asks_compiler, chips_of
from autoselect.report.tables.result_lines import cells
from autoselect.report.tables.target_tables import version_texts
from autoselect.runs.folder import read_json
from autoselect.runs.run import Run

_NODES = {
    "denylisted_nodes": "Nodes left out of the integers",
    "denylisted_ops": "Op types left out of the integers",
    "float_nodes": "Of these nodes, float and not hybrid",
    "int16_nodes": "Nodes with 16-bit activations",
}


_RESERVATIONS = {
    "nothing_feasible": "No model of the run meets all of its limits; those of its front come closest.",
    "interrupted": "The search was stopped early, before its held-out check.",
}


def reservation(run: Run) -> str:
    """What is to know of every model of a run that did not end as it was asked for; empty for others."""
    return _RESERVATIONS.get(run.status, "")


def card_of(run: Run, member: str, *, title: str, compiled: Sequence[Mapping[str, Any]] = ()) -> str:
    """The card as Markdown.

    Args:
        run: The run.
        member: Id in its front.
        title: Name of the file.
        compiled: What it was compiled to for chips, as :class:`autoselect.api.results.CompiledModel`.
    """
    environment = Environment(loader=PackageLoader("autoselect.report"), undefined=StrictUndefined, trim_blocks=True)
    references = [row for row in frames.reference_rows(run.summary) if row.reference in ("float", "fiq")]
    (chosen,) = [row for row in frames.front_rows(run.front, run.summary) if row.label == member]
    table = cells([*((row.label, row) for row in references), ("this model", chosen)], run.summary, with_interval=True)
    path = run.directory / "front" / f"{member}.recipe.json"
    recipe = read_json(path, missing="") if path.exists() else {}
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
        computes=_computes(
            frames.number(record.get("float_ops")),
            frames.number(record.get("segments")),
            "partition" if asks_compiler(run.summary) else "accelerator segment",
        ),
        needs=_needs((run.summary.get("runtimes") or {}).get(member)),
        chips=_chips(run, member, compiled),
        recipe=recipe,
        nodes={label: some(_names(recipe.get(key) or ()), 12) for key, label in _NODES.items()},
        repairs=", ".join(recipe.get("repairs") or ()),
        counts=run.manifest.get("counts") or {},
        hashes=run.manifest.get("hashes") or {},
        versions=run.manifest.get("versions") or {},
        target=_clean(str(run.summary.get("target") or "integer-only")),
        created=str(run.manifest.get("created") or "").partition("T")[0],
        heldout=chosen.heldout is not None,
        reservation=reservation(run),
    )


def _computes(float_ops: float | None, segments: float | None, piece: str) -> str:
    """How much is in float and in how many pieces the rest is; empty where that is not known."""
    if float_ops is None or segments is None:
        return ""
    return f"{counted(round(float_ops), 'op')} in float (hybrid ones too), {counted(round(segments), piece)}."


def _needs(needs: Mapping[str, str] | None) -> list[str]:
    """Which runtimes load it; nothing of runs of earlier versions."""
    if not needs:
        return []
    why = f" Older ones lack {needs['because']}." if needs["because"] else ""
    others = "No version of TensorFlow's own interpreter that was tried loads it."
    if needs["tensorflow"]:
        others = f"The interpreter of TensorFlow {needs['tensorflow']} and later loads it, too."
    return [f"LiteRT {needs['litert']} or later loads it. {others}{why}"]


def _chips(run: Run, member: str, compiled: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The chips that the model was judged on or compiled for: what each takes, what it scores there, and versions."""
    files, chips = {str(file["target"]): file for file in compiled}, []
    for chip in chips_of(run.summary):
        model = chip.models.get(member)
        if model is None:
            continue
        made = {**_file(files.pop(chip.name, None)), **_scores(model, str(run.summary["metric"]))}
        left = Counter(model.left.values())
        chips.append(_chip(chip.name, model.partitions, model.left_ops, left, model.ddr_bytes, chip.versions) | made)
    for name, file in files.items():
        left = Counter(str(op["reason"]) for op in file["left"])
        figures = (file["partitions"], file["left_ops"], left, file["ddr_bytes"], file["versions"])
        chips.append(_chip(name, *figures) | _file(file) | {"scores": None})
    return chips


def _chip(
    name: str, partitions: int, left_ops: int, left: Counter[str], ddr_bytes: float, versions: Mapping[str, str]
) -> dict[str, Any]:
    moved = f"; {frames.format_size(ddr_bytes)} to and from memory outside of the chip (DDR)" if ddr_bytes else ""
    return {
        "name": _clean(name),
        "takes": f"{counted(partitions, 'partition')}, {counted(left_ops, 'op')} left on the CPU{moved}",
        "left": [(count, _clean(why)) for why, count in left.most_common(8)],
        "versions": [_clean(text) for text in version_texts(versions)],
    }


def _file(made: Mapping[str, Any] | None) -> dict[str, Any]:
    """The compiled file beside the model."""
    return {"file": "" if made is None else _clean(Path(str(made["path"])).name), "hash": (made or {}).get("sha256")}


def _scores(model: OnChip, metric: str) -> dict[str, Any]:
    """What the emulation says beside the CPU, in texts; None where it was not run."""
    chip, cpu, low, high = (model.score(name) for name in ("chip", "cpu", "low", "high"))
    if chip is None or cpu is None:
        return {"scores": None}
    return {
        "scores": {
            "chip": said(chip, metric),
            "cpu": said(cpu, metric),
            "between": "not known" if low is None or high is None else difference(low, high, metric),
            "samples": f"{round(model.score('samples') or 0):,}",
        }
    }


def _names(names: Iterable[str]) -> list[str]:
    return [f"`{_clean(name)}`" for name in sorted(names)]


def _clean(text: str) -> str:
    """A name from a model as one piece of Markdown."""
    return " ".join(text.replace("`", "'").replace("|", "/").split())
