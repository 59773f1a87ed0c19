"""Writes what other tools read of a run: recipes and scripts beside the front's models, node data, calibrated model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autoselect.cases.files import CaseFiles
from autoselect.cases.open_case import OpenCase
from autoselect.domain.layers import LayerTable
from autoselect.exports.litert_quantizer import litert_recipe
from autoselect.exports.member_ops import member_ops
from autoselect.exports.model_explorer import choices_data, names_in, statistics_data
from autoselect.exports.plain_tensorflow import build_script
from autoselect.quantize.building.left_out import left_out
from autoselect.quantize.repairing.repairs import before_quantizing
from autoselect.rewrites.names import canonical_name
from autoselect.runs.files import write_bytes, write_json, write_text
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import TrialRecord
from autoselect.tflite import reader
from autoselect.tflite.tflite_file import TfliteFile

_STATISTICS = ("rmse_per_scale", "sqnr_db", "max_abs_error", "range")


def export(front: Sequence[TrialRecord], picks: Mapping[str, str], folder: RunFolder, files: CaseFiles) -> None:
    """Write everything, for the members whose models are in the folder.

    Args:
        front: The members.
        picks: Id of a member by pick name.
        folder: Of the run.
        files: Of the case.

    Raises:
        StorageError: If a file cannot be written.
    """
    case = OpenCase(files.root)
    calibrated, layers = case.prepared.calibrated, case.prepared.layers
    graph = reader.read_graph(case.kit.float_model())
    kinds: dict[str, Mapping[str, str]] = {}
    before: set[tuple[str, ...]] = {()}
    for record in front:
        if record.recipe is None or record.scores is None:
            continue
        chosen = left_out(record.recipe, layers.nodes)
        kinds[record.id] = chosen.kinds(layers.nodes, record.scores.fallbacks)
        ops = member_ops(graph, calibrated.names.op_outputs, layers.nodes, kinds[record.id], chosen.names)
        write_json(folder.front / f"{record.id}.litert-quantizer.json", litert_recipe(ops, record.recipe))
        if calibrated.integer is None:
            repairs = before_quantizing(record.recipe.repairs)
            canonical = {index: canonical_name(index) for index in chosen.nodes}
            script = build_script(record.id, ops, record.recipe, canonical, folder.calibrated(repairs).name)
            write_text(folder.front / f"{record.id}.build.py", script)
            before.add(repairs)
    if calibrated.integer is None:
        for repairs in before:
            write_bytes(folder.calibrated(repairs), case.kit.calibrated(repairs).content)
    _write_node_data(folder, layers, kinds, picks)


def _write_node_data(
    folder: RunFolder, layers: LayerTable, kinds: Mapping[str, Mapping[str, str]], picks: Mapping[str, str]
) -> None:
    """A file for each statistic and each pick, and how often each node is no integer on the front.

    Args:
        folder: Of the run.
        layers: Of the float model.
        kinds: What became of each node, by member.
        picks: Id of a member by pick name.
    """
    target, names = folder.model_explorer, [node.name for node in layers.nodes]
    aliases = _aliases(folder, kinds, names)
    for old in sorted(target.glob("*.choices.json")):
        old.unlink()
    for statistic in _STATISTICS:
        values = dict(zip(names, layers.statistic(statistic).tolist(), strict=True))
        write_json(target / f"{statistic}.json", statistics_data(statistic, values, aliases))
    if kinds:
        share = {n: sum(of[n] not in ("integer", "int16") for of in kinds.values()) / len(kinds) for n in names}
        write_json(target / "left_out_share.json", statistics_data("left out, share of the front", share, aliases))
    for pick, member in picks.items():
        write_json(target / f"{pick}.choices.json", choices_data(f"{pick} ({member})", kinds[member], aliases))


def _aliases(folder: RunFolder, members: Iterable[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Names that the members' files have for the nodes, beside the nodes' own."""
    aliases: dict[str, set[str]] = {}
    for member in members:
        path = folder.front / f"{member}.tflite"
        if path.exists():
            for name, other in names_in(TfliteFile(path.read_bytes()).graph, names).items():
                aliases.setdefault(name, set()).add(other)
    return {name: sorted(others - {name}) for name, others in aliases.items()}
