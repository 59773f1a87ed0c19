"""The Optuna study in a run folder: ask, tell, and read every trial back as a record.

The one place that uses private parts of Optuna: system attributes of a study, which optuna-dashboard reads, need its
storage and its numbers.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

from autoselect.domain.objectives import Direction, Objective
from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import Repairs
from autoselect.domain.search_space import ALTERNATIVE, BoundSpace, Value
from autoselect.errors import RecipeError, RunFolderError
from autoselect.isolation.interrupts import held_back
from autoselect.runs.files import storage_errors
from autoselect.runs.folder import RunFolder, read_json
from autoselect.runs.records import BY_HAND, TrialRecord
from autoselect.study.recording import dashboard
from autoselect.study.recording.samplers import ProposerSampler, distributions_of, setting_of, suggested
from autoselect.study.recording.trials import attributes_of, opening_attributes, record_of
from autoselect.study.setup.baselines import Baseline


class Journal(JournalFileBackend):
    """Optuna's journal file with entries that wait for each other.

    Optuna writes each parameter by itself: takes a lock, appends a line, waits for the disk. With hundreds of nodes
    that would take longer than many an inference.
    """

    def __init__(self, path: str) -> None:
        """Open the file, or start it.

        Its lock is a file, not Optuna's default of a link: a run folder holds no links.
        """
        super().__init__(path, JournalFileOpenLock(path))
        self._waiting: list[dict[str, Any]] | None = None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Append what is written inside at its end, at once; until then the storage does not read it back."""
        self._waiting = []
        try:
            yield
        finally:
            waiting, self._waiting = self._waiting, None
            if waiting:
                self.append_logs(waiting)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, or keep them where they wait."""
        if self._waiting is None:
            super().append_logs(logs)
        else:
            self._waiting += logs


STUDY_NAME = "autoselect"

_NO_SAMPLER = optuna.samplers.RandomSampler(0)
"""Sampler of trials whose recipe is known: nothing is drawn."""

MOST_PARAMETERS = 256
"""With more choices than these the study keeps a candidate's recipe and no parameters.

Optuna writes, keeps and reads each parameter of each trial by itself: with a thousand of them a trial has 250 kB, and
to read it takes longer than to score many a model.
"""

_DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    RecursionError,
    RecipeError,
    optuna.exceptions.OptunaError,
)
"""What Optuna and the decoder of trials raise if a journal is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A trial under way: where its recipe comes from, a baseline or a sampler, and the recipe."""

    trial: optuna.Trial
    origin: str
    recipe: Recipe

    @property
    def number(self) -> int:
        """Number of the trial."""
        return int(self.trial.number)


class SearchStudy:
    """One study, the only record of what was tried; every trial that is asked is told.

    Attributes:
        costs: Columns of the objectives but the first, which is the metric.
    """

    def __init__(
        self,
        path: Path,
        objectives: Sequence[Objective],
        sampler: optuna.samplers.BaseSampler | None = None,
        repair_sets: Sequence[Repairs] = (),
    ) -> None:
        """Open the journal file, or start it.

        Args:
            path: Of the journal file.
            objectives: The metric first.
            sampler: Chooses candidates; by default chance.
            repair_sets: What a candidate may have; with one or none those of the template.

        Raises:
            RunFolderError: If the journal holds a study of other objectives, or is damaged.
        """
        self._path = path
        self.sample_by("random", sampler or optuna.samplers.RandomSampler(0), repair_sets)
        self.costs = tuple(o.name for o in objectives[1:])
        directions = [o.direction for o in objectives]
        with self._using():
            _repair(path)
            self._journal = Journal(str(path))
            self._study = self._load(directions)
            names = [o.name for o in objectives]
            if self._study.metric_names != names:
                self._study.set_metric_names(names)

    def sample_by(self, name: str, sampler: optuna.samplers.BaseSampler, repair_sets: Sequence[Repairs]) -> None:
        """From now on let this sampler choose, also among these sets of repairs; trials keep its name."""
        self.sampler_name, self._sampler, self._repair_sets = name, sampler, tuple(repair_sets)

    def _load(self, directions: list[Direction]) -> optuna.Study:
        with _damage_told(self._path):
            storage = JournalStorage(self._journal)
            study = _study_in(storage) or optuna.create_study(
                storage=storage, study_name=STUDY_NAME, directions=directions
            )
        if [d.name.lower() for d in study.directions] != directions:
            raise RunFolderError(f"{self._path} holds a study of other objectives. Choose another --output.")
        return study

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """Use the storage inside: a full disk is told, and an interrupt waits until the files agree again."""
        with held_back(), storage_errors(self._path), _quiet():
            yield

    def ask(self, space: BoundSpace, template: Recipe) -> Asked | None:
        """Let the sampler propose a setting of the space; None if it has nothing left to try.

        Args:
            space: Whose dimensions are the parameters of the trial.
            template: What the search's recipes have in common.
        """
        if isinstance(self._sampler, ProposerSampler):
            with _quiet():  # It may think for long: an interrupt need not wait.
                recipe = self._sampler.propose(self._study, template)
            return None if recipe is None else self._open(self.sampler_name, recipe, self._parameters(recipe, space))
        with self._using():
            self._study.sampler = self._sampler
            trial = self._study.ask()
            with self._journal.together():
                recipe = suggested(_suggest(trial, space, self._repair_sets), space, template, self._repair_sets)
                _keep(trial, opening_attributes(self.sampler_name, recipe))
        return Asked(trial=trial, origin=self.sampler_name, recipe=recipe)

    def rules_out(self, recipe: Recipe) -> bool:
        """Whether the sampler knows that a candidate cannot be run, by others that could not."""
        with _quiet():
            return isinstance(self._sampler, ProposerSampler) and self._sampler.rules_out(self._study, recipe)

    def open_baseline(self, space: BoundSpace, baseline: Baseline) -> Asked:
        """Start a trial of a given recipe; its parameters are set where the space can express it."""
        parameters = self._parameters(baseline.recipe, space) if baseline.is_like_others else {}
        return self._open(f"baseline:{baseline.name}", baseline.recipe, parameters)

    def open_by_hand(self, recipe: Recipe) -> Asked:
        """Start a trial of a recipe that a user made; it need be none that the space can express."""
        return self._open(BY_HAND, recipe, {})

    def _parameters(self, recipe: Recipe, space: BoundSpace) -> dict[str, tuple[Value, BaseDistribution]]:
        """What Optuna's tools, and its own samplers, are shown of a recipe; nothing if that is too much to keep."""
        distributions = distributions_of(space, self._repair_sets)
        if isinstance(self._sampler, ProposerSampler) and len(distributions) > MOST_PARAMETERS:
            return {}
        setting = setting_of(recipe, space, self._repair_sets)
        return {name: (value, distributions[name]) for name, value in setting.items()}

    def _open(self, origin: str, recipe: Recipe, parameters: Mapping[str, tuple[Value, BaseDistribution]]) -> Asked:
        """Start a trial of a recipe that is known; the study's sampler is not asked."""
        with self._using():
            self._study.sampler = _NO_SAMPLER
            trial = self._study.ask()
            with self._journal.together():
                _keep(trial, opening_attributes(origin, recipe))
                for name, (value, distribution) in parameters.items():
                    internal = distribution.to_internal_repr(value)
                    self._study._storage.set_trial_param(trial._trial_id, name, internal, distribution)
        return Asked(trial=trial, origin=origin, recipe=recipe)

    def tell(self, asked: Asked, **outcome: Any) -> TrialRecord:
        """Finish a trial with what came of it, as :class:`TrialRecord` has it: scores, part of one, or an error."""
        record = TrialRecord(number=asked.number, origin=asked.origin, recipe=asked.recipe, **outcome)
        scores, state, values = record.scores, None, None
        if scores is not None:
            values = [scores.metric, *(scores.costs[column] for column in self.costs)]
        else:
            state = TrialState.FAIL if record.partial is None else TrialState.PRUNED
        with self._using():
            with self._journal.together():
                # Before it is told, so that a told trial has its note.
                self._set_attributes(dashboard.note_attributes(asked.trial._trial_id, dashboard.note_of(record)))
                for name, violation in record.violations.items():
                    asked.trial.set_constraint(name, violation)
                _keep(asked.trial, attributes_of(record))
            self._study.tell(asked.trial, values, state=state)
        return record

    def _set_attributes(self, attributes: Mapping[str, Any]) -> None:
        storage, study_id = self._study._storage, self._study._study_id
        with self._using():
            for key, value in attributes.items():
                storage.set_study_system_attr(study_id, key, value)

    def publish(self, front: Path, artifacts: Path, note: str) -> None:
        """Show the result in optuna-dashboard: a note on the study, and its files at each trial of the front.

        Args:
            front: Folder of the members' models.
            artifacts: Folder for files under the names that the dashboard asks for; what else is in it is removed.
            note: On the study, in Markdown.

        Raises:
            StorageError: If a file cannot be written.
        """
        attributes: dict[str, int | str] = {}
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            record = record_of(trial)
            if record and record.recipe is not None and (front / f"{record.id}.tflite").exists():
                attributes |= dashboard.attach(trial._trial_id, record.id, record.recipe, front, artifacts)
        before = self._study._storage.get_study_system_attrs(self._study._study_id)
        former = dashboard.taken_back(before, attributes, artifacts)
        self._set_attributes({**former, **attributes, **dashboard.study_note(before, note)})

    def drop(self, asked: Asked) -> None:
        """Fail a trial that the end of the search cut off; it leaves no record, so a resumed search makes up for it."""
        with self._using():
            self._study.tell(asked.trial, state=TrialState.FAIL)

    def close_abandoned(self) -> int:
        """Fail what an earlier process asked and never told; returns how many there were."""
        abandoned = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING, TrialState.WAITING))
        with self._using():
            for frozen in abandoned:
                trial = self._study.ask() if frozen.state == TrialState.WAITING else None
                number = frozen.number if trial is None else trial
                self._study.tell(number, state=TrialState.FAIL)
        return len(abandoned)

    def records(self) -> list[TrialRecord]:
        """All trials that were finished, in order; those abandoned by a killed process are left out.

        Raises:
            RunFolderError: If the journal holds trials that no search wrote.
        """
        with _damage_told(self._path):
            return _records(self._study)


def read_records(path: Path) -> list[TrialRecord]:
    """The records of a journal file, as :meth:`SearchStudy.records` gives them; nothing is written.

    Returns:
        None of them where the file is missing or empty. A last line that a killed process did not finish is left out.

    Raises:
        RunFolderError: If the file is damaged, or this user may not read it.
    """
    if not path.exists():
        return []
    try:
        with _quiet(), _damage_told(path):
            study = _study_in(JournalStorage(Journal(str(path))))
            return [] if study is None else _records(study)
    except PermissionError as exc:
        raise RunFolderError(f"{path} cannot be read: {exc.strerror}.") from exc


def is_behind(folder: RunFolder) -> bool:
    """Whether ``study.journal`` holds fewer trials than ``summary.json`` counts: then a part of the journal is lost."""
    try:
        counts = read_json(folder.summary, missing="").get("counts")
    except RunFolderError:
        return False
    count = counts.get("trials") if isinstance(counts, dict) else None
    return isinstance(count, int) and len(read_records(folder.study)) < count


def refuse_behind(folder: RunFolder) -> None:
    """Refuse a run that has lost a part of its journal.

    Raises:
        RunFolderError: If it has.
    """
    if is_behind(folder):
        raise RunFolderError(
            f"{folder.study} holds fewer trials than the run had: it is cut off. Copy the run folder once more."
        )


def _study_in(storage: JournalStorage) -> optuna.Study | None:
    names = [study.study_name for study in storage.get_all_studies()]
    return optuna.load_study(study_name=STUDY_NAME, storage=storage) if STUDY_NAME in names else None


@contextlib.contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as exc:
        raise RunFolderError(f"{path} is damaged: {exc}.") from exc


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Optuna logs each trial and warns of experimental parts; autoselect reports itself."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


def _records(study: optuna.Study) -> list[TrialRecord]:
    records = (record_of(trial) for trial in study.get_trials(deepcopy=False) if trial.state.is_finished())
    return [record for record in records if record is not None]


def _suggest(trial: optuna.Trial, space: BoundSpace, sets: Sequence[Repairs]) -> dict[str, Any]:
    """What a sampler of Optuna's chooses; of several alternatives it sets the parameters of one."""
    dimensions = space.dimensions
    if space.alternatives:
        names = [name for name, _ in space.alternatives]
        dimensions = space.of_alternative(str(trial.suggest_categorical(ALTERNATIVE, names)))
    distributions = distributions_of(space, sets, dimensions)
    return {name: trial._suggest(name, distribution) for name, distribution in distributions.items()}


def _keep(trial: optuna.Trial, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        trial.set_user_attr(name, value)


def _repair(path: Path) -> None:
    """Cut off a last line that a killed process did not finish, and remove the lock that it left."""
    for lock in path.parent.glob(f"{path.name}.lock*"):
        lock.unlink(missing_ok=True)
    if not path.exists():
        return
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end != len(content):
        with path.open("r+b") as file:
            file.truncate(end)
