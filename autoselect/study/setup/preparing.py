"""Opens the processes that a search works in, prepares its case there and settles which states units may have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from autoselect.cases.events import Listener
from autoselect.cases.prepare import Case, prepare_case
from autoselect.cases.settings import SearchSettings
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import WorkerPool, is_shared, open_pool
from autoselect.quantize.preparing import converter
from autoselect.runs.cache import cache_directory
from autoselect.runs.folder import RunFolder
from autoselect.study.request import Request
from autoselect.study.setup.narrow_channels import narrow_channels
from autoselect.study.setup.problem import settled_int16


def search_pool(request: Request, folder: RunFolder) -> contextlib.AbstractContextManager[Workers]:
    """Where candidates are built and scored."""
    return open_pool(request.settings.processes, log=folder.log, warm_up=warm_up_of(request.settings))


def warm_up_of(settings: SearchSettings) -> Callable[[], object] | None:
    """What the processes that build and score do first."""
    return converter.import_tensorflow if _all_need_tensorflow(settings) else None


def prepared(
    request: Request, folder: RunFolder, pool: Workers, listener: Listener
) -> tuple[Case, SearchSettings, tuple[str, ...]]:
    """The case, the settings with the states that its units can have, and what the user should know of these.

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
        settings, remarks = settled_int16(case, settings, quantizer)  # The float model runs meanwhile.
        case.references.wait("search", near, listener)
        remarks = (*remarks, *narrow_channels(case.files.root, near))
    return case, settings, remarks


def _all_need_tensorflow(settings: SearchSettings) -> bool:
    """Repairs calibrate anew; candidates without them are put together from what is there."""
    return settings.processes == 1 or settings.repairs is not False


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
