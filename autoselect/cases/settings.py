"""Everything a search can be told, declared once: type, default, limits and words; it is never changed.

The command line, the files in place of options, the Python functions, the documentation and the manifest of a run are
all read off :class:`SearchSettings`. Nothing else in the package says what a setting is called or what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from autoselect.cases.option import GOAL, HARDWARE, OUTPUT, SEARCH, Bytes, Option
from autoselect.cases.shared_settings import Given, SharedSettings, checked_as, checked_settings, data, text_of_path
from autoselect.data.kinds import Samples
from autoselect.domain.objectives import Direction
from autoselect.domain.quantities import DEFAULT_OBJECTIVES, chosen_objectives, parse_size
from autoselect.domain.recipe import ALL_BITS, IoType, Recipe
from autoselect.domain.rule import BREAK_PRICE
from autoselect.domain.runtimes import read_runtime

Sampler = Literal["surrogate", "tpe", "nsga2", "random"]
"""Names of the samplers."""

Fallback = Literal["drq", "float", "search"]
"""What left-out nodes become."""

Emulation = Literal["front", "all", "none"]
"""What runs on an emulation of a chip."""

_goal = partial(Option, panel=GOAL)
_hardware = partial(Option, panel=HARDWARE)
_search = partial(Option, panel=SEARCH)


Texts = Annotated[Iterable[str], checked_as(tuple[str, ...])]


def _known_runtime(text: str | None) -> str | None:
    """The text, if there is such a runtime."""
    if text is not None:
        read_runtime(text)
    return text


class SearchSettings(SharedSettings):
    """One search; the fields with an :class:`Option` are what users may set, in the order in which they read them."""

    evaluation: Annotated[
        Given[Samples | None],
        data(
            "Required: samples to score on, an .npz file with the targets as y or package.module:function.",
            "The file has the inputs by name, or as ``x``. The function yields pairs of inputs and target. ``(x, y)`` "
            "arrays and the function itself work, too. An array ``groups`` keeps samples of one speaker, subject or "
            "recording in one part.",
            old="--eval",
            live=True,
        ),
    ] = None
    metric: Annotated[
        str | Callable[..., float],
        checked_as(str),
        _goal(
            "accuracy, top5_accuracy, balanced_accuracy, f1_macro, cohen_kappa, mean_iou, mse, mae, psnr; without "
            "labels agreement, sqnr_db, kl_divergence; or package.module:function of (y_true, y_pred).",
            "Or the function itself.",
            live=True,
        ),
    ] = "accuracy"
    direction: Annotated[
        Direction | None,
        Option("Whether more or less is better, for a metric or evaluator of your own.", example="maximize"),
    ] = None
    evaluator: Annotated[
        Given[str | Callable[..., Any] | None],
        Option(
            "Instead of {metric}: package.module:function, called with a runner, returns a number or, better, one for "
            "each sample.",
            "Or the function itself. The runner runs the candidate. The score is the mean of the numbers, or what "
            "autoselect.Parts makes of them.",
            example="my_module:score",
            live=True,
        ),
    ] = None
    output_name: Annotated[str | None, Option("Output to score; the first by default.")] = None
    ignore_label: Annotated[
        int | None,
        Option(
            "Label of pixels that mean_iou leaves out, in addition to 255.",
            "If it is a class, the mean leaves it out.",
            example=0,
        ),
    ] = None
    objectives: Annotated[
        str | Iterable[str],
        checked_as(tuple[str, ...], chosen_objectives),
        _goal(
            "Two to four of accuracy, size, penalty, segments, float_ops, "
            "partitions, left_ops, crossing_bytes, arena_bytes, npu_cycles, ddr_bytes, flash, download, latency.",
            "Or several texts. ``accuracy``, or the metric's own name, is among them. With ``latency`` no two runs are "
            "the same.",
            kind=str,
        ),
    ] = DEFAULT_OBJECTIVES
    latency: Annotated[Given[bool], Option("Add latency, measured on this host, to the objectives.", only="shell")] = (
        Field(default=False, init=False)
    )
    latency_threads: Annotated[int, Field(ge=1, le=64), Option("Threads for measuring latency.")] = 1
    heldout: Annotated[
        Given[Samples | None],
        data("Samples for the final check; by default a share of {evaluation}.", example="heldout.npz", live=True),
    ] = None
    heldout_fraction: Annotated[
        float, Field(gt=0, lt=1), Option("Share of {evaluation} to hold out if there is no {heldout}.", low=0, high=1)
    ] = 0.5
    split_seed: Annotated[
        int,
        Field(ge=0),
        Option(
            "Seed that decides which samples are held out.", "Searches with different {seed} hold out the same samples."
        ),
    ] = 0
    allow_overlap: Annotated[
        bool,
        Option("Accept samples that occur in two data sets.", "The sets are calibration, search and held-out data."),
    ] = False
    trials: Annotated[
        int,
        Field(ge=1),
        _search(
            "Candidates to try.", "The baselines count, too.", resume="New total of candidates; as before by default."
        ),
    ] = 100
    timeout: Annotated[
        Annotated[float, Field(gt=0)] | None,
        Option(
            "Begin no candidate after so many seconds.",
            "The baselines are always scored, and the final check follows. No two runs are then the same.",
            low=1,
            example=1200.0,
            resume="Seconds from now after which no further candidate is begun; as before by default.",
        ),
    ] = None
    seed: Annotated[int, Field(ge=0), _search("Of the sampler and of racing.")] = 0
    output: Annotated[
        Given[str | Path | None],
        Option(
            "Run folder; a new autoselect-run by default.",
            "It must be new or empty. The default is numbered if it is taken.",
            names="--output -o",
            panel=OUTPUT,
            kind=str,
            example="autoselect-run",
        ),
    ] = None
    sampler: Annotated[
        Sampler,
        checked_as(str),
        Option("How candidates are proposed.", "The others are there to compare with ``surrogate``."),
    ] = "surrogate"
    racing: Annotated[
        bool,
        Option(
            "Drop candidates early that add too little to the front.",
            "This works for metrics that are means over samples.",
        ),
    ] = True
    confidence: Annotated[
        float,
        Field(gt=0, lt=1),
        Option("Probability of keeping a candidate that deserves a full evaluation."),
    ] = 0.9
    min_gain: Annotated[
        float,
        Field(ge=0, lt=1),
        Option(
            "Share of the front's hypervolume that a candidate must add to deserve a full evaluation.",
            "0 keeps all that enter the front.",
        ),
    ] = 0.002
    break_price: Annotated[
        float,
        Field(gt=0, le=100),
        Option(
            "What a recommended model that breaks {max_drop} costs, in penalties of the float model.",
            "The more, the surer the recommended model is, and the dearer. Below 1, another model than float would be "
            "shipped instead.",
        ),
    ] = BREAK_PRICE
    early_exit: Annotated[
        bool,
        Option(
            "Stop if the all-integer model is good enough.",
            "It is if its drop is within {max_drop}, by default 1 % of float's score, with 95 % confidence.",
        ),
    ] = True
    front_spacing: Annotated[
        float,
        Field(ge=0, le=100),
        Option(
            "Least distance between members of the front: 1 means 1 % of the float file, half a point of penalty and "
            "one standard error of the drop; 0 keeps all.",
            "If the penalty is not in points, every difference counts. Picks always stay, and ``trials.csv`` marks the "
            "whole front.",
        ),
    ] = 1.0
    search_space: Annotated[
        str | Path,
        checked_as(str, text_of_path, first=True),
        Option("Name of a bundled space, or a .toml file.", kind=str),
    ] = "default"
    scheduler: Annotated[
        Given[Any],
        Option(
            "Work on a Dask cluster: tcp://HOST:PORT, tls://HOST:PORT, a scheduler's .json file, or local:4 to try.",
            "A ``distributed.Client`` works, too. Candidates are built and scored there. {workers} processes here "
            "prepare, and go on if the scheduler is lost.",
            kind=str,
            last=True,
            metavar="ADDRESS",
            example="tls://10.0.0.1:8786",
            resume="Work on a Dask cluster; as in autoselect search, and not kept from before.",
        ),
    ] = None
    insecure: Annotated[
        Given[bool],
        Option(
            "Take a {scheduler} that is neither on this machine nor encrypted.",
            "Whoever reaches its port can then run code.",
            last=True,
            resume="Take a scheduler that is neither on this machine nor encrypted.",
        ),
    ] = False
    debug_samples: Annotated[int, Field(ge=1), Option("Calibration samples for measuring layer statistics.")] = 50
    target: Annotated[
        str | Path,
        checked_as(str, text_of_path, first=True),
        _hardware(
            "What the models run on: a profile or .toml file.",
            "It decides the penalty, refuses candidates, and gives the defaults of {fallback} and {io_type}.",
            kind=str,
        ),
    ] = "integer-only"
    runtime: Annotated[
        str | None,
        checked_as(str | None, _known_runtime),
        Option(
            "Oldest runtime that must load the models: a version of LiteRT such as 2.1.0, tensorflow, or "
            "tensorflow-2.21.",
            "Candidates that it refuses are not tried. Scores are of the version that is installed.",
            metavar="VERSION",
            example="2.1.0",
        ),
    ] = None
    compiling: Annotated[
        bool,
        Option(
            "Compile the candidates if the target has a compiler.",
            "The compiler's cycles then make the penalty.",
            old="--compile/--no-compile",
        ),
    ] = True
    exact_rewrites: Annotated[
        bool,
        Option(
            "Write candidates as the target's compiler takes more of them, without a change of any output.",
            "The order of ops, shapes that a fixed batch settles, and RELU6 that clips nothing.",
        ),
    ] = True
    emulation: Annotated[
        Emulation,
        Option(
            "What runs on an emulation of the target's chip, if its vendor has one: the front, all candidates, none.",
            "If members score otherwise there than on the CPU, the recommendation goes by the chip's score. With "
            "``all`` each candidate is scored there, of several chips on the first.",
        ),
    ] = "front"
    emulation_samples: Annotated[
        Annotated[int, Field(ge=2)] | None,
        Option(
            "Search samples to emulate; by default what half a minute of one core allows, at least 8.",
            example=200,
        ),
    ] = None
    fallback: Annotated[
        Fallback | None,
        Option(
            "What left-out nodes become; by default search if the target runs hybrid ops.",
            "``search`` chooses hybrid (DRQ) or float for each unit. ``drq`` and ``float`` have one of them alone, but "
            "``drq`` gives float if there is no hybrid kernel.",
            example="search",
        ),
    ] = None
    int16: Annotated[
        bool | None,
        Option(
            "Try units in 16-bit activations, too; by default where the target's accelerator runs them.",
            "They are integer ops with int8 weights. Of a target without an accelerator it is its processor that "
            "must run them. Beside the {fallback} ``drq`` alone there are none.",
            names="--int16/--no-int16",
            example=True,
        ),
    ] = None
    per_channel: Annotated[
        bool, Option("One weight scale per channel, or one per tensor.", names="--per-channel/--per-tensor")
    ] = True
    repairs: Annotated[
        bool | Iterable[str],
        checked_as(
            bool | tuple[str, ...], lambda wish: wish if isinstance(wish, bool) else Recipe(repairs=wish).repairs
        ),
        Option(
            "Try repairs that add no float op, such as bias correction.",
            "True lets the search try what helps, False gives plain candidates, and names are taken as they are: "
            "``bias``, ``bias-sequential``, ``equalization``, ``weights-mse``, ``rounding-gptq``, "
            "and one of ``ranges-mse``, ``ranges-observed``, ``ranges-percentile``, ``ranges-moving-average``; ranges "
            "of single nodes as ``ranges-mse:NODE``.",
            kind=bool,
        ),
    ] = True
    weights: Annotated[
        int,
        Field(ge=4, le=ALL_BITS),
        Option(
            "Fewest bits of the levels of weights: 4 to 8.",
            "Below 8 the search chooses layers whose weights get fewer levels. They are stored in 8 bits, so every "
            "kernel runs them, and they pack into less: ask for the objective ``download``, or ``flash`` with an "
            "Ethos-U.",
            low=4,
            high=ALL_BITS,
        ),
    ] = ALL_BITS
    io_type: Annotated[
        IoType | None,
        _hardware(
            "Of inputs and outputs: float32, int8 or uint8; by default what the target expects.",
            "The type of a converter comes before that. It is ``float32`` if neither says.",
            old="--io",
            metavar="TYPE",
            example="int8",
        ),
    ] = None
    keep_float: Annotated[
        Texts, _search("Node, glob or op type to keep out of integers.", kind=list[str], example=["SOFTMAX"])
    ] = ()
    keep_int: Annotated[
        Texts, _search("Node, glob or op type to keep in integers.", kind=list[str], example=["CONV_2D"])
    ] = ()
    min_score: Annotated[
        float | None,
        _goal(
            "Least score; float must reach it, too.",
            "The largest score, if the metric is minimized.",
            example=0.7,
        ),
    ] = None
    max_drop: Annotated[
        float | None, _goal("Largest loss of the metric, in its units.", "Against the float model.", example=0.01)
    ] = None
    max_size: Annotated[
        float | str | None,
        checked_as(
            Annotated[float, Field(gt=0)] | None,
            lambda size: parse_size(size) if isinstance(size, str) else size,
            first=True,
        ),
        _goal("Largest file: bytes, 48kB, 1.5MB.", "A number, or a text with a unit.", kind=Bytes, example="400kB"),
    ] = None
    max_penalty: Annotated[
        Annotated[float, Field(ge=0)] | None, _goal("Largest fragmentation penalty.", example=20.0)
    ] = None

    @property
    def named_repairs(self) -> tuple[str, ...]:
        """The repairs that the user chose by name; none if the search finds out which help, or there are none."""
        return () if isinstance(self.repairs, bool) else tuple(self.repairs)


def make_settings(**values: object) -> SearchSettings:
    """Check settings of a search.

    Raises:
        UsageError: If one is wrong, with its name.
    """
    return checked_settings(SearchSettings, values)
