"""What workers do before the first trial: load the float model, normalise and calibrate it, run it, plan candidates.

Each job may die without harm to the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoselect.cases.files import CaseFiles
from autoselect.cases.open_case import kept_file, open_case
from autoselect.cases.prepared import Prepared, write_prepared
from autoselect.data.samples import SampleStore
from autoselect.domain.layers import LayerTable
from autoselect.domain.recipe import Quantizer, Recipe
from autoselect.errors import BuildError, DataError, ScoreError
from autoselect.quantize.building import proof
from autoselect.quantize.building.blueprint import Blueprint
from autoselect.quantize.building.build import Builder
from autoselect.quantize.building.parts import find_nodes
from autoselect.quantize.building.wholes import integer_model, whole_builds
from autoselect.quantize.calibrated import CalibratedModel
from autoselect.quantize.diagnosing.statistics import layer_table
from autoselect.quantize.preparing import adoption, calibration, litert, normalise
from autoselect.quantize.repairing.repairs import RepairKit
from autoselect.rewrites import names
from autoselect.runs.files import storage_errors, write_bytes, write_json
from autoselect.scoring import evaluate
from autoselect.sources import integer_files, loading
from autoselect.sources.wishes import Wishes
from autoselect.tflite import comparing
from autoselect.tflite.runner import Outputs, Runner
from autoselect.tflite.tflite_file import TfliteFile

_COMPARED_SAMPLES = 16
"""On which the normalised model is compared with the float model."""
_ROUNDED = (
    "Ops of the float model were folded, as TensorFlow's quantizer does. Its outputs differ by rounding alone: {:.1e} "
    "of the largest value."
)


def load_float_model(source: Path | bytes, out: Path, wishes: Wishes) -> None:
    """Convert or read a source and write the float model, with what there is to say of it, into a folder."""
    float_model = loading.float_model(source, wishes)
    write_bytes(out / "float.tflite", float_model.content)
    write_json(out / "notes.json", float_model.notes)


def prepare(
    root: Path, out: Path, debug_samples: int, per_channel: bool, quantizer: Quantizer, exact_rewrites: bool = True
) -> None:
    """Normalise and calibrate, find the nodes and measure them, unless on no samples; keeps all of it in ``out``."""
    files = CaseFiles(root=root)
    store = SampleStore.open(files.samples("calibration"))
    content = files.float_model.read_bytes()
    is_given = files.integer_model.exists() or quantizer == "litert"
    normalised, caveats, notes = _normalised(content, store, exact_rewrites=exact_rewrites and not is_given)
    if files.integer_model.exists():
        normalised, calibrated_model = _with_given(content, normalised, files.integer_model.read_bytes())
        caveats = (*caveats, *calibration.clipped_inputs(calibrated_model.file.model, _first(store, _COMPARED_SAMPLES)))
    elif quantizer == "litert":
        samples = (store.inputs(i) for i in range(len(store)))
        made = litert.integer_models(content, samples, per_channel=per_channel)
        normalised, calibrated_model = _with_given(content, normalised, made.int8, made.int16)
    else:
        calibrated_model = _calibrated(normalised, store)
    kit = RepairKit(calibrated_model, keep=lambda name, make: kept_file(out / name, make))
    recipe = Recipe(per_channel=per_channel)
    wholes = whole_builds(kit, recipe)
    nodes = find_nodes(wholes)
    picked = (store.inputs(i) for i in range(min(debug_samples, len(store))))
    table = LayerTable(nodes=nodes, statistics=(None,) * len(nodes))
    if debug_samples:
        try:
            table = layer_table(calibrated_model, nodes, picked, per_channel=per_channel, kit=kit)
        except ScoreError as exc:
            caveats = (
                *caveats,
                f"The errors of single layers are not known: the model that measures them cannot run. {exc}",
            )
    remarks = proof.remarks(
        Builder(calibrated_model, nodes, kit),
        nodes,
        wholes,
        float_model=normalised.content,
        integer_model=integer_model(kit, recipe).content,
        samples=_first(store, proof.PROOF_SAMPLES),
        per_channel=per_channel,
        is_given=calibrated_model.integer is not None,
    )
    write_prepared(
        out,
        Prepared(
            normalised=normalised.file,
            calibrated=calibrated_model,
            layers=table,
            folded=normalised.folded,
            remarks=(*caveats, *remarks),
            notes=(*notes, *_respelled(normalised.respelled)),
        ),
    )


def _calibrated(normalised: normalise.Normalised, store: SampleStore) -> CalibratedModel:
    samples = (list(store.inputs(i).values()) for i in range(len(store)))
    return calibration.calibrated_model(normalised.file, samples, normalised.node_names)


def _with_given(
    content: bytes, normalised: normalise.Normalised, integer: bytes, int16: bytes | None = None
) -> tuple[normalise.Normalised, CalibratedModel]:
    """The form of the float model that has more of a given integer model's ops, with what that one's integers cover.

    Raises:
        ModelError: If the integer model was not made from the float model.
    """
    source = TfliteFile(content).taken()
    own_names = names.canonicalise(source)

    def settled(given: bytes) -> TfliteFile:
        return integer_files.settled(adoption.ordered(TfliteFile(given), source, own_names), source)

    taken = settled(integer)
    forms = []
    for form in (normalised, normalise.as_it_is(content)):
        model = form.file.copied()
        key = names.canonicalise(model, form.node_names)
        forms.append((adoption.matched(taken.copied(), model, key), form, model, key))
    _, form, model, key = max(forms, key=lambda row: row[0])  # The first of equals.
    adopted = taken.copied()
    places = adoption.adopt(adopted, model, key)
    covered = TfliteFile(model=calibration.with_found_ranges(model, adoption.ranges(adopted, model, places)))
    wide = None if int16 is None else settled(int16).content
    return form, CalibratedModel(file=covered, names=key, integer=taken.content, int16=wide)


def _normalised(
    content: bytes, store: SampleStore, *, exact_rewrites: bool
) -> tuple[normalise.Normalised, tuple[str, ...], tuple[str, ...]]:
    """The float model as the quantizer leaves it; the model itself where that computes something else.

    Args:
        content: Of the float model.
        store: Representative samples.
        exact_rewrites: Whether it is also rewritten where that changes no output. Another quantizer's integer model has
            the ops as they were.

    Returns:
        The model, why it is not folded, and what folding changed.
    """
    try:
        normalised = normalise.normalise(content, exact_rewrites=exact_rewrites)
        samples = _first(store, _COMPARED_SAMPLES)
        apart = comparing.difference(content, normalised.content, samples, delegates=False)
        if comparing.is_rounding(apart, content, samples):
            return normalised, (), (_ROUNDED.format(apart),) if apart else ()
        why = f"its outputs and the folded model's {comparing.in_words(apart)}"
    except (BuildError, ScoreError) as exc:
        why = str(exc)
    caveats = (
        f"The float model is taken as it is, and not folded and merged beforehand: {why.rstrip('.')}. "
        "If the quantizer merges an op into another, the search may not be able to choose for it alone.",
    )
    return normalise.as_it_is(content), caveats, ()


def _respelled(types: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    counts: dict[str, Counter[str]] = {}
    for before, now in types:
        counts.setdefault(now, Counter())[before] += 1
    return tuple(
        f"Computed by {now}, which gives the same bit for bit and has an integer form: "
        + ", ".join(f"{times} {before}" for before, times in ops.items())
        + "."
        for now, ops in counts.items()
    )


def _first(store: SampleStore, count: int) -> list[dict[str, np.ndarray]]:
    return [store.inputs(i) for i in range(min(count, len(store)))]


def run_reference(root: Path, part: str) -> None:
    """Run the float model over a part and keep its outputs.

    Raises:
        DataError: If an output has another shape for some samples than for others.
    """
    case = open_case(root)
    out = case.files.reference(part)
    runner = Runner(case.files.float_model.read_bytes())
    samples = case.part(part)
    with storage_errors(out):
        evaluate.ReferenceOutputs.write(out, _of_one_shape(runner(samples.inputs(i)) for i in range(len(samples))))


def _of_one_shape(outputs: Iterable[Outputs]) -> Iterator[Outputs]:
    """Pass the outputs of samples on.

    Raises:
        DataError: If an output changes its shape, because scores stack the samples.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for number, sample in enumerate(outputs):
        for key, value in sample.items():
            first = shapes.setdefault(key, value.shape)
            if value.shape != first:
                raise DataError(
                    f"Expected outputs of one shape for all samples, but output {key!r} has the shape {first} for "
                    f"sample 0 and {value.shape} for sample {number} of the samples that are scored: its "
                    "size depends on the values of the inputs. Bring samples for which it is the same, such as "
                    "sequences of one length, or leave this output out of the model."
                )
        yield sample


def blueprint(root: Path, recipe_json: str, int16: bool = False) -> Blueprint:
    """What candidates of this granularity, interface and these repairs are put together from; with 16-bit nodes or not.

    Raises:
        BuildError: If the quantizer refuses the model.
    """
    return open_case(root).builder.blueprint(Recipe.from_json(recipe_json), int16=int16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int16Proof:
    """Whether any node can have 16-bit activations, and what the user should know of candidates with such nodes."""

    is_possible: bool
    remarks: tuple[str, ...]


def int16_proof(root: Path, per_channel: bool) -> Int16Proof:
    """Build and run the model with all nodes in 16 bits, see :func:`proof.int16_remarks`.

    Raises:
        BuildError, ScoreError: If it cannot be built or run.
    """
    case = open_case(root)
    samples = _first(case.samples("calibration"), proof.PROOF_SAMPLES)
    nodes = case.prepared.layers.nodes
    remarks = proof.int16_remarks(case.builder, nodes, case.kit, samples=samples, per_channel=per_channel)
    blueprint = case.builder.blueprint(Recipe(per_channel=per_channel), int16=True)
    return Int16Proof(is_possible=bool(blueprint.int16_nodes), remarks=remarks)
