"""Samples to score on: checked against the metric, and divided into search and held-out part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import Ingredients
from autoselect.cases.settled import Settled
from autoselect.data.labelled import labelled_samples, unread_arrays
from autoselect.data.recordings import alike_neighbours, checked, shared_windows
from autoselect.data.samples import SampleStore
from autoselect.data.splits import refuse_overlap, split_by_content
from autoselect.domain.graph import Graph
from autoselect.domain.tensors import TensorSpec, in_source_order
from autoselect.domain.words import counted, some
from autoselect.errors import DataError, MetricError, UsageError
from autoselect.runs.files import write_json
from autoselect.scoring.metric_base import Metric

PARTS = ("search", "heldout")
_TOLD = {"search": "search", "heldout": "held-out"}


def prepare_samples(
    ingredients: Ingredients,
    settings: Settled,
    files: CaseFiles,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    calibration: SampleStore,
) -> tuple[dict[str, int], dict[str, str], list[str]]:
    """Write and split the samples to score on; returns counts, hashes and warnings."""
    metric = ingredients.metric
    if metric is None:
        return {}, {}, []
    store, parts, hashes = write_parts(ingredients, settings, files, inputs, outputs, metric)
    digests = {
        "calibration": calibration.digests,
        **{_TOLD[part]: store.digests for part, store in parts.items()},
    }
    warnings = [*refuse_overlap(digests, allow=settings.allow_overlap), *_overlapping(parts), *_few_groups(parts)]
    warnings += [*_unread(ingredients, inputs), *_copied(parts)]
    warnings += [*_unlabelled(store), *_unnamed_output(outputs, metric), *_silent_inputs(calibration, inputs)]
    return {name: len(part) for name, part in parts.items()}, hashes, warnings


def write_parts(
    ingredients: Ingredients,
    settings: Settled,
    files: CaseFiles,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    metric: Metric,
) -> tuple[SampleStore, dict[str, SampleStore], dict[str, str]]:
    """Write the samples to score on, and say which of them are to search by and which are held out.

    Returns:
        The samples that were brought to score on, those of each part, and hashes of what was brought.

    Raises:
        DataError: If samples do not fit.
    """
    signature = ingredients.wishes.signature
    store = write_labelled(ingredients.evaluation, files.samples("evaluation"), inputs, outputs, metric, signature)
    hashes = {"evaluation": store.signature}
    if ingredients.heldout is not None:
        heldout = write_labelled(ingredients.heldout, files.samples("heldout"), inputs, outputs, metric, signature)
        hashes["heldout"] = heldout.signature
        write_split(files, "search", "evaluation")
        write_split(files, "heldout", "heldout")
        return store, {"search": store, "heldout": heldout}, hashes
    chosen = split_by_content(store.digests, settings.heldout_fraction, settings.split_seed, store.groups)
    for part, indices in zip(PARTS, chosen, strict=True):
        write_split(files, part, "evaluation", indices)
    return store, {part: store.subset(indices) for part, indices in zip(PARTS, chosen, strict=True)}, hashes


def _overlapping(parts: Mapping[str, SampleStore]) -> list[str]:
    """A warning where windows of one recording are on both sides."""
    shared = shared_windows(parts["search"], parts["heldout"])
    if not shared:
        return []
    pair, count = shared[0], checked(parts["heldout"])
    return [
        f"{len(shared)} of the {count} held-out samples that were checked overlap with search samples, as windows cut "
        f"from one recording do. Held-out sample {pair.second} and search sample {pair.first}, counted from 0, share "
        f"{100 * pair.share:.0f} % of input {pair.key!r} along axis {pair.axis}. The held-out score is then too good. "
        "Label the recordings by groups, or bring held-out samples of other recordings (--heldout)."
    ]


def _unread(ingredients: Ingredients, inputs: tuple[TensorSpec, ...]) -> list[str]:
    """A warning where scoring data hold arrays that nothing reads, such as groups under another name."""
    unread = dict.fromkeys(
        name
        for source in (ingredients.evaluation, ingredients.heldout)
        if source is not None
        for name in unread_arrays(source, inputs)
    )
    if not unread:
        return []
    return [
        f"Nothing reads {some([repr(name) for name in unread])} of the scoring data. Arrays are read that have the "
        "name of an input, targets in 'y', and in 'groups' the speaker, subject or recording of each sample."
    ]


def _copied(parts: Mapping[str, SampleStore]) -> list[str]:
    """Warnings where samples are there more than once; a few copies among many samples change nothing."""
    warnings = []
    for part, store in parts.items():
        count, distinct = len(store), len(set(store.digests))
        if store.groups is None and distinct < 0.95 * count:
            warnings.append(
                f"{count - distinct} of the {count} {_TOLD[part]} samples are copies of others, and each counts as a "
                f"sample of its own: bounds are closer than {counted(distinct, 'sample')} can show. Leave the copies "
                "out, or put each sample and its copies into one group."
            )
    return warnings


def _few_groups(parts: Mapping[str, SampleStore]) -> list[str]:
    """A warning where the samples are those of few speakers, subjects or recordings."""
    counts = {part: len(set(store.groups)) for part, store in parts.items() if store.groups is not None}
    return warning_of_groups(counts)


def warning_of_groups(counts: Mapping[str, int]) -> list[str]:
    """A warning if any part of the samples has few groups; none of parts without groups.

    Args:
        counts: Of groups, by part.
    """
    # With fewer groups a single other one may change the score by more than the drop that most users allow.
    few_groups = 20
    if min(counts.values(), default=few_groups) >= few_groups:
        return []
    summary = " and ".join(f"{counted(count, 'group')} of {_TOLD[part]} samples" for part, count in counts.items())
    return [
        f"Few groups: {summary}. Samples of a group are not independent of each other, so intervals and bounds are "
        f"over groups, and wide with so few. Bring at least {few_groups} groups for each part."
    ]


def _unlabelled(store: SampleStore) -> list[str]:
    """A question where the order of samples tells of groups, and none are labelled."""
    tally = alike_neighbours(store) if store.groups is None else None
    if tally is None:
        return []
    return [
        f"Samples are more like their next ones than like others of the same target: {tally.nearer} of {tally.pairs}, "
        "where half are by chance. Do samples that follow each other come from one speaker, subject or recording? Then "
        "label these by groups: intervals and bounds are too narrow without them."
    ]


def _unnamed_output(outputs: tuple[TensorSpec, ...], metric: Metric) -> list[str]:
    """Which of several outputs is scored, where nobody has chosen."""
    first, *others = in_source_order(outputs)
    if metric.output is not None or not others:
        return []
    rest = ", ".join(spec.key for spec in others)
    return [f"Of the model's {len(outputs)} outputs, {first.key!r} is scored. --output-name chooses another: {rest}."]


def _silent_inputs(calibration: SampleStore, inputs: tuple[TensorSpec, ...]) -> list[str]:
    """A warning where an input is 0 in all calibration samples, as states of a streaming model are at the start."""
    silent = [spec.key for spec in inputs if spec.dtype.kind == "f"]
    for number in range(len(calibration)):
        if not silent:
            return []
        sample = calibration.inputs(number)
        silent = [key for key in silent if not np.any(sample[key])]
    return [
        f"Input {key!r} is 0 in all {len(calibration)} calibration samples, so its range is not known: in integers it "
        "then stays 0 whatever comes. Record it while the model runs."
        for key in silent
    ]


def write_labelled(
    source: object,
    folder: Path,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    metric: Metric,
    signature: str | None = None,
) -> SampleStore:
    """Write scoring samples into a folder and check every target against the metric.

    ``signature`` is the key of the one that the samples are for, if it was chosen.

    Raises:
        DataError: If a sample or target does not fit.
    """
    pairs = labelled_samples(source, inputs, targets_required=metric.needs_targets, signature=signature)
    store = SampleStore.write(folder, pairs, inputs)
    shape = scored_shape(outputs, metric)
    for i in range(len(store)) if metric.needs_targets else ():
        try:
            metric.check_target(store.target(i), shape)
        except DataError as exc:
            raise DataError(" ".join([f"Sample {i}: {exc}", *_unnamed_output(outputs, metric)])) from exc
    return store


def scored_shape(outputs: tuple[TensorSpec, ...], metric: Metric) -> tuple[int, ...]:
    """Shape of the output that the metric scores.

    Raises:
        UsageError: If there is no output of the name that the metric wants.
        MetricError: If the metric wants scores of classes, and the output holds class numbers.
    """
    spec = _scored(outputs, metric)
    if metric.reads_classes and spec.dtype.kind in "iu" and not spec.is_quantized:
        raise MetricError(
            f"metric {metric.name!r}: expected an output of one score per class, got whole numbers ({spec.dtype}) in "
            f"{spec.key!r}, such as ARG_MAX writes. Choose an output of scores, compare with the float model "
            "('agreement'), convert the model without its last op, or bring a function of your own."
        )
    return spec.shape


def _scored(outputs: tuple[TensorSpec, ...], metric: Metric) -> TensorSpec:
    if metric.output is None:
        return in_source_order(outputs)[0]
    for spec in outputs:
        if metric.output in (spec.key, spec.name):
            return spec
    raise UsageError(f"The model has no output {metric.output!r}. Its outputs: {', '.join(s.key for s in outputs)}.")


def refuse_untouched(graph: Graph, outputs: tuple[TensorSpec, ...], metric: Metric) -> None:
    """Refuse to score an output that no op computes: it is the same whatever is quantized.

    Args:
        graph: Of the float model.
        outputs: Outputs of the float model, in the graph's order.
        metric: Says which output is scored; the first one if it says nothing.

    Raises:
        UsageError: If the output is an input of the model, or a constant.
    """
    scored, computed = _scored(outputs, metric), graph.producers()
    untouched = {
        spec.key: tensor for spec, tensor in zip(outputs, graph.outputs, strict=True) if tensor not in computed
    }
    if scored.key not in untouched:
        return
    what = "an input of the model" if untouched[scored.key] in graph.inputs else "a constant"
    others = [spec.key for spec in in_source_order(outputs) if spec.key not in untouched]
    raise UsageError(
        f"Output {scored.key!r} is {what}, which no op computes: its score is the same whatever is quantized. "
        + (f"Choose another output with --output-name: {', '.join(others)}." if others else "It has no other output.")
    )


def write_split(files: CaseFiles, part: str, samples: str, indices: np.ndarray | None = None) -> None:
    """Say which samples of a folder are a part; all of them without indices."""
    chosen = None if indices is None else [int(i) for i in indices]
    write_json(files.split(part), {"samples": samples, "indices": chosen})
