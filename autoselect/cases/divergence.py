"""How far the outputs that are scored are from the float model's, on a few samples; worker side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from autoselect.cases.open_case import OpenCase, open_case
from autoselect.cases.scoring_samples import PARTS
from autoselect.domain.recipe import Recipe
from autoselect.domain.rule import Rule
from autoselect.isolation.worker import kept
from autoselect.scoring.channel_groups import (
    ChannelGroup,
    channel_groups,
    fewest_samples,
    power_shares,
    some_samples,
)
from autoselect.scoring.metric_base import in_reals
from autoselect.tflite import wide_kernels
from autoselect.tflite.runner import Outputs, Runner, Running

Run = Callable[[Mapping[str, np.ndarray]], Outputs]
"""A model that is ready to be run."""

_FEWEST = 4
"""Samples that tell how sure a mean is."""
_NO_ERROR = 1e-12
"""A share of error below which a sample counts as right."""
_CLOSENESS_SAMPLES = 32
_FEWEST_ON_KERNELS = 4
_NOTHING = 1e-20
"""A share of error below which outputs count as equal: 200 dB."""
RUINED = 1.0 / _NOTHING
"""The share of error of outputs that are no numbers. Without these samples a model would look better than it is."""
_REVERSED = 4.0
"""The share of error of outputs with the wrong sign. No sample counts for more: one that is nearly silent would
else decide the mean."""


def divergence(shares: list[float]) -> float:
    """Mean of :func:`error_shares`: 0 where nothing differs, NaN where there are none."""
    return float(np.minimum(shares, _REVERSED).mean()) if shares else float("nan")


def shares_of(decibels: np.ndarray) -> np.ndarray:
    """The shares of error that signal to noise ratios in decibels stand for, as :func:`divergence` counts them."""
    return np.asarray(np.minimum(10.0 ** (-decibels / 10.0), _REVERSED))


def decibels_of(shares: np.ndarray | Sequence[float]) -> np.ndarray:
    """The signal to noise ratios in decibels that shares of error stand for, at most 200."""
    return np.asarray(-10.0 * np.log10(np.maximum(shares, _NOTHING)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What building and running one candidate shows.

    Attributes:
        shares: Power of the outputs' error over power of the float model's outputs, a ratio for each sample; samples
            for which the float model gives nothing but zeros are left out.
        size_bytes: Size of the candidate's file.
        is_whole: False if it ran on some of the samples only, which showed that it is not worth its price.
    """

    shares: list[float]
    size_bytes: int
    is_whole: bool = True

    def cost(self, rule: Rule) -> float:
        """What its bytes and its error cost by the rule; the error is the geometric mean over samples."""
        error = float(np.mean(np.log10(np.maximum(self.shares, _NO_ERROR)))) if self.shares else math.nan
        return rule.price(penalty=0.0, size_bytes=self.size_bytes, fidelity=-10.0 * error)


def log_prices(looked: Sequence[Looked]) -> np.ndarray:
    """What several candidates cost together on each sample, in logarithms, shape (n_samples,); less is better.

    It is the share of error, a ratio of powers, times the square of the file's size in bytes. So what doubles a file
    must at least halve the amplitude of the error, as models must to be recommended.
    """
    size = 2.0 * float(np.mean([math.log(candidate.size_bytes) for candidate in looked]))
    return np.asarray(np.mean([np.log(np.maximum(candidate.shares, _NO_ERROR)) for candidate in looked], axis=0) + size)


def look_at_each(
    root: Path,
    recipes: Sequence[str],
    samples: str,
    rows: Sequence[int],
    instead_of: tuple[Sequence[Sequence[float]], Sequence[int], float] | None = None,
) -> list[Looked]:
    """Build and run several recipes; one result each, in their order.

    Recipes that are alike share a worker: it makes once what they have in common, such as the whole builds.

    Args:
        root: Folder of the case.
        recipes: Recipes as JSON.
        samples: Name of a folder of samples.
        rows: Numbers of the samples to run on.
        instead_of: The candidates that these would replace: the shares of error of each on all rows, the size of each
            file in bytes, and a factor. All together must have a price below the factor times that of those, see
            :func:`log_prices`. They stop together once the rows until then show beyond doubt that they have not. None
            lets all run on all rows.
    """
    case = open_case(root)
    expected = expected_of(case, samples, rows)
    contents = [case.builder.content(Recipe.from_json(recipe)) for recipe in recipes]
    runners = [Runner(wide_kernels.quick(content)) for content in contents]
    store, runs = case.samples(samples), [run_of(runner, samples) for runner in runners]
    all_shares = np.full((len(recipes), len(rows)), np.nan)
    done = list[int]()
    in_parts = instead_of and not any(runner.has_steps for runner in runners)  # Steps have an order.
    for places in _looks(len(rows)) if in_parts else [range(len(rows))]:
        for place in places:
            sample = store.inputs(rows[place])
            theirs = expected.outputs[place]
            all_shares[:, place] = [_noise_to_signal(run(sample), theirs, expected.groups) for run in runs]
        done = sorted([*done, *places])
        looked = [
            Looked(
                shares=shares[np.isfinite(shares)].tolist(), size_bytes=len(content), is_whole=len(done) == len(rows)
            )
            for shares, content in zip(all_shares[:, done], contents, strict=True)
        ]
        if instead_of and len(done) < len(rows) and _is_hopeless(looked, done, *instead_of):
            break
    return looked


def _looks(count: int) -> list[Sequence[int]]:
    """The places from 0 to ``count`` in three turns: every fourth, then every second, then the rest."""
    return [range(0, count, 4), range(2, count, 4), range(1, count, 2)]


def _is_hopeless(
    looked: Sequence[Looked], done: Sequence[int], shares: Sequence[Sequence[float]], sizes: Sequence[int], worth: float
) -> bool:
    """Whether candidates have, beyond doubt, a higher price than they may have, by the samples that they ran on.

    Args:
        looked: The candidates, on these samples.
        done: Places of these samples among all.
        shares: Of each candidate that they would replace, its shares of error on all samples.
        sizes: Of each of these, its file size in bytes.
        worth: The factor by which the price of these must fall.

    Returns:
        True if the mean excess over that price is above three of its standard errors. False while fewer than four
        samples differ: repairs that change no output of these may change others. False, too, if a sample was left out,
        since then nobody knows which shares are of the same sample.
    """
    if any(len(candidate.shares) < len(done) for candidate in looked):
        return False
    others = [
        Looked(shares=[row[place] for place in done], size_bytes=size) for row, size in zip(shares, sizes, strict=True)
    ]
    apart = log_prices(looked) - log_prices(others)
    if np.count_nonzero(np.abs(apart) > _NO_ERROR) < _FEWEST:
        return False
    excess = apart - math.log(worth)
    # Three standard errors: a mean over so few samples is then without doubt.
    return bool(excess.mean() > 3.0 * excess.std(ddof=1) / math.sqrt(len(excess)))


def error_shares(root: Path, recipe: str, samples: str, rows: Sequence[int], within: float = 0.0) -> list[float]:
    """The shares of error of a candidate, see :class:`Looked`; it is run as for a score.

    It runs on the rows in their order, of a model that has steps in ascending order, until two standard errors of the
    mean are less than ``within`` times the mean, but on ``_FEWEST`` at least; 0 is for all rows.
    """
    case = open_case(root)
    runner = Runner(wide_kernels.quick(case.builder.content(Recipe.from_json(recipe))))
    rows = sorted(rows) if runner.has_steps else rows
    expected = expected_of(case, samples, rows)
    return expected.shares(run_of(runner, samples), samples_of(case, samples, rows), within)


def shares_of_error(root: Path, content: bytes, rows: Sequence[int]) -> list[float]:
    """The shares of error of any model of the case's interface on calibration samples, see :class:`Looked`."""
    case = open_case(root)
    expected = expected_of(case, "calibration", rows)
    return expected.shares(Runner(content).go_on, samples_of(case, "calibration", rows))


def closeness(case: OpenCase, runner: Running) -> np.ndarray:
    """How close a model's outputs are to the float model's on a few calibration samples, in decibels.

    For models that an evaluator drives, which shows no outputs.

    Returns:
        Shape (n_samples, 1), at most 200 dB; without the samples for which the float model gives nothing but zeros.
    """
    store = case.samples("calibration")
    rows = spread_rows(len(store), _CLOSENESS_SAMPLES)
    runner.reset()
    shares = expected_of(case, "calibration", rows).shares(runner.go_on, samples_of(case, "calibration", rows))
    return decibels_of(np.reshape(shares, (-1, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnKernels:
    """A model as it is shipped, beside what stood in for its slow kernels, in decibels of the mean share of error.

    Attributes:
        samples: On so many calibration samples.
        sqnr_db: Between the two. If 8-bit nodes come after 16-bit ones, values that lie next to the middle of two
            steps fall either way, as they do between LiteRT's delegates and its own kernels.
        to_float_db: From the shipped model to float; at most 200.
        stood_in_to_float_db: From the stand-in to float.
    """

    samples: int
    sqnr_db: float
    to_float_db: float
    stood_in_to_float_db: float


def on_kernels(root: Path, sha256: str, is_chosen: bool) -> OnKernels | None:
    """Run a candidate as it is shipped, on a few calibration samples; None where it was scored so anyway.

    The model that is chosen runs on as many as six seconds allow, and any other on four.

    Raises:
        ScoreError: If the interpreter refuses it.
    """
    case = open_case(root)
    macs = wide_kernels.slow_macs(case.files.candidate(sha256).read_bytes())
    if macs < wide_kernels.WORTH_IT:
        return None
    store = case.samples("calibration")
    rows = spread_rows(len(store), _samples_on_kernels(macs) if is_chosen else _FEWEST_ON_KERNELS)
    outputs = outputs_of(case.runner(sha256, shipped=True).go_on, samples_of(case, "calibration", rows))
    stood_in = outputs_of(case.runner(sha256).go_on, samples_of(case, "calibration", rows))
    expected = expected_of(case, "calibration", rows)
    return OnKernels(
        samples=len(rows),
        sqnr_db=replace(expected, outputs=[case.scored(sample) for sample in outputs]).decibels(stood_in),
        to_float_db=expected.decibels(outputs),
        stood_in_to_float_db=expected.decibels(stood_in),
    )


def runs_on_kernels(members: int, macs: int) -> int:
    """Inferences on slow kernels that so many members take, one of which is chosen, see :func:`on_kernels`."""
    return (members - 1) * _FEWEST_ON_KERNELS + _samples_on_kernels(macs)


def _samples_on_kernels(macs: int) -> int:
    # About six seconds of LiteRT's 16-bit convolutions.
    return max(min(3_000_000_000 // macs, _CLOSENESS_SAMPLES), _FEWEST_ON_KERNELS)


def outputs_of(runner: Run, inputs: Iterable[Mapping[str, np.ndarray]]) -> list[Outputs]:
    """What a model gives for each sample, as arrays that last."""
    return [{key: value.copy() for key, value in runner(sample).items()} for sample in inputs]


def spread_rows(count: int, most: int) -> list[int]:
    """Some of so many samples, ascending and always the same, drawn at random.

    The first ones would be of one kind: representative datasets often go class by class, or are one recording.
    """
    if count <= most:
        return list(range(count))
    return sorted(np.random.default_rng(0).choice(count, most, replace=False).tolist())


def _is_known(values: Sequence[float], within: float) -> bool:
    """Whether two standard errors of the mean of values are at most a share of that mean."""
    if len(values) < _FEWEST:
        return False
    return bool(2.0 * np.std(values, ddof=1) <= within * np.mean(values) * len(values) ** 0.5)


def samples_of(case: OpenCase, samples: str, rows: Sequence[int]) -> Iterator[Mapping[str, np.ndarray]]:
    """Some of the samples of a folder, one at a time."""
    store = case.samples(samples)
    return (store.inputs(i) for i in rows)


def groups_of(outputs: Sequence[Outputs]) -> dict[str, tuple[ChannelGroup, ...]]:
    """Groups of channels of unlike ranges by output, from what the float model gives for some samples."""
    shapes = {key: {sample[key].shape for sample in outputs} for key in (outputs[0] if outputs else ())}
    some = {key: some_samples(len(outputs), outputs[0][key].nbytes) for key, sizes in shapes.items() if len(sizes) == 1}
    return {
        key: channel_groups(np.stack([in_reals(sample[key]) for sample in outputs[few]])) for key, few in some.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The float model's scored outputs for some samples, and the groups of their channels of like range."""

    outputs: Sequence[Outputs]
    groups: Mapping[str, tuple[ChannelGroup, ...]] = field(default_factory=dict)

    def shares(self, runner: Run, inputs: Iterable[Mapping[str, np.ndarray]], within: float = 0.0) -> list[float]:
        """The shares of error of a model on these samples, see :class:`Looked`, until their mean is known."""
        shares = list[float]()
        for sample, theirs in zip(inputs, self.outputs, strict=True):
            ratio = _noise_to_signal(runner(sample), theirs, self.groups)
            shares += [ratio] if np.isfinite(ratio) else []
            if within and _is_known(shares, within):
                break
        return shares

    def decibels(self, outputs: Sequence[Outputs]) -> float:
        """How far the outputs of a model are, in decibels of the mean share of error; at most 200."""
        pairs = zip(outputs, self.outputs, strict=True)
        shares = [_noise_to_signal(ours, theirs, self.groups) for ours, theirs in pairs]
        return -10.0 * math.log10(max(float(np.nanmean(shares)), _NOTHING)) if shares else math.nan


def expected_of(case: OpenCase, samples: str, rows: Sequence[int]) -> Expected:
    """The float model's scored outputs for the given rows of a folder of samples, and the groups of their channels.

    Groups need several values of each channel, and a sample has only one if the output is a vector. So if the samples
    are too few, the float model runs on further ones of the folder, which count for the groups alone.
    """
    root = case.files.root
    outputs = [case.scored(sample) for sample in float_outputs(root, samples, tuple(rows))]
    seen, fewest = outputs, max(map(fewest_samples, (outputs[0] if outputs else {}).values()), default=0)
    if len(rows) < fewest:
        more = spread_rows(len(case.samples(samples)), fewest)
        seen = [case.scored(sample) for sample in float_outputs(root, samples, tuple(more))]
    return Expected(outputs=outputs, groups=groups_of(seen))


def _noise_to_signal(outputs: Outputs, expected: Outputs, groups: Mapping[str, tuple[ChannelGroup, ...]]) -> float:
    """Mean over the outputs that are not all 0: a state of large values says no more than a mask of small ones."""
    signals = [
        power_shares(in_reals(outputs[key]), in_reals(theirs), groups.get(key, ())) for key, theirs in expected.items()
    ]
    shares = [noise / signal for signal, noise in signals if 0.0 < signal < math.inf]
    shares = [min(share, RUINED) if math.isfinite(share) else RUINED for share in shares]
    return float(np.mean(shares)) if shares else float("nan")


@kept(4)
def float_outputs(root: Path, samples: str, rows: tuple[int, ...]) -> list[Outputs]:
    """What the float model gives for some of the samples of a folder, which a worker keeps."""
    case = open_case(root)
    runner = Runner(case.files.float_model.read_bytes())
    return outputs_of(run_of(runner, samples), samples_of(case, samples, rows))


def run_of(runner: Running, samples: str) -> Run:
    """The function that runs a model on a sample of a folder: from a fresh state if the folder is a scored part.

    Else it is :meth:`autoselect.tflite.runner.Runner.go_on`, which keeps the state of a model that has steps.
    """
    return runner if samples in PARTS else runner.go_on
