"""Model files: build a recipe, copy out of a run, look inside."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoselect.api.compiling import compile_model, compiled_path, compiled_paths, on_target_of, target_names
from autoselect.api.evaluating import refuse_unknown, score_models
from autoselect.api.results import Built, CompiledModel, Inspection, Picked
from autoselect.api.sizing import in_true_shapes
from autoselect.api.source import (
    ModelFile,
    Source,
    file_content,
    file_name,
    ingredients_of,
    load_integer,
    load_source,
    naming,
    needs_converter,
    read_recipe,
)
from autoselect.api.told import explained
from autoselect.cases import build_jobs, calibrate, prepare_jobs
from autoselect.cases import prepare as preparation
from autoselect.cases.files import CaseFiles
from autoselect.cases.ingredients import LIVE
from autoselect.cases.settings import make_settings
from autoselect.cases.settled import Facts, settle
from autoselect.compilers.opening import compiler_of
from autoselect.data.kinds import Samples
from autoselect.domain.objectives import Direction
from autoselect.domain.recipe import Recipe
from autoselect.domain.targets import Target
from autoselect.errors import PreparationError, RecipeError, UsageError, preparing, sentence
from autoselect.isolation.pool import open_pool
from autoselect.quantize.building.left_out import left_out
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.runs.files import refuse_existing, refuse_folder, write_bytes, write_json, write_text
from autoselect.runs.run import Run, load_run, member_content
from autoselect.scoring.target_file import read_target
from autoselect.sources.tflite_files import of_signature
from autoselect.sources.wishes import Feedback, Shapes, Wishes, wishes_of
from autoselect.tflite.analysis import analyse
from autoselect.tflite.tflite_file import TfliteFile


@explained
def build(
    recipe: str | Path | Recipe,
    *,
    model: Source,
    calibration: Samples | None = None,
    signature: str | None = None,
    shapes: Shapes | None = None,
    feedback: Feedback | None = None,
    integer: str | Path | bytes | None = None,
    quantizer: str = "tensorflow",
    target: str | Path = "integer-only",
    exact_rewrites: bool = True,
    output: str | Path,
    cache: bool = True,
) -> Built:
    """Build one recipe: the same ingredients, target and versions give the same bytes as in a run.

    Args:
        recipe: A :class:`Recipe`, or the path of a ``.recipe.json``.
        feedback: As in the run.
        integer: See :func:`search`; needed if the recipe was found with one.
        quantizer: Likewise.
        target: That of the run. If its compiler decides what runs on the chip, ops are listed so that those it takes
            stand in the fewest runs.
        exact_rewrites: As in the run.
        output: File to write.

    Returns:
        The file, and what became of each node.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> built = autoselect.build(
        ...     autoselect.Recipe(denylisted_ops={"SOFTMAX"}),
        ...     model=embedded.model_path(),
        ...     calibration="autoselect.embedded:calibration",
        ...     output="softmax_in_float.tflite",
        ... )
        >>> sorted(set(built.kinds.values()))
        ['float', 'integer']
    """
    chosen = recipe if isinstance(recipe, Recipe) else read_recipe(Path(recipe))
    loaded = load_source(model, wishes_of(signature, shapes), calibration=calibration)
    given = load_integer(
        integer,
        signature=signature,
        per_channel=chosen.per_channel,
        quantizer=quantizer,
        repairs=chosen.repairs,
    )
    chosen = replace(chosen, per_channel=given.per_channel)
    ingredients = ingredients_of(loaded, given, calibration, feedback=feedback)
    with tempfile.TemporaryDirectory(prefix="autoselect-") as name:
        files = CaseFiles(root=Path(name))
        with open_pool(1, log=files.root / "worker.log", warm_up=converter.import_tensorflow) as pool:
            root = cache_directory() if cache else None
            started = calibrate.start_calibration(
                ingredients,
                files,
                pool,
                root,
                debug_samples=0,
                per_channel=chosen.per_channel,
                exact_rewrites=exact_rewrites,
            )
            prepared = started.result()
            _refuse_folded(chosen, prepared.folded)
            left_out(chosen, prepared.layers.nodes, prepared.graph)  # Names that are no nodes are told of here.
            said = make_settings(target=target, exact_rewrites=exact_rewrites, compiling=False)
            preparation.write_scoring(files, None, None, settle(said, Facts()), root)
            with preparing("The recipe could not be built."):
                reply = pool.call(build_jobs.build, files.root, chosen.to_json())
                wide: tuple[str, ...] = ()
                if chosen.int16_nodes:
                    wide = pool.call(prepare_jobs.int16_proof, files.root, chosen.per_channel).remarks
        write_bytes(Path(output), files.candidate(reply.sha256).read_bytes())
    return Built(
        path=str(output),
        sha256=reply.sha256,
        size_bytes=reply.size_bytes,
        kinds=reply.kinds,
        fallbacks=reply.fallbacks,
        warnings=[*started.notes, *prepared.remarks, *wide],
    )


def _refuse_folded(recipe: Recipe, folded: Collection[str]) -> None:
    """Refuse a recipe of an older builder whose nodes are no nodes any more."""
    if gone := sorted((recipe.denylisted_nodes | recipe.float_nodes | recipe.int16_nodes) & set(folded)):
        raise RecipeError(
            f"The recipe names {gone[0]!r}, which is merged into a neighbour before anything is quantized "
            f"({len(gone)} of its nodes {'is' if len(gone) == 1 else 'are'}). It is of an older builder, or names an "
            "op that was never a node. Remove such names from its lists. The neighbour is a node with its own name."
        )


def pick(
    directory: str | Path,
    *,
    name: str = "recommended",
    output: str | Path | None = None,
    force: bool = False,
    targets: Iterable[str] | None = None,
) -> Picked:
    """Copy a front member out of a run folder, write its model card beside it, and compile it for chips.

    Args:
        directory: The run folder.
        name: A pick (``recommended``, ``accurate``, ``compact``, ``integer``) or an id of the front.
        output: File to write; by default in the current folder, named after the model and the pick.
        force: Write over an existing file.
        targets: Chips to compile it for, see :func:`compile_model`; by default those of the run's target that LiteRT
            has a compiler plugin for. An empty list compiles nothing. A model that cannot be compiled here is written
            all the same, and a warning says how to do it elsewhere.

    Returns:
        The files, and the member's row of ``front.csv``.

    Raises:
        RunFolderError: If the folder holds no run, its front no such member, or the member's file is missing or
            damaged.
        UsageError: If one of the files exists already, ``output`` is a folder or the name of the card, or a target in
            ``targets`` has no compiler.

    Examples:
        From the run of :func:`search`:

        >>> import autoselect
        >>> autoselect.pick("pump-run", output="pump_int8.tflite")
        Picked(path='pump_int8.tflite', card='pump_int8.md', id='...')
    """
    run = load_run(directory)
    source = run.model_path(name)
    path = Path(output) if output is not None else Path(f"{_model_name(run.manifest)}_{name}.tflite")
    refuse_folder(path)
    card = path.with_suffix(".md")
    if card == path:
        raise UsageError(f"{path} is what the model card would be called. Name a .tflite with --output (output=...).")
    chips, warnings = _chips_of(run) if targets is None else (_chips_named(list(targets)), [])
    for file in (path, card, *compiled_paths(path, chips.values())):
        if not force:
            refuse_existing(file)
    from autoselect.report.card import card_of, reservation

    write_bytes(path, member_content(run, name))
    made, missing = _compiled_beside(path, chips)
    write_text(card, card_of(run, source.stem, title=path.name, compiled=[model.as_dict() for model in made]))
    row = run.front[run.front["id"] == source.stem].iloc[0].to_dict()
    return Picked(
        path=str(path),
        card=str(card),
        id=str(row["id"]),
        sha256=str(row["sha256"]),
        row={str(key): value for key, value in row.items()},
        compiled=made,
        warnings=[*filter(None, [reservation(run)]), *warnings, *missing],
    )


def _chips_of(run: Run) -> tuple[dict[str, Target], list[str]]:
    """The chips of a run's target that LiteRT has a compiler plugin for, by the name that finds them; warnings."""
    named = str((run.manifest.get("settings") or {}).get("target") or "")
    try:
        return {name: chip for name in target_names(named) for chip in read_target(name).asked}, []
    except UsageError as exc:
        if not (run.summary.get("compiler") or {}).get("members"):
            return {}, []  # Of an earlier version, whose targets have no such compiler.
        return {}, [f"The model is not compiled: the target of the run is not there any more. {exc}"]


def _chips_named(names: Sequence[str]) -> dict[str, Target]:
    """Chips by the name that finds them.

    Raises:
        UsageError: If one is not there or has no compiler.
    """
    chips = {name: chip for name in (target_names(names) if names else ()) for chip in read_target(name).chips}
    for chip in chips.values():
        compiler_of(chip)
    return chips


def _compiled_beside(path: Path, chips: Mapping[str, Target]) -> tuple[list[CompiledModel], list[str]]:
    """Compile a model for chips; for each that fails, the reason and the command."""
    made, warnings = list[CompiledModel](), list[str]()
    for name, chip in chips.items():
        file = compiled_path(path, chip.name)
        try:
            compilation = compile_model(path, target=[name], output=file, force=True)
        except (UsageError, PreparationError) as exc:
            command = f"autoselect compile {shlex.quote(str(path))} --target {shlex.quote(name)}"
            warnings.append(f"{path} is written, {file} is not. {sentence(str(exc))} Then: {command}")
        else:
            made += compilation.models
            warnings += [f"{file}: {message}" for model in compilation.models for message in model.warnings]
    return made, warnings


def _model_name(manifest: Mapping[str, Any]) -> str:
    """The name of the file that the run's model came from, without its suffix."""
    source = (manifest.get("sources") or {}).get("model")
    return "model" if source in (None, LIVE) else Path(source).stem


@explained
def inspect(
    model: ModelFile,
    *,
    compare: Iterable[ModelFile] = (),
    evaluation: Samples | None = None,
    metric: str | Callable[..., float] | None = None,
    direction: Direction | None = None,
    reference: ModelFile | None = None,
    output: str | Path | None = None,
    target: str | Path = "integer-only",
    signature: str | None = None,
    shapes: Shapes | None = None,
    converter_python: str | None = None,
) -> Inspection:
    """Tell what a model file holds; it runs only if scoring data are given.

    Args:
        model: Path or bytes of a ``.tflite``, float, dynamic-range, full-integer or mixed; or a Keras file,
            SavedModel folder, ``.onnx`` or ``.pt2`` file, or a live model, which is converted to float first.
        compare: Further models to analyse in the same way.
        evaluation: Samples to score all the models on; see :func:`search`. None runs no model.
        metric: See :func:`search`; accuracy if left out.
        reference: The float model, for metrics that compare with it.
        output: Folder for ``inspect.json``, which holds what is returned, and the ops of all models as a strip,
            ``islands.png`` and ``islands.svg``.
        target: Name of a bundled target profile, or path of a ``.toml``: decides places, islands and penalty. If it
            has a compiler, the penalty is that of the compiled model. If this compiler decides, so are the places.
        signature: See :func:`search`. Without it a ``.tflite`` of several is told by its first subgraph.
        shapes: See :func:`search`; sizes that a model leaves free. Of a ``.tflite`` they decide costs alone.

    Returns:
        Sizes, counts, ops and tensors, the fragmentation, and the scores where samples were given.

    Raises:
        ModelError: If a file is missing or no whole TFLite file.
        UsageError: If a metric or reference comes without scoring data, a shape fits no input, there is no such
            signature, or the target's compiler is not installed.
        PreparationError: If a model cannot be scored, or the target's compiler fails.

    Examples:
        >>> import autoselect
        >>> from autoselect import embedded
        >>> found = autoselect.inspect(embedded.model_path())
        >>> found.ops_by_kind
        {'float': 22}
    """
    models = (model, *compare)
    if evaluation is None and not (metric is direction is reference is None):
        raise UsageError("A metric, direction or reference needs samples to score on: pass evaluation (--evaluation).")
    refuse_unknown(signature, models)
    profile = read_target(target)
    wishes = wishes_of(signature, shapes, converter_python)
    reports = [_inspect_one(source, profile, wishes, is_alone=len(models) == 1) for source in models]
    if evaluation is not None:
        scores = score_models(
            models,
            evaluation=evaluation,
            metric=metric or "accuracy",
            direction=direction,
            reference=reference,
            signature=signature,
        )
        reports = [replace(report, score=_score_of(score)) for report, score in zip(reports, scores, strict=True)]
    result = replace(reports[0], compare=reports[1:])
    if output is not None:
        _write_inspection(result, Path(output))
    return result


def _score_of(scored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "metric": scored["metric"],
        "value": scored["score"],
        **{key: scored[key] for key in ("low", "high", "samples", "warnings")},
    }


def _write_inspection(result: Mapping[str, Any], folder: Path) -> None:
    from autoselect.report.figures.drawing import save
    from autoselect.report.figures.islands import islands_figure
    from autoselect.runs.files import plain

    write_json(folder / "inspect.json", plain(result))
    save(islands_figure([result, *result["compare"]]), folder / "islands")


def _inspect_one(model: ModelFile, target: Target, wishes: Wishes, *, is_alone: bool) -> Inspection:
    content = file_content(model, wishes)
    with naming(model):
        if wishes.signature is not None and not needs_converter(model):
            content = of_signature(TfliteFile(content), wishes.signature).content
        analysis = analyse(TfliteFile(content))
        wished = {} if needs_converter(model) else dict(wishes.shapes)
        sized = in_true_shapes(content, wished, is_one_of_several=not is_alone)
    name = file_name(model)
    fragmentation, table = on_target_of(sized.content, target, name, notes=sized.notes)
    return Inspection(path=name, **analysis, fragmentation=fragmentation, target=table, score=None, compare=[])
