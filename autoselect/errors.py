"""The one error tree of autoselect, with its exit codes; knows nothing of any other room.

::

    AutoselectError                 1   anything that autoselect itself reports
    ├── UsageError (ValueError)     2   an argument, a name or a setting that cannot be used
    ├── ModelError                  3   the source model cannot be read, or is not a float model
    ├── DataError (ValueError)      4   calibration or scoring data do not fit, are empty, or overlap
    ├── MetricError (ValueError)    5   a metric or evaluator is unknown, raised, or gave no number
    ├── RecipeError (ValueError)    6   a recipe is malformed or names nodes or ops that do not exist
    ├── RunFolderError              7   a run folder is taken, damaged, or made of other ingredients
    │   └── FolderInUse             7   another process works in it
    ├── StorageError (OSError)      8   a file could not be written (disk full, no permission)
    ├── PreparationError            9   native code or a device died, hung or failed before there was a result
    └── TrialError                  –   one candidate failed; the search goes on
        ├── BuildError              –   the quantizer or the dynamic-range pass refused the recipe
        ├── ScoreError              –   the candidate could not be run, or has no score
        │   └── NoScore             –   its metric or evaluator raised or gave no number
        ├── TargetRefusal           –   the target does not take the candidate
        │   └── CompilerRefusal     –   its rules do, and its compiler does not
        ├── JobFailed               –   a library, or autoselect itself, raised where nobody expects it
        └── WorkerDied              –   the process of this candidate was killed or took too long

What stands in parentheses is the built-in error that each is too, for code that catches those. ``ModelError`` and
``RunFolderError`` have none: a file may be missing, unreadable or wrong.

Two further exit codes are results, not errors: 10, a search that ended well but met no ``--max-…`` constraint, or a
model that misses a limit of ``evaluate``, and 130, a search stopped by Ctrl-C or SIGTERM (its folder can be resumed).

Every message says what was expected, what came, and what to do.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_NOTHING_FEASIBLE = 10
EXIT_INTERRUPTED = 130

ErrorKind = Literal["build", "score", "metric", "target", "compiler", "job", "worker"]
"""Why a candidate failed, as records of trials keep it: one for each error below ``TrialError``."""


class AutoselectError(Exception):
    """Base of every error that autoselect raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(AutoselectError, ValueError):
    """An argument, name or setting that cannot be used."""

    exit_code: ClassVar[int] = 2


class ModelError(AutoselectError):
    """The source model cannot be read, or is not a float model."""

    exit_code: ClassVar[int] = 3


class DataError(AutoselectError, ValueError):
    """Calibration or scoring data do not fit the model, are empty, or overlap."""

    exit_code: ClassVar[int] = 4


class MetricError(AutoselectError, ValueError):
    """A metric or evaluator is unknown, raised, or did not give a number."""

    exit_code: ClassVar[int] = 5


class RecipeError(AutoselectError, ValueError):
    """A recipe is malformed, or names nodes or ops that the model does not have."""

    exit_code: ClassVar[int] = 6


class RunFolderError(AutoselectError):
    """A run folder is taken, damaged, or was made of other ingredients."""

    exit_code: ClassVar[int] = 7


class FolderInUse(RunFolderError):
    """Another process is working in the run folder."""


class StorageError(AutoselectError, OSError):
    """A file could not be written."""

    exit_code: ClassVar[int] = 8


class PreparationError(AutoselectError):
    """Native code or a device died, hung or failed before there was a result."""

    exit_code: ClassVar[int] = 9


class TrialError(AutoselectError):
    """One candidate failed; the search records the kind and the reason and goes on.

    Attributes:
        kind: What decisions go by; the message is for people.
    """

    kind: ClassVar[ErrorKind]


class BuildError(TrialError):
    """The quantizer or the dynamic-range pass could not build the candidate."""

    kind = "build"


class ScoreError(TrialError):
    """The candidate could not be run, or has no score.

    Attributes:
        op: Place, in the main graph of the candidate's file, of the op whose kernel failed; None where none is known.
    """

    kind: ClassVar[ErrorKind] = "score"

    def __init__(self, message: str, *, op: int | None = None) -> None:
        """Keep both."""
        super().__init__(message)
        self.op = op


class NoScore(ScoreError):
    """The candidate ran, and its metric or evaluator gave no number for it."""

    kind = "metric"


def ending_of(kind: ErrorKind | None) -> type[AutoselectError]:
    """The error of a command that needs a candidate which failed in this way."""
    return MetricError if kind == "metric" else PreparationError


class TargetRefusal(TrialError):
    """A hard rule of the target refuses the candidate."""

    kind: ClassVar[ErrorKind] = "target"


class CompilerRefusal(TargetRefusal):
    """The target's compiler refuses what its rules let pass, or leaves to the host what that cannot run."""

    kind = "compiler"


class JobFailed(TrialError):
    """A job raised an error that is none of autoselect's own: a library's, or a fault of autoselect."""

    kind = "job"


class WorkerDied(TrialError):
    """The process of this candidate was killed, crashed or took too long."""

    kind = "worker"


@contextlib.contextmanager
def preparing(what: str) -> Iterator[None]:
    """End the command if the block raises a TrialError, because what follows needs the result of the block.

    Args:
        what: The first sentence of the message, which says what failed.

    Raises:
        AutoselectError: In the place of a :class:`TrialError`, as :func:`ending_of` its kind says.
    """
    try:
        yield
    except TrialError as exc:
        raise ending_of(exc.kind)(f"{what} {exc}") from exc


def first_line(exc: BaseException) -> str:
    """What a foreign error says, without the pages that follow."""
    return next(iter(str(exc).strip().splitlines()), type(exc).__name__)


def sentence(text: str) -> str:
    """A foreign text with a full stop at its end, so that another sentence may follow."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
