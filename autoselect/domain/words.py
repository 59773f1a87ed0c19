"""Scores, losses, lists and hints in words, for every sentence that has one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

SHARES = frozenset({"accuracy", "top5_accuracy", "balanced_accuracy", "agreement"})
"""Metrics that are said in per cent, and whose differences are points."""
CLOSENESS = "sqnr_db"
"""A metric by which float is perfect, at 200 dB: nobody asks what a model loses of these, but how close it is."""
_FLOAT_DB = 200.0
_UNITS = {CLOSENESS: "dB", "psnr": "dB", "kl_divergence": "nats"}
_LEAST_POINTS = 0.01


def said(score: float, metric: str) -> str:
    """A score with its unit: ``92.8 % accuracy``, ``31.4 dB``."""
    return f"{100 * score:.1f} % {_spoken(metric)}" if metric in SHARES else f"{score:.4g} {_unit(metric)}"


def amount(value: float, metric: str) -> str:
    """How large a difference of scores is: ``1.2 points`` of a share, else the number and the metric's unit or name."""
    value = abs(value)
    if metric not in SHARES:
        return f"{value:.3g} {_unit(metric)}"
    if _is_tiny(value, metric):
        return f"less than {_LEAST_POINTS} points"
    points = f"{100 * value:.1f}" if value >= 0.001 or value == 0 else f"{100 * value:.2g}"
    return f"{points} {'point' if points == '1.0' else 'points'}"


def _is_tiny(value: float, metric: str) -> bool:
    """Whether a positive difference is below all that is told in points."""
    return metric in SHARES and 0.0 < 100 * value < _LEAST_POINTS


def _level(drop: float) -> float:
    """The SQNR in dB of a model with this drop from the float model, which has the most that there is."""
    return min(_FLOAT_DB - drop, _FLOAT_DB)


def between(low: float, high: float, metric: str) -> str:
    """An interval of a drop: ``33 to 49 dB`` of closeness; of other metrics as :func:`difference`."""
    if metric == CLOSENESS:
        return f"{_level(high):.3g} to {_level(low):.3g} dB"
    return difference(low, high, metric)


def difference(low: float, high: float, metric: str) -> str:
    """An interval of a difference of scores, such as the chip's and the CPU's.

    As in ``0.1 points to 0.5 points lost``, ``0.5 points gained to 0.3 points lost``, ``2 dB to 5 dB lost``,
    ``nothing lost``.
    """
    ends = (amount(low, metric), amount(high, metric))
    gained, worse = ("gained", "lost") if _is_lost(metric) else ("better", "worse")
    if low == high == 0.0:
        return f"nothing {worse}"
    if low < 0.0 < high:
        return f"{ends[0]} {gained} to {ends[1]} {worse}"
    least, most = sorted((low, high), key=abs)
    return f"{amount(least, metric)} to {amount(most, metric)} {worse if high > 0.0 else gained}"


def lost(drop: float, metric: str) -> str:
    """A drop in words: ``loses 1.2 points``, ``gains 0.1 points``, ``is 0.2 mse worse``, ``loses nothing``."""
    if metric == CLOSENESS:
        return f"has {_level(drop):.3g} dB"
    if drop == 0.0:
        return "loses nothing"
    text = amount(drop, metric)
    if _is_lost(metric):
        return f"{'loses' if drop > 0 else 'gains'} {text}"
    return f"is {text} {'worse' if drop > 0 else 'better'}"


def lost_at_most(drop: float, metric: str) -> str:
    """A bound on a drop in words: ``loses at most 1.2 points``, ``has at least 20 dB``, ``loses nothing``."""
    if metric == CLOSENESS:
        return f"has at least {_level(drop):.3g} dB"
    if drop <= 0.0:
        return "loses nothing"
    text = amount(drop, metric)
    if _is_tiny(drop, metric):
        return f"loses {text}"
    return f"loses at most {text}" if _is_lost(metric) else f"is at most {text} worse"


def asked(drop: float, metric: str, *, missed_by: float | None = None) -> str:
    """The limit of a drop in words: ``the limit is 1.0 point``, ``... a gain of 0.5 points``, ``... 20 dB``.

    Args:
        drop: The limit.
        metric: What the drop is of.
        missed_by: A drop beyond the limit. If it sounds like the limit, that is told: ``..., slightly less``.
    """
    if metric == CLOSENESS:
        text = f"the limit is {_FLOAT_DB - drop:.3g} dB"
    else:
        text = f"the limit is {'a gain of ' if drop < 0.0 else ''}{amount(drop, metric)}"
    if missed_by is None or asked(missed_by, metric) != text:
        return text
    return f"{text}, slightly {'more' if metric == CLOSENESS or drop < 0.0 else 'less'}"


def within(drop: float, metric: str) -> str:
    """What a model that keeps an allowed drop is: ``within 1.0 point``, ``at least 20 dB``."""
    return f"at least {_FLOAT_DB - drop:.3g} dB" if metric == CLOSENESS else f"within {amount(drop, metric)}"


def all_integer(float_ops: float | None) -> str:
    """What a model is called that has every op in integers for which there is a kernel."""
    return f"integer, {counted(round(float_ops), 'float op')}" if float_ops else "all-integer"


def whole_model(float_ops: float | None) -> str:
    """What such a model is called in a sentence: ``all-integer model``, ``integer model with 2 float ops``."""
    return f"integer model with {counted(round(float_ops), 'float op')}" if float_ops else "all-integer model"


def _is_lost(metric: str) -> bool:
    """Whether people lose and gain of it, as of shares and decibels; of an error they have more or less."""
    return metric in SHARES or _UNITS.get(metric) == "dB"


def unit_of_drops(metric: str) -> tuple[str, float]:
    """The unit in which differences of scores are said, and by what they are multiplied: 100 for points of a share."""
    return ("points", 100.0) if metric in SHARES else (_unit(metric), 1.0)


def _spoken(metric: str) -> str:
    return label(metric).replace("_", " ")


def _unit(metric: str) -> str:
    return _UNITS.get(metric) or _spoken(metric)


def label(metric: str) -> str:
    """The metric's name as a heading: without the module of ``package.module:function``."""
    return metric.rpartition(":")[2]


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def some(items: Sequence[str], shown: int = 5, separator: str = ", ") -> str:
    """The first few, and how many more there are."""
    rest = len(items) - shown
    return separator.join(items[:shown]) + (f" and {rest} more" if rest > 0 else "")


def counted(count: int, noun: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def clean(text: str) -> str:
    """A text with names from files as one printable line, so that it cannot upset a table or a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def did_you_mean(name: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.6) -> str:
    """`` Did you mean 'a' or 'b'?``, the known names that look like this one; empty where none does.

    Args:
        name: That is not known.
        names: Those that are.
        most: So many names at most.
        cutoff: How alike names must be, from 0 to 1, see :func:`difflib.get_close_matches`.
    """
    close = difflib.get_close_matches(name, dict.fromkeys(names), n=most, cutoff=cutoff)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
