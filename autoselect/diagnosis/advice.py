"""From findings to advice: the table of rules and their order; it advises, and never raises or blocks.

A rule looks at the findings and gives one piece of advice or none. Figures that are missing or NaN trigger nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from autoselect.diagnosis import rules_data, rules_error, rules_graph
from autoselect.domain.findings import Advice, Findings

Rule = Callable[[Findings], Advice | None]

RULES: tuple[Rule, ...] = (
    rules_error.suspicious_error,
    rules_error.unhealthy_error,
    rules_error.wide_range,
    rules_error.unlike_channels,
    rules_data.input_not_normalised,
    rules_graph.unfolded_batch_normalization,
    rules_graph.missing_normalization,
    rules_graph.per_channel_disabled,
    rules_data.small_calibration,
    rules_data.calibration_unlike_data,
    rules_graph.unsupported_by_target,
    rules_error.quantization_aware_training,
)
"""In the order in which advice is given; a rule's name is its function's."""


def advise(findings: Findings) -> tuple[Advice, ...]:
    """All advice that the findings give reason for, in the order of ``RULES``."""
    return tuple(advice for rule in RULES if (advice := rule(findings)) is not None)
