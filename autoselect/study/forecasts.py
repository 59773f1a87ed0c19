"""Exact forecasts of what candidates cost, before any unit was tried."""

from __future__ import annotations

from autoselect.cases import prepare_jobs
from autoselect.cases.open_case import target_as_seen
from autoselect.cases.prepare import Case
from autoselect.cases.settled import Settled
from autoselect.domain.repair_sets import corrected_at_once
from autoselect.domain.search_space import BoundSpace, Toggle
from autoselect.domain.states import SIXTEEN
from autoselect.errors import TrialError
from autoselect.isolation.door import Workers
from autoselect.scoring.target_file import read_target
from autoselect.study.proposing.problem import Forecaster, Problem
from autoselect.study.setup.problem import forecaster, neighbours_of, plain_units, units_in
from autoselect.study.yardstick import Yardstick


def plain_forecaster(case: Case, settings: Settled, space: BoundSpace, pool: Workers) -> Forecaster:
    """Forecasts of candidates with the template's repairs alone.

    Raises:
        TrialError: If the worker that plans candidates refuses the model or dies.
    """
    template, target = settings.template, target_as_seen(read_target(settings.target), case.files)
    arguments = (case.files.root, template.to_json(), SIXTEEN in settings.states)
    blueprint = pool.call(prepare_jobs.blueprint, *arguments, timeout_seconds=settings.trial_timeout)
    return forecaster({corrected_at_once(template.repairs): blueprint}, case.layers, settings, target, space)


def unprobed(case: Case, settings: Settled, yardstick: Yardstick, space: BoundSpace, pool: Workers) -> Problem | None:
    """The search as a sampler sees it before probes: units and what candidates cost, but not what units do to outputs.

    Returns:
        A problem without sensitivities; None if the quantizer refuses the model, so that no candidate can be planned.
    """
    try:
        forecast = plain_forecaster(case, settings, space, pool)
    except TrialError:
        return None
    has_units = any(isinstance(dimension, Toggle) for dimension in space.dimensions)
    units = units_in(space, case.layers, {}) if has_units else plain_units(case.graph, case.layers)
    return Problem(
        units,
        neighbours_of(case.graph, case.layers, units),
        forecast,
        space=space,
        states=settings.states,
        repair_sets=(settings.template.repairs,),
        constraints=yardstick.constraints,
        rule=yardstick.rule,
        costs=settings.cost_columns,
        order=[node.name for node in case.layers.nodes],
    )
