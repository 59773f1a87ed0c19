"""Writes what other tools read of a run: recipes and scripts beside the front's models, node data, calibrated model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoselect.cases.files import CaseFiles
from autoselect.cases.open_case import OpenCase
from autoselect.domain.graph import Graph
from autoselect.domain.layers import LayerTable
from autoselect.exports.litert_quantizer import litert_recipe
from autoselect.exports.member_ops import member_ops
from autoselect.exports.model_explorer import choices_data, names_in, statistics_data
from autoselect.exports.plain_tensorflow import build_script
from autoselect.quantize.building.left_out import left_out
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.names import canonical_name
from autoselect.quantize.repairing.repairs import before_quantizing
from autoselect.runs.files import write_bytes, write_json, write_text
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import TrialRecord
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite import reader

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
    prepared = case.prepared
    graph = reader.read_graph(case.kit.float_model())
    exporter = _Exporter(folder=folder, calibrated=prepared.calibrated, graph=graph, layers=prepared.layers)
    members = {record.id: record for record in front if record.recipe is not None and record.scores is not None}
    used = {before_quantizing(r.recipe.repairs) for r in members.values() if r.recipe is not None} | {()}
    for repairs in used if prepared.calibrated.integer is None else ():
        write_bytes(folder.calibrated(repairs), case.kit.calibrated(repairs).content)
    for record in members.values():
        exporter.write_recipes(record)
    exporter.write_node_data(members, picks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exporter:
    folder: RunFolder
    calibrated: CalibratedModel
    graph: Graph
    layers: LayerTable
    kinds: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def write_recipes(self, record: TrialRecord) -> None:
        """The recipe for litert-quantizer, and, where TensorFlow made the integer model, the script for it."""
        recipe, scores, nodes = record.recipe, record.scores, self.layers.nodes
        if recipe is None or scores is None:
            return
        chosen = left_out(recipe, nodes)
        self.kinds[record.id] = chosen.kinds(nodes, scores.fallbacks)
        ops = member_ops(
            self.graph,
            self.calibrated.names.op_outputs,
            nodes,
            self.kinds[record.id],
            chosen.names,
        )
        canonical = {index: canonical_name(index) for index in chosen.nodes}
        write_json(self.folder.front / f"{record.id}.litert-quantizer.json", litert_recipe(ops, recipe))
        if self.calibrated.integer is not None:
            return
        source = self.folder.calibrated(before_quantizing(recipe.repairs)).name
        write_text(self.folder.front / f"{record.id}.build.py", build_script(record.id, ops, recipe, canonical, source))

    def write_node_data(self, members: Mapping[str, TrialRecord], picks: Mapping[str, str]) -> None:
        """A file for each statistic and each pick, and how often each node is no integer on the front."""
        aliases = self._aliases(members)
        target, names = self.folder.model_explorer, [node.name for node in self.layers.nodes]
        for old in sorted(target.glob("*.choices.json")):
            old.unlink()
        for statistic in _STATISTICS:
            values = dict(zip(names, self.layers.statistic(statistic).tolist(), strict=True))
            write_json(target / f"{statistic}.json", statistics_data(statistic, values, aliases))
        if members:
            out = {n: sum(self.kinds[m][n] not in ("integer", "int16") for m in members) for n in names}
            share = {name: count / len(members) for name, count in out.items()}
            write_json(target / "left_out_share.json", statistics_data("left out, share of the front", share, aliases))
        for pick, member in picks.items():
            data = choices_data(f"{pick} ({member})", self.kinds[member], aliases)
            write_json(target / f"{pick}.choices.json", data)

    def _aliases(self, members: Mapping[str, TrialRecord]) -> dict[str, list[str]]:
        """Names that the members' files have for the nodes, beside the nodes' own."""
        found: dict[str, set[str]] = {}
        for member in members:
            path = self.folder.front / f"{member}.tflite"
            if path.exists():
                graph = reader.read_graph(fb.parse(path.read_bytes()))
                for name, other in names_in(graph, [node.name for node in self.layers.nodes]).items():
                    found.setdefault(name, set()).add(other)
        return {name: sorted(others - {name}) for name, others in found.items()}
