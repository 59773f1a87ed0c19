"""What worker processes do for a diagnosis: plan, measure, run, leave in and out. Each may die without harm to it."""

from __future__ import annotations

import math
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoselect.cases.channel_jobs import closeness_of_groups
from autoselect.cases.divergence import divergence, error_shares, run_of, samples_of
from autoselect.cases.open_case import open_case
from autoselect.diagnosis.activations import activation_statistics
from autoselect.domain.findings import Ablation, ActivationStatistics, GroupCloseness
from autoselect.domain.recipe import Recipe
from autoselect.domain.units import nodes_behind
from autoselect.isolation.worker import kept
from autoselect.quantize.building.build import corrects_biases
from autoselect.quantize.diagnosing import verification
from autoselect.quantize.diagnosing.statistics import LayerMetrics, measure, scalar_of
from autoselect.quantize.repairing.built import Shift
from autoselect.runs.files import write_bytes
from autoselect.tflite.runner import Runner, failing_op

ModelDebugMetric = Callable[[list[np.ndarray], list[np.ndarray]], float]
"""Called with the outputs of the float model and of the quantized one, as the Quantization Debugger's."""


_AS_GIVEN = Shift(before=math.nan, after=math.nan, reason="the integer model is given, with its biases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """The model under diagnosis, built.

    Attributes:
        content: Bytes of the candidate.
        kinds: What became of each op of the float model, by its index.
        places: Where that op is in the candidate.
        shifts: Of bias correction, by node name.
        skipped: Why a repair of the recipe left a node alone: by node name, then by name of the repair.
    """

    content: bytes
    kinds: Mapping[int, str]
    places: Mapping[int, int]
    shifts: Mapping[str, Shift]
    skipped: Mapping[str, Mapping[str, str]]


def plan(root: Path, recipe_json: str, whole_model: bool) -> Path:
    """Make a debug model and keep the plan for :func:`measure_part`; returns its file."""
    case = open_case(root)
    prepared, recipe = case.prepared, Recipe.from_json(recipe_json)
    debug_plan = verification.plan(
        prepared.calibrated, prepared.layers.nodes, recipe, whole_model=whole_model, kit=case.kit
    )
    # A worker keeps the plans that it read, by path.
    path = root / f"plan_{'model' if whole_model else 'layer'}_{zlib.crc32(recipe_json.encode()):08x}.pkl"
    write_bytes(path, pickle.dumps(debug_plan))
    return path


@kept(4)
def read_plan(path: Path) -> verification.Plan:
    """A plan that :func:`plan` kept."""
    debug_plan: verification.Plan = pickle.loads(path.read_bytes())
    return debug_plan


def build(root: Path, recipe_json: str) -> Diagnosed:
    """Build the model under diagnosis, and see what bias correction finds, whether the recipe asks for it or not."""
    case, recipe = open_case(root), Recipe.from_json(recipe_json)
    builder, is_given = case.builder, case.prepared.calibrated.integer is not None
    candidate = corrected = builder.build(recipe)
    if not corrects_biases(recipe) and not is_given:
        corrected = builder.build(replace(recipe, repairs=(*recipe.repairs, "bias")))
    places = dict(candidate.places)
    return Diagnosed(
        content=candidate.content,
        kinds={index: str(candidate.graph.ops[place].kind.value) for index, place in places.items()},
        places=places,
        shifts=dict.fromkeys(corrected.kinds, _AS_GIVEN) if is_given else corrected.shifts,
        skipped=corrected.skipped,
    )


def failing_nodes(root: Path, diagnosed: Diagnosed, samples: str, rows: Sequence[int]) -> tuple[list[str], str]:
    """Run the built model up to the node whose kernel fails on a sample.

    Returns:
        The nodes, as :func:`autoselect.domain.units.nodes_behind`, and the error.
    """
    case = open_case(root)
    failure = failing_op(diagnosed.content, samples_of(case, samples, rows))
    if failure is None:
        return [], ""
    place, error = failure
    return nodes_behind(case.prepared.graph, case.prepared.layers.nodes, diagnosed.places, place), error


def measure_part(root: Path, path: Path, samples: str, rows: Sequence[int], metrics: LayerMetrics) -> np.ndarray:
    """Figures of every place on some of the samples; see :func:`autoselect.quantize.diagnosing.statistics.measure`."""
    return measure(read_plan(path), samples_of(open_case(root), samples, rows), metrics)


def activations(
    root: Path, samples: str, rows: Sequence[int], limits: Mapping[str, tuple[float, float]]
) -> dict[str, ActivationStatistics]:
    """Statistics of the float outputs; see :func:`autoselect.diagnosis.activations.activation_statistics`."""
    case = open_case(root)
    calibrated, nodes = case.prepared.calibrated.file, case.prepared.layers.nodes
    return activation_statistics(calibrated, nodes, samples_of(case, samples, rows), limits)


def groups(root: Path, content: bytes, samples: str, rows: Sequence[int]) -> list[GroupCloseness]:
    """How close the model's groups of channels are to float's, of outputs whose channels have unlike ranges."""
    return closeness_of_groups(root, Runner(content), samples, rows)


def model_metrics(
    root: Path, content: bytes, samples: str, rows: Sequence[int], metrics: Mapping[str, ModelDebugMetric]
) -> dict[str, float]:
    """Mean of each metric of the model's outputs over the samples.

    Raises:
        MetricError: If a metric raises or returns no single number.
    """
    case = open_case(root)
    models = [run_of(Runner(each), samples) for each in (case.files.float_model.read_bytes(), content)]
    values: dict[str, list[float]] = {name: [] for name in metrics}
    for number, sample in enumerate(samples_of(case, samples, rows)):
        outputs = [list(run(sample).values()) for run in models]
        for name, metric in metrics.items():
            where = f"the model's outputs (sample {number}, counted from 0)"
            values[name].append(scalar_of(f"Metric {name!r}", metric, where, *outputs))
    return {name: float(np.mean(column)) for name, column in values.items()}


def ablate(root: Path, recipe_json: str, name: str, samples: str, rows: Sequence[int]) -> Ablation:
    """Divergence of the outputs with only one node quantized, and with all nodes of a recipe but that one."""
    recipe, alone = Recipe.from_json(recipe_json), frozenset({name})
    others = frozenset(n.name for n in open_case(root).prepared.layers.nodes) - alone
    one_in, one_out = (
        replace(recipe, denylisted_nodes=nodes).to_json() for nodes in (others, recipe.denylisted_nodes | alone)
    )
    return Ablation(
        leave_one_in=divergence(error_shares(root, one_in, samples, rows)),
        leave_one_out=divergence(error_shares(root, one_out, samples, rows)),
    )
