"""Scores and losses in words, for every sentence that has one."""

from __future__ import annotations

SHARES = frozenset({"accuracy", "top5_accuracy", "balanced_accuracy", "agreement"})
"""Metrics that are said in per cent, and whose differences are points."""


def said(score: float, metric: str) -> str:
    """A score with its unit: ``92.8 % accuracy``, ``31.4 psnr``."""
    return f"{100 * score:.1f} % {metric}" if metric in SHARES else f"{score:.4g} {label(metric)}"


def amount(value: float, metric: str) -> str:
    """A difference of scores with its unit: ``1.2 points`` of a share, else the number and the metric's name."""
    if metric not in SHARES:
        return f"{value:.3g} {label(metric)}"
    points = f"{100 * value:.1f}" if abs(value) >= 0.001 or value == 0 else f"{100 * value:.2g}"
    return f"{points} {'point' if points == '1.0' else 'points'}"


def between(low: float, high: float, metric: str) -> str:
    """An interval of a difference with its unit: ``-0.5 to 0.3 points``."""
    if metric not in SHARES:
        return f"{low:.3g} to {high:.3g} {label(metric)}"
    return f"{100 * low:.1f} to {100 * high:.1f} points"


def lost(drop: float, metric: str) -> str:
    """A drop in words: ``loses 1.2 points``, ``gains 0.1 points``, ``loses nothing``."""
    text = amount(abs(drop), metric)
    if not any(digit in "123456789" for digit in text.split("e")[0]):
        return "loses nothing"
    return f"{'loses' if drop > 0 else 'gains'} {text}"


def label(metric: str) -> str:
    """The metric's name as a heading: without the module of ``package.module:function``."""
    return metric.rpartition(":")[2]


def counted(count: int, noun: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
