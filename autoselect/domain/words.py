"""Scores and losses in words, for every sentence that has one."""

from __future__ import annotations

from collections.abc import Sequence

SHARES = frozenset({"accuracy", "top5_accuracy", "balanced_accuracy", "agreement"})
"""Metrics that are said in per cent, and whose differences are points."""
CLOSENESS = "sqnr_db"
"""A metric by which float is perfect, at 200 dB: nobody asks what a model loses of these, but how close it is."""
_FLOAT_DB = 200.0
_UNITS = {CLOSENESS: "dB", "psnr": "dB"}


def said(score: float, metric: str) -> str:
    """A score with its unit: ``92.8 % accuracy``, ``31.4 dB``."""
    return f"{100 * score:.1f} % {metric}" if metric in SHARES else f"{score:.4g} {_unit(metric)}"


def amount(value: float, metric: str) -> str:
    """A difference of scores with its unit: ``1.2 points`` of a share, else the number and the metric's name."""
    if metric not in SHARES:
        return f"{value:.3g} {_unit(metric)}"
    points = f"{100 * value:.1f}" if abs(value) >= 0.001 or value == 0 else f"{100 * value:.2g}"
    return f"{points} {'point' if points == '1.0' else 'points'}"


def between(low: float, high: float, metric: str) -> str:
    """An interval of a drop with its unit: ``-0.5 to 0.3 points``; of the closeness itself where that is the metric."""
    if metric == CLOSENESS:
        low, high = _FLOAT_DB - high, _FLOAT_DB - low
    if metric not in SHARES:
        return f"{low:.3g} to {high:.3g} {_unit(metric)}"
    return f"{100 * low:.1f} to {100 * high:.1f} points"


def lost(drop: float, metric: str) -> str:
    """A drop in words: ``loses 1.2 points``, ``gains 0.1 points``, ``loses nothing``."""
    if metric == CLOSENESS:
        return f"has {_FLOAT_DB - drop:.3g} dB"
    text = amount(abs(drop), metric)
    if not any(digit in "123456789" for digit in text.split("e")[0]):
        return "loses nothing"
    return f"{'loses' if drop > 0 else 'gains'} {text}"


def lost_at_most(drop: float, metric: str) -> str:
    """A bound on a drop in words: ``loses at most 1.2 points``, ``has at least 20 dB``."""
    if metric == CLOSENESS:
        return f"has at least {_FLOAT_DB - drop:.3g} dB"
    return f"loses at most {amount(max(drop, 0.0), metric)}"


def asked(drop: float, metric: str) -> str:
    """What a model may lose: ``allowed is 1.0 point``, ``20 dB are asked for``."""
    if metric == CLOSENESS:
        return f"{_FLOAT_DB - drop:.3g} dB are asked for"
    return f"allowed is {amount(drop, metric)}"


def _unit(metric: str) -> str:
    return _UNITS.get(metric, label(metric))


def label(metric: str) -> str:
    """The metric's name as a heading: without the module of ``package.module:function``."""
    return metric.rpartition(":")[2]


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def counted(count: int, noun: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
