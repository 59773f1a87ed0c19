"""Finds out which layers take fewer levels of weights for least, and makes a ladder of choices for candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoselect.cases import level_jobs
from autoselect.cases.divergence import spread_rows
from autoselect.cases.events import Listener, StageStarted, StepFinished
from autoselect.cases.level_jobs import Weighed
from autoselect.cases.prepare import Case
from autoselect.cases.settled import RepairChoice, Settled
from autoselect.domain.recipe import ALL_BITS, kind_of_repair
from autoselect.domain.repair_sets import Repairs
from autoselect.domain.states import SIXTEEN
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import result_of
from autoselect.scoring.target_file import read_target
from autoselect.study.setup.probing import probe_samples

RUNGS = 8
"""Choices of levels that candidates may have beside all 8 bits. Each takes whole builds of its own."""

_BETWEEN = 6
"""Bits that are measured beside the fewest and 8; figures of other numbers of bits follow from these."""

COLUMNS = ("node", "bits", "weights", "packed_bytes", "noise", "measured", "rungs")
"""Columns of ``weight_levels.csv``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Choices of levels, each with fewer bytes than the one before and more noise.

    Attributes:
        nodes: Names of the nodes with integer weights.
        bits: Numbers of bits that a node's weights may have, ascending; the last is 8.
        weights: Counts of the weights of each node.
        packed: Bytes of each node's weights after packing, for each number of bits, shape (n_nodes, n_bits).
        noise: What each node's levels add to the error of the outputs, beyond their error with 8 bits, for each number
            of bits: error power over signal power, a ratio, shape (n_nodes, n_bits). Infinite if it is not known.
        measured: The numbers of bits that were measured.
        rungs: For each choice the index of each node's number of bits among :attr:`bits`, shape (n_rungs, n_nodes).
    """

    nodes: tuple[str, ...]
    bits: tuple[int, ...]
    weights: tuple[int, ...]
    packed: np.ndarray
    noise: np.ndarray
    measured: frozenset[int]
    rungs: tuple[tuple[int, ...], ...]

    def repairs(self, rung: int) -> Repairs:
        """The repairs that give a rung's levels."""
        pairs = ((name, self.bits[place]) for name, place in zip(self.nodes, self.rungs[rung], strict=True))
        return tuple(f"levels-{bits}:{name}" for name, bits in pairs if bits < ALL_BITS)

    def noise_of(self, rung: int) -> float:
        """What a rung adds at the outputs; errors of layers add up in power."""
        return float(self.noise[np.arange(len(self.nodes)), self.rungs[rung]].sum())

    def bytes_of(self, rung: int) -> float:
        """What the weights of a rung take packed."""
        return float(self.packed[np.arange(len(self.nodes)), self.rungs[rung]].sum())

    def rows(self) -> Iterable[Mapping[str, object]]:
        """Rows of ``weight_levels.csv``: for each node and number of bits what it takes and adds."""
        for i, name in enumerate(self.nodes):
            for place, bits in enumerate(self.bits):
                yield {
                    "node": name,
                    "bits": bits,
                    "weights": self.weights[i],
                    "packed_bytes": round(float(self.packed[i, place])),
                    "noise": float(self.noise[i, place]) if math.isfinite(self.noise[i, place]) else "",
                    "measured": bits in self.measured,
                    "rungs": " ".join(str(k + 1) for k, rung in enumerate(self.rungs) if rung[i] == place),
                }


def with_levels(
    case: Case, settings: Settled, pool: Workers, listener: Listener, *, corrects: bool
) -> tuple[RepairChoice, Ladder | None]:
    """Add the sets of repairs that give fewer levels to what candidates may have.

    Each set has the common repairs, the repair that stores 4 bits if there is one, and levels of single nodes. Bytes
    after packing are measured with the fewest bits, with 6 if the fewest are less, and with 8. So is the noise that
    the rounding of one node alone gives the outputs of a float model, but not with 8. Between these numbers of bits
    bytes lie on lines, and each further bit divides the noise by four. If :func:`stores_in_4_bits` names a repair,
    nodes have 4 or 8 bits, and only these are measured.

    Args:
        case: What is searched.
        settings: With the repairs that help in 8 bits.
        pool: Where levels are measured.
        listener: Is told of each step.
        corrects: Whether each choice of levels is offered twice, with biases corrected and as they are. Rounding shifts
            outputs, the more the further levels are apart. It counts only if the repairs of 8 bits correct no bias.

    Returns:
        What candidates may have, and the ladder that the sets were made of; None if all weights have 8 bits or there
        are such sets already.

    Raises:
        TrialError: If the weights cannot be rounded or the float model cannot run, or if weights in 4 bits give other
            bits than the same weights in 8, which stand for them in the search.
    """
    choice = settings.repairs
    if settings.weights == ALL_BITS or choice.added_noise:  # A search that goes on has its sets.
        return choice, None
    stores = stores_in_4_bits(settings)
    measured = [4, ALL_BITS] if stores else sorted({settings.weights, max(settings.weights, _BETWEEN), ALL_BITS})
    rows = spread_rows(case.counts["calibration"], probe_samples(case.counts.get("search", 0)))
    own = choice.common
    biased = ("bias",) if corrects and not any(kind_of_repair(name) == "bias" for name in own) else ()
    as_they_are = tuple(sorted({*own, *stores}))
    common = tuple(sorted({*as_they_are, *biased}))
    listener(StageStarted(stage="levels", total=len(measured)))
    recipe = replace(settings.template, repairs=common).to_json()
    timeout = settings.trial_timeout * max(len(case.layers.nodes) // 8, 1)
    futures = {
        bits: pool.submit(
            level_jobs.weigh,
            case.files.root,
            recipe,
            bits,
            rows if bits < ALL_BITS else [],
            timeout_seconds=timeout,
        )
        for bits in measured
    }
    weighed = {}
    for bits, future in futures.items():
        weighed[bits] = result_of(future)
        listener(StepFinished(stage="levels"))
    if stores:
        _prove_twins(case, settings, pool, common)
    ladder = ladder_of(weighed, measured if stores else range(settings.weights, ALL_BITS + 1))
    return with_rungs(choice, ladder, common, as_they_are), ladder


def with_rungs(choice: RepairChoice, ladder: Ladder, common: Repairs, as_they_are: Repairs) -> RepairChoice:
    """Add one set of repairs for each rung, or two if ``as_they_are`` differs from ``common``.

    Args:
        choice: What candidates may have so far.
        ladder: Its rungs say the levels.
        common: What each set has beside its levels.
        as_they_are: The same without the bias correction that is to be tried; equal to ``common`` if none is.
    """
    ways = {"": common} | ({" as they are": as_they_are} if as_they_are != common else {})
    sets = dict(choice.sets or {"none": choice.common})
    noise = dict[str, float]()
    for rung in range(len(ladder.rungs)):
        for ending, others in ways.items():
            name = f"weights {rung + 1}{ending}"
            sets[name] = tuple(sorted({*others, *ladder.repairs(rung)}))
            noise[name] = ladder.noise_of(rung)
    return replace(choice, sets=sets, added_noise=noise)


_PROVED_ON = 4
"""Calibration samples on which weights in 4 bits must give the bits of 8."""


def _prove_twins(case: Case, settings: Settled, pool: Workers, common: Repairs) -> None:
    """Compare the outputs of models with all possible weights in 4 bits with those of their copies in 8 bits.

    There is a model with 8-bit activations, and one with 16-bit activations if the search has them. Each runs on
    ``_PROVED_ON`` calibration samples.

    Raises:
        TrialError: If a model gives other outputs than its copy, or cannot be built or run.
    """
    nodes = frozenset(node.name for node in case.layers.nodes)
    template = replace(settings.template, repairs=tuple(sorted({*common, "levels-4"})))
    recipes = {"8-bit": template}
    if SIXTEEN in settings.states:
        recipes["16-bit"] = replace(template, int16_nodes=nodes)
    rows = spread_rows(case.counts["calibration"], _PROVED_ON)
    futures = {
        state: pool.submit(level_jobs.unlike_its_twin, case.files.root, recipe.to_json(), rows)
        for state, recipe in recipes.items()
    }
    for state, future in futures.items():
        if result_of(future):
            raise TrialError(f"With {state} activations weights in 4 bits give other outputs than the same in 8 bits.")


def stores_in_4_bits(settings: Settled) -> tuple[str, ...]:
    """The repair that stores weights in 4 bits, if the target's runtime reads these and a search counts the file.

    Then layers have 4 or 8 bits: others take as much as 8.
    """
    int4 = read_target(settings.target).int4
    is_asked = settings.weights == 4 and "size" in settings.objectives and int4 is not None
    return (int4,) if is_asked and int4 is not None else ()


def ladder_of(weighed: Mapping[int, Sequence[Weighed]], bits: Sequence[int]) -> Ladder:
    """The ladder of what was weighed.

    Args:
        weighed: By number of bits, the nodes in the same order; those of 8 are there.
        bits: The numbers of bits that nodes may have, ascending, the last 8.
    """
    measured, plain = sorted(weighed), weighed[ALL_BITS]
    nodes = tuple(layer.node for layer in plain)
    packed_at = np.array([[layer.packed_bytes for layer in weighed[b]] for b in measured]).reshape(len(measured), -1)
    packed = np.array([np.interp(bits, measured, column) for column in packed_at.T]).reshape(-1, len(bits))
    noise_at = {b: np.array([_known(layer.noise) for layer in weighed[b]]) for b in measured if b < ALL_BITS}
    noise = np.array([[_noise(noise_at, i, b) for b in bits] for i in range(len(nodes))]).reshape(-1, len(bits))
    return Ladder(
        nodes=nodes,
        bits=tuple(bits),
        weights=tuple(layer.weights for layer in plain),
        packed=packed,
        noise=noise,
        measured=frozenset(measured),
        rungs=_rungs(packed, noise),
    )


def _known(noise: float) -> float:
    """The noise; infinite if it is not known, so that the layer keeps its levels."""
    return noise if math.isfinite(noise) else math.inf


def _noise(measured: Mapping[int, np.ndarray], node: int, bits: int) -> float:
    """What a node's levels add beyond those of 8 bits: an error of rounding falls by four with each bit."""
    if bits == ALL_BITS:
        return 0.0
    nearest = min(measured, key=lambda other: (abs(other - bits), other))
    more = 4.0**-bits - 4.0**-ALL_BITS
    return float(measured[nearest][node]) * more / 4.0**-nearest


def _rungs(packed: np.ndarray, noise: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """The choices of least noise for their bytes, as many as there may be, evenly spaced in bytes.

    Each node has the bits of least ``noise + price * bytes``, at one price for all: no other choice of as many bytes
    has less noise. All prices at which any node changes are tried.
    """
    if not packed.size:
        return ()
    spared, added = packed[:, -1:] - packed, noise
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (added[:, :, None] - added[:, None, :]) / (spared[:, :, None] - spared[:, None, :])
    prices = np.unique(slopes[np.isfinite(slopes) & (slopes > 0.0)])
    tried = np.geomspace(prices[0], prices[-1], _PRICES) if len(prices) > _PRICES else prices
    choices = [tuple(np.argmin(added - price * spared, axis=1).tolist()) for price in (0.0, *(tried * _JUST_ABOVE))]
    places = np.arange(len(packed))
    by_bytes = {choice: float(packed[places, choice].sum()) for choice in dict.fromkeys(choices)}
    whole = float(packed[:, -1].sum())
    targets = np.linspace(whole, min(by_bytes.values(), default=whole), RUNGS + 1)[1:]
    chosen = (min(by_bytes, key=lambda choice: (abs(by_bytes[choice] - target), choice)) for target in targets)
    return tuple(choice for choice in dict.fromkeys(chosen) if by_bytes[choice] < whole)


_PRICES = 2000
"""Most prices that are tried."""
_JUST_ABOVE = 1.0 + 1e-7
"""At a price itself a node's two numbers of bits cost the same; just above it the fewer cost less."""
