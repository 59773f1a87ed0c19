"""``autoselect search``."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

import typer

from autoselect.cli.config_file import read_config
from autoselect.cli.console import reported, watching
from autoselect.cli.options import (
    CALIBRATION_HELP,
    EVALUATION_HELP,
    METRIC_HELP,
    AsJsonLines,
    Debug,
    Direction,
    NoCache,
    Quiet,
    ShapeTexts,
    Signature,
    Workers,
    command_line,
    parse_size,
    shapes_of,
)


class Sampler(str, Enum):
    """How candidates are proposed."""

    SURROGATE = "surrogate"
    TPE = "tpe"
    NSGA2 = "nsga2"
    RANDOM = "random"
    PREFIX = "prefix"
    GREEDY = "greedy"
    HEURISTIC = "heuristic"
    EXHAUSTIVE = "exhaustive"


class Fallback(str, Enum):
    """What nodes left out of full-integer quantization become; ``search`` chooses for each unit."""

    DRQ = "drq"
    FLOAT = "float"
    SEARCH = "search"


class IoType(str, Enum):
    """Type of the candidates' inputs and outputs."""

    FLOAT32 = "float32"
    INT8 = "int8"
    UINT8 = "uint8"


_DATA, _CANDIDATES, _LIMITS = "Data and metric", "Candidates", "Limits of what is acceptable"


def _option(*names: str, panel: str, text: str) -> Any:
    return typer.Option(*names, rich_help_panel=panel, help=text)


def _read_config(context: typer.Context, path: str | None) -> str | None:
    return read_config(context, path, search)


def _with_latency(objectives: str) -> str:
    named = [name.strip() for name in objectives.split(",")]
    return ",".join([*named, *(["latency"] if "latency" not in named else [])])


def search(
    *,
    model: Annotated[str, typer.Argument(help="Float .tflite, .keras, .h5 or SavedModel folder.")],
    calibration: Annotated[str | None, _option("--calibration", panel=_DATA, text=CALIBRATION_HELP)] = None,
    signature: Signature = None,
    shapes: ShapeTexts = None,
    evaluation: Annotated[str | None, _option("--eval", panel=_DATA, text=EVALUATION_HELP)] = None,
    metric: Annotated[str, _option("--metric", panel=_DATA, text=METRIC_HELP)] = "accuracy",
    direction: Annotated[
        Direction | None, _option("--direction", panel=_DATA, text="For a metric or evaluator of your own.")
    ] = None,
    evaluator: Annotated[
        str | None,
        _option(
            "--evaluator",
            panel=_DATA,
            text="Instead of --metric: 'package.module:function', called with a runner, returns a number.",
        ),
    ] = None,
    output_name: Annotated[
        str | None, _option("--output-name", panel=_DATA, text="Output to score; the first by default.")
    ] = None,
    objectives: Annotated[
        str,
        _option(
            "--objectives",
            panel=_DATA,
            text="Two to four, with commas: accuracy (the metric), size, penalty, segments, float_ops, crossing_bytes, "
            "arena_bytes, npu_cycles, latency.",
        ),
    ] = "accuracy,size,penalty",
    latency: Annotated[
        bool, _option("--latency", panel=_DATA, text="Add latency, measured on this host, to the objectives.")
    ] = False,
    latency_threads: Annotated[
        int, typer.Option(min=1, max=64, rich_help_panel=_DATA, help="Threads that latency is measured with.")
    ] = 1,
    heldout: Annotated[
        str | None,
        _option("--heldout", panel=_DATA, text="Samples for the final check; else a share of --eval."),
    ] = None,
    heldout_fraction: Annotated[float, typer.Option(min=0, max=1, rich_help_panel=_DATA, help="That share.")] = 0.5,
    allow_overlap: Annotated[
        bool, _option("--allow-overlap", panel=_DATA, text="Accept samples that occur in two data sets.")
    ] = False,
    trials: Annotated[int, typer.Option(min=1, help="Candidates to try.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampler and the split.")] = 0,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Run folder; a new autoselect-run by default.")
    ] = None,
    sampler: Annotated[Sampler, typer.Option(help="How candidates are proposed.")] = Sampler.SURROGATE,
    racing: Annotated[
        bool, typer.Option("--racing/--no-racing", help="Drop early candidates that add too little to the front.")
    ] = True,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.999, help="With which one that is worth it is not dropped.")
    ] = 0.9,
    min_gain: Annotated[
        float, typer.Option(min=0.0, max=0.5, help="Share of the front's hypervolume that one must add to be worth it.")
    ] = 0.0003,
    early_exit: Annotated[
        bool, typer.Option("--early-exit/--no-early-exit", help="End where the all-integer model is good enough.")
    ] = True,
    search_space: Annotated[str, typer.Option(help="Name of a bundled space, or a .toml file.")] = "default",
    workers: Workers = 2,
    trial_timeout: Annotated[
        float, typer.Option(min=1, help="Seconds after which one job of native code counts as hung.")
    ] = 900.0,
    debug_samples: Annotated[
        int, typer.Option(min=1, help="Calibration samples that layer statistics are measured on.")
    ] = 50,
    no_cache: NoCache = False,
    target: Annotated[
        str, _option("--target", panel=_CANDIDATES, text="What they run on: a bundled profile, or a .toml file.")
    ] = "integer-only",
    compiling: Annotated[
        bool,
        _option("--compile/--no-compile", panel=_CANDIDATES, text="Compile them where the target has a compiler."),
    ] = True,
    fallback: Annotated[
        Fallback | None,
        _option(
            "--fallback",
            panel=_CANDIDATES,
            text="What nodes left out of integers become; drq by default where the target runs it.",
        ),
    ] = None,
    per_channel: Annotated[
        bool,
        _option("--per-channel/--per-tensor", panel=_CANDIDATES, text="One weight scale per channel or tensor."),
    ] = True,
    repairs: Annotated[
        bool,
        _option("--repairs/--no-repairs", panel=_CANDIDATES, text="Correct biases and more, at no float op."),
    ] = True,
    io: Annotated[
        IoType | None,
        _option("--io", panel=_CANDIDATES, text="Type of the inputs and outputs; what the target expects by default."),
    ] = None,
    keep_float: Annotated[
        list[str] | None,
        _option("--keep-float", panel=_CANDIDATES, text="Node, glob or op type never in integers; repeatable."),
    ] = None,
    keep_int: Annotated[
        list[str] | None,
        _option("--keep-int", panel=_CANDIDATES, text="Node, glob or op type always in integers; repeatable."),
    ] = None,
    min_score: Annotated[
        float | None, _option("--min-score", panel=_LIMITS, text="What a candidate must score; float must too.")
    ] = None,
    max_drop: Annotated[
        float | None, _option("--max-drop", panel=_LIMITS, text="Largest loss of the metric, in its units.")
    ] = None,
    max_size: Annotated[
        float | None,
        typer.Option(
            parser=parse_size, metavar="SIZE", rich_help_panel=_LIMITS, help="Largest file: bytes, 48kB, 1.5MB."
        ),
    ] = None,
    max_penalty: Annotated[
        float | None, _option("--max-penalty", panel=_LIMITS, text="Largest fragmentation penalty.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            callback=_read_config, is_eager=True, metavar="TOML", help="File of options; see autoselect init."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJsonLines = False,
    debug: Debug = False,
) -> None:
    """Search which layers to leave out of full-integer quantization, and write the Pareto front."""
    with reported(debug=debug):
        from autoselect import search as run_search
        from autoselect.cli.results import finish

        with watching(quiet=quiet, as_json=as_json) as watcher:
            run = run_search(
                model,
                calibration=calibration,
                signature=signature,
                shapes=shapes_of(shapes),
                evaluation=evaluation,
                metric=metric,
                direction=direction.value if direction else None,
                evaluator=evaluator,
                output_name=output_name,
                objectives=_with_latency(objectives) if latency else objectives,
                latency_threads=latency_threads,
                heldout=heldout,
                heldout_fraction=heldout_fraction,
                trials=trials,
                seed=seed,
                output=output,
                sampler=sampler.value,
                racing=racing,
                confidence=confidence,
                min_gain=min_gain,
                early_exit=early_exit,
                search_space=search_space,
                target=target,
                compiling=compiling,
                fallback=fallback.value if fallback else None,
                per_channel=per_channel,
                io_type=io.value if io else None,
                repairs=repairs,
                keep_float=tuple(keep_float or ()),
                keep_int=tuple(keep_int or ()),
                min_score=min_score,
                max_drop=max_drop,
                max_size=max_size,
                max_penalty=max_penalty,
                workers=workers,
                allow_overlap=allow_overlap,
                debug_samples=debug_samples,
                trial_timeout=trial_timeout,
                cache=not no_cache,
                command=command_line(),
                listener=watcher,
            )
        finish(run, as_json=as_json, warned=watcher.warned)
