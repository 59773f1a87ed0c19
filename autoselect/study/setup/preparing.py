"""Opens the processes that a search works in, prepares its case there, and binds the search space to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autoselect.cases import channel_jobs
from autoselect.cases.declared import declared
from autoselect.cases.events import Listener
from autoselect.cases.prepare import Case, prepare_case
from autoselect.cases.settled import Settled
from autoselect.domain.findings import OWN_SCALE
from autoselect.domain.search_space import BoundSpace
from autoselect.domain.states import SIXTEEN
from autoselect.domain.units import moving_with
from autoselect.errors import TrialError, UsageError
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import WorkerPool, is_shared, open_pool
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.runs.folder import RunFolder
from autoselect.scoring.target_file import read_target
from autoselect.study.request import Request
from autoselect.study.setup.by_user import covered
from autoselect.study.setup.problem import makes_int16, units_of
from autoselect.study.setup.space_file import SearchSpaceFile, bind, idle_choices
from autoselect.study.setup.target_rules import pins_of


def search_pool(request: Request, folder: RunFolder) -> contextlib.AbstractContextManager[Workers]:
    """Where candidates are built and scored."""
    return open_pool(request.settings.processes, log=folder.log, warm_up=warm_up_of(request.settings))


def warm_up_of(settings: Settled) -> Callable[[], object] | None:
    """What the processes that build and score do first."""
    return converter.import_tensorflow if _all_need_tensorflow(settings) else None


def prepared(
    request: Request, folder: RunFolder, pool: Workers, listener: Listener
) -> tuple[Case, Request, tuple[str, ...]]:
    """The case, the request with the states that its units can have, and what the user should know of these.

    Raises:
        AutoselectError: If an ingredient does not fit, or native code dies on the model.
    """
    settings = request.settings
    with _here(request, folder, pool) as near, _quantizer(request, folder, near) as quantizer:
        case = prepare_case(
            request.ingredients,
            settings,
            root=folder.work,
            pool=near,
            quantizer=quantizer,
            cache_root=cache_directory() if settings.cache else None,
            listener=listener,
        )
        possible, remarks = makes_int16(case, settings, quantizer)  # The float model runs meanwhile.
        case.references.wait("search", near, listener)
        remarks = (*remarks, *_narrow_channels(case.files.root, near))
    return case, request.knowing(makes_int16=possible), remarks


def _all_need_tensorflow(settings: Settled) -> bool:
    """Repairs calibrate anew; candidates without them are put together from what is there."""
    return settings.processes == 1 or settings.tries_repairs or bool(settings.repairs.common)


def _quantizer(request: Request, folder: RunFolder, pool: Workers) -> contextlib.AbstractContextManager[Workers]:
    """Where TensorFlow converts, calibrates and quantizes: its own process if the others can do without it."""
    if _all_need_tensorflow(request.settings) or is_shared(pool):
        return contextlib.nullcontext(pool)
    return WorkerPool(1, log=folder.log, warm_up=converter.import_tensorflow)


def _here(request: Request, folder: RunFolder, pool: Workers) -> contextlib.AbstractContextManager[Workers]:
    """Where the case is prepared: its model and samples are files of this machine."""
    if pool.are_here:
        return contextlib.nullcontext(pool)
    return WorkerPool(request.settings.processes, log=folder.log, warm_up=warm_up_of(request.settings))


def _narrow_channels(root: Path, pool: Workers) -> tuple[str, ...]:
    """A warning for each group of channels that is but a few integer steps wide, or why that is not known."""
    try:
        groups = pool.call(channel_jobs.narrow_groups, root)
    except TrialError as exc:
        return (f"The ranges of the outputs' channels could not be compared. {exc}",)
    return tuple(map(_warning, groups))


def _warning(group: channel_jobs.NarrowGroup) -> str:
    return (
        f"In 8 bits, output {group.output!r} has {group.steps:.1f} integer steps for its {group.channels}: one scale "
        f"serves all channels, and the others are far larger. {OWN_SCALE}"
    )


def bind_case(space_file: SearchSpaceFile, case: Case, settings: Settled) -> tuple[BoundSpace, tuple[str, ...]]:
    """Bind the space with the pins of user and target.

    If these pins together decide all nodes, the space has no dimensions: only whole models and repairs are left to try.

    Returns:
        The space, and messages that tell the user what the target decides.

    Raises:
        UsageError: If the user's pins leave nothing to choose, no candidate can satisfy the target, or all nodes are
            pinned out of integers and the target runs no hybrid op.
    """
    keep_float, keep_int = (
        covered(patterns, case.layers, case.graph, declared()[name].names)
        for name, patterns in (("keep_float", settings.keep_float), ("keep_int", settings.keep_int))
    )
    decided = pins_of(case, settings, keep_float=keep_float, keep_int=keep_int)
    parts = units_of(case)
    # What moves together has 16 bits together, or not at all.
    barred = moving_with(decided.not_int16, parts)
    not_outside = moving_with(decided.keep_int, parts) - moving_with(keep_float | keep_int | decided.keep_float, parts)
    not_int8 = moving_with(decided.keep_float, parts) - moving_with(keep_float | keep_int | decided.keep_int, parts)
    never_wide = barred if SIXTEEN in settings.states else not_outside | not_int8
    not_outside, not_int8 = not_outside - never_wide, not_int8 - never_wide
    outside, inside = keep_float | decided.keep_float - not_int8, keep_int | decided.keep_int - not_outside
    if decided.keep_int | decided.keep_float and {node.name for node in case.layers.nodes} <= outside | inside:
        if not inside and not read_target(settings.target).runs_hybrid:
            raise UsageError(f"Target and pins leave nothing to quantize. {' '.join(decided.messages)}")
        space = BoundSpace(dimensions=(), keep_float=outside, keep_int=inside)
    else:
        space = bind(space_file, case.layers, keep_float=outside, keep_int=inside, units=parts)
    bound = replace(
        space,
        further=settings.states[1:],
        not_int8=not_int8,
        not_int16=barred,
        not_outside=not_outside,
    )
    return bound, (*decided.messages, *idle_choices(space_file, case.layers))
