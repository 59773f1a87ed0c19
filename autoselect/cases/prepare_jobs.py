"""What workers do before the first trial: load the float model, calibrate, run it, learn to predict candidates.

Each job may die without harm to the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autoselect.cases.files import CaseFiles
from autoselect.cases.open_case import open_case
from autoselect.cases.prepared import write_prepared
from autoselect.data.samples import SampleStore
from autoselect.domain.layers import LayerTable
from autoselect.domain.recipe import Recipe
from autoselect.errors import BuildError
from autoselect.quantize import calibration, names, probing
from autoselect.quantize.build import CalibratedModel
from autoselect.quantize.nodes import find_nodes
from autoselect.quantize.predict import Predictor
from autoselect.quantize.statistics import layer_table
from autoselect.runs.files import storage_errors, write_bytes
from autoselect.scoring import evaluate
from autoselect.sources import loading
from autoselect.tflite import flatbuffer as fb
from autoselect.tflite.runner import Runner


def load_float_model(
    source: Path | bytes, out: Path, signature: str | None, shapes: Mapping[str, tuple[int, ...]] | None
) -> tuple[str, ...]:
    """Convert or read a source and write the float model; returns what there is to say of it."""
    found = loading.float_model(source, signature=signature, shapes=shapes)
    write_bytes(out, found.content)
    return found.notes


def prepare(root: Path, out: Path, debug_samples: int, per_channel: bool) -> None:
    """Calibrate, find the nodes and measure them, unless on no samples; keeps both in ``out``."""
    files = CaseFiles(root=root)
    store = SampleStore.open(files.samples("calibration"))
    content = files.float_model.read_bytes()
    calibrated = calibration.calibrate(content, (list(store.inputs(i).values()) for i in range(len(store))))
    model = fb.parse(calibrated)
    name_map = names.canonicalise(model)
    calibrated_model = CalibratedModel(content=fb.serialise(model), names=name_map)
    nodes = find_nodes(calibrated_model)
    picked = (store.inputs(i) for i in range(min(debug_samples, len(store))))
    table = (
        layer_table(calibrated_model, nodes, picked, per_channel=per_channel)
        if debug_samples
        else LayerTable(nodes=nodes, statistics=(None,) * len(nodes))
    )
    write_prepared(out, calibrated_model, table)


def run_reference(root: Path, part: str, out: Path) -> None:
    """Run the float model over a part and keep its outputs."""
    case = open_case(root)
    runner = Runner(case.files.float_model.read_bytes())
    samples = case.part(part)
    with storage_errors(out):
        evaluate.ReferenceOutputs.write(out, (runner(samples.inputs(i)) for i in range(len(samples))))


def probe(root: Path, recipe_json: str) -> Predictor | None:
    """Learn to predict candidates of this granularity and interface; None for a graph that cannot be predicted."""
    case = open_case(root)
    calibrated, table = case.prepared
    recipe = Recipe.from_json(recipe_json)
    try:
        return probing.probe(
            calibrated,
            table.nodes,
            per_channel=recipe.per_channel,
            io_type=recipe.io_type,
            repairs=recipe.repairs,
            kit=case.kit,
        )
    except BuildError:
        return None
