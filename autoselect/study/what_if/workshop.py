"""Where candidates of a run that is over are planned, built and scored: files and workers. Knows no trials."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from autoselect.cases import build_jobs, chip_jobs, evidence_jobs, prepare_jobs, score_jobs
from autoselect.cases.build_jobs import BuildReply
from autoselect.cases.feedback import fed_inputs, feed_back, with_gaps
from autoselect.cases.files import FLOAT, CaseFiles
from autoselect.cases.ingredients import LIVE, Ingredients, loaded_evaluator
from autoselect.cases.open_case import target_as_seen
from autoselect.cases.prepare import write_scoring
from autoselect.cases.prepared import Prepared, load_prepared
from autoselect.cases.scoring_samples import write_labelled, write_parts, write_split
from autoselect.cases.settled import Settled, kept_search, settle
from autoselect.cases.versions import versions
from autoselect.data.kinds import Samples
from autoselect.data.representative import representative_samples
from autoselect.data.samples import SampleStore
from autoselect.domain.objectives import Direction, drop_from
from autoselect.domain.quantities import DEFAULT_OBJECTIVES
from autoselect.domain.recipe import Recipe
from autoselect.domain.repair_sets import corrected_at_once
from autoselect.domain.result import Result
from autoselect.domain.states import SIXTEEN
from autoselect.domain.targets import Target
from autoselect.errors import BuildError, RunFolderError, UsageError, preparing
from autoselect.isolation.door import Workers
from autoselect.isolation.pool import open_pool
from autoselect.quantize.building.blueprint import Blueprint, Plan
from autoselect.quantize.building.left_out import left_out
from autoselect.runs.cache import cache_directory
from autoselect.runs.folder import RunFolder
from autoselect.scoring.evaluate import Evaluator
from autoselect.scoring.metric_base import Metric
from autoselect.scoring.metrics import make_metric
from autoselect.scoring.target_file import lasting_target, read_target, target_hash
from autoselect.sources.wishes import Wishes
from autoselect.study.recording.kept_case import open_kept
from autoselect.study.recording.manifest import refuse_other_contents
from autoselect.tflite import reader

Live = Mapping[str, Any]
"""Objects in place of those that only the process of the search had, by the name of the setting."""

NO_OBJECTS: Live = {}
_OWN_SAMPLES = "score on samples of your own: score(samples)"

_SHARED = ("prepared", "evidence", "samples", "float.tflite")
"""What cases of one run have in common, whatever they are built for and scored on."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scored(Result):
    """A candidate that was asked about, on samples.

    Attributes:
        metric: Its name.
        score: On all samples.
        low: Lower end of its 95 % interval; NaN if the metric has none.
        high: Upper end.
        samples: How many there were; 0 with an evaluator.
        drop: Loss against the float model on the same samples, in the metric's units.
        drop_low: Lower end of its 95 % interval; None if nothing can be paired.
        drop_high: Upper end.
        sqnr_db: How close the outputs are to the float model's, in dB; NaN if that is unknown.
    """

    metric: str
    score: float
    low: float
    high: float
    samples: int
    drop: float
    drop_low: float | None
    drop_high: float | None
    sqnr_db: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A target that candidates are planned for, and the case that they are built in.

    Attributes:
        spec: What the target is called, or the path of its file.
        target: The profile, with what compiling showed of its chips on this model.
        files: Files of the case.
        float_penalty: Penalty of the float model on this target, in the target's unit.
        blueprints: What candidates are put together from, by the recipe fields that they share: granularity, types of
            inputs and outputs, repairs.
    """

    spec: str
    target: Target
    files: CaseFiles
    float_penalty: float
    blueprints: dict[Recipe, Blueprint]


class Workshop:
    """Plans, builds and scores; what native code does runs in a process of its own."""

    def __init__(self, folder: RunFolder) -> None:
        """Open what the run keeps, in a folder that lasts as long as this.

        Raises:
            RunFolderError: If the folder holds no run.
            UsageError: If the run keeps no calibrated model, or another version made it.
        """
        self._folder = folder
        self.manifest = folder.read_manifest("sources", "settings", "metric", "versions")
        self._refuse_other_builder()
        self._root = Path(tempfile.mkdtemp(prefix="autoselect-what-if-"))
        weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        self._said, facts = kept_search(self.manifest)
        self.settings: Settled = settle(self._said, facts)
        self.files = open_kept(folder, self._root / "run")
        self._places: dict[str, Place] = {}
        self._lives: dict[str, Live] = {}  # what scoring cases were made with, by the names of their folders

    def _refuse_other_builder(self) -> None:
        before, now = self.manifest["versions"].get("builder"), versions()["builder"]
        if before != now:
            raise UsageError(
                f"{self._folder.root} was made by builder {before} of autoselect, this is builder {now}, whose models "
                "are of other sizes. Use the version that made the run, or start a new run."
            )

    def _refuse_other(self, hashes: Mapping[str, str], remedy: str) -> None:
        """Refuse samples or a target that are not those of the run: what they give is none of the run's.

        Raises:
            RunFolderError: With the name of what has changed.
        """
        run_hashes = self.manifest.get("hashes") or {}
        before = {name: run_hashes[name] for name in hashes if name in run_hashes}
        refuse_other_contents(self._folder, before, hashes, remedy)

    @cached_property
    def prepared(self) -> Prepared:
        """Names, layer table and graph of the model."""
        return load_prepared(self.files.prepared)

    def _working(self) -> AbstractContextManager[Workers]:
        return open_pool(1, log=self._root / "worker.log")

    def place(self, target: str | Path | None = None) -> Place:
        """The target of the run, or another one; it is looked at once.

        Raises:
            UsageError: If there is no such target, or its compiler is not installed.
            RunFolderError: If it is that of the run, and its profile has changed since.
            PreparationError: If its compiler fails on the whole models.
        """
        name = lasting_target(target) if target is not None else self.settings.target
        if name not in self._places:
            self._places[name] = self._opened(name)
        return self._places[name]

    def _opened(self, name: str) -> Place:
        target, is_own = read_target(name), name == self.settings.target
        if is_own:
            self._refuse_other({"target": target_hash(name)}, "start a new run")
        files = self.files if is_own else self._case_beside(f"target-{len(self._places)}")
        settings = replace(self.settings, target=name, compiling=False, objectives=DEFAULT_OBJECTIVES)
        write_scoring(files, None, None, settings, cache_directory() if settings.cache else None)
        float_model = self.manifest.get("float_model") or {}
        blueprints: dict[Recipe, Blueprint] = {}
        with self._working() as pool, preparing("Looking at the target failed."):
            if not is_own and (target.parts or target.asks_compiler):
                pool.call(chip_jobs.look, files.root, settings.template.to_json(), settings.states)
            if is_own and "penalty" in float_model:
                penalty = float(float_model["penalty"])
            else:
                describe = partial(build_jobs.describe_float, is_prepared=True)
                penalty = float(pool.call(describe, files.root).fragmentation["penalty"])
            for repairs in dict.fromkeys(map(corrected_at_once, self.settings.repairs.alternatives)):
                key = _common(replace(self.settings.template, repairs=repairs))
                blueprints[key] = _read_blueprint(pool, files, key, int16=SIXTEEN in self.settings.states)
        seen = target_as_seen(target, files)
        return Place(spec=name, target=seen, files=files, float_penalty=penalty, blueprints=blueprints)

    def _case_beside(self, name: str) -> CaseFiles:
        """Another case of the same model; what is measured for one is there for the other."""
        files = CaseFiles(root=self._root / name)
        files.root.mkdir()
        for shared in _SHARED:
            (files.root / shared).symlink_to(self.files.root / shared)
        return files

    def blueprint(self, recipe: Recipe, place: Place) -> Blueprint:
        """What candidates like this one are put together from; it is read once.

        Raises:
            UsageError: If these repairs or 16-bit nodes cannot be made.
        """
        key = _common(recipe)
        blueprint = place.blueprints.get(key)
        is_wide = bool(recipe.int16_nodes)
        if blueprint is None or (is_wide and not (blueprint.int16_nodes or blueprint.no_int16)):
            if recipe.repairs:
                self.restore_samples()
            with self._working() as pool, _asked_too_much():
                wide = is_wide or SIXTEEN in self.settings.states
                blueprint = place.blueprints[key] = _read_blueprint(pool, place.files, key, int16=wide)
        return blueprint

    def plan(self, recipe: Recipe, place: Place) -> Plan:
        """The parts of a resolved recipe's candidate: as :class:`autoselect.quantize.building.build.Builder` plans."""
        nodes = self.prepared.layers.nodes
        chosen = left_out(recipe, nodes)
        denied = [i for i, node in enumerate(nodes) if node.index in chosen.nodes]
        in_float = [i for i in denied if nodes[i].name in chosen.in_float]
        in_int16 = [i for i, node in enumerate(nodes) if node.name in recipe.int16_nodes]
        return self.blueprint(recipe, place).plan(denied, in_float=in_float, in_int16=in_int16)

    def build(self, recipe: Recipe, place: Place) -> tuple[bytes, BuildReply]:
        """Build a candidate.

        Raises:
            UsageError: If its repairs need calibration samples that are not there.
            PreparationError: If it cannot be built, or the target refuses it.
        """
        if recipe.repairs:
            self.restore_samples()
        with self._working() as pool, preparing("The candidate could not be built."):
            reply = pool.call(build_jobs.build, place.files.root, recipe.to_json())
        return place.files.candidate(reply.sha256).read_bytes(), reply

    def restore_samples(self, live: Live = NO_OBJECTS, *, must: bool = False) -> None:
        """Read the calibration samples again: some repairs are measured for each candidate.

        Args:
            live: May have them.
            must: Whether it is an error if the source is not there any more, or has other samples by now. Else what the
                run measured may do.

        Raises:
            UsageError: If they must be there, and only the process of the search had them.
            RunFolderError: If they must be there, and are others than those of the run.
        """
        folder = self.files.samples("calibration")
        if folder.exists():
            return
        source = live.get("calibration", self.manifest["sources"].get("calibration"))
        if source in (None, LIVE):
            if must:
                raise _missing("calibration")
            return
        ends = reader.read_interface(self.files.float_model.read_bytes())
        fed = fed_inputs(self.settings.feedback, ends)
        try:
            samples = representative_samples(source, ends.inputs, optional=fed, signature=self._said.signature)
            SampleStore.write(folder, ((with_gaps(sample, ends.inputs), None) for sample in samples), ends.inputs)
            if fed:
                with self._working() as pool, preparing("Running the float model with its state fed back failed."):
                    pool.call(feed_back, self.files.root, fed)
            self._refuse_other({"calibration": SampleStore.open(folder).signature}, _OWN_SAMPLES)
        except BaseException as exc:
            shutil.rmtree(folder, ignore_errors=True)
            if must or not isinstance(exc, RunFolderError):
                raise

    def score(self, recipe: Recipe, place: Place, samples: Samples | None, live: Live) -> Scored:
        """Build a candidate and score it, and the float model, on samples; without any on those of the search.

        Raises:
            UsageError: If metric, evaluator or samples are objects that only the process of the search had.
            RunFolderError: If samples of the run are others by now.
            DataError: If samples do not fit.
            PreparationError: If a model cannot be built or run.
            MetricError: If the metric has no value for one.
        """
        metric, evaluator = self._judge(live)
        if evaluator is not None:  # It shows no outputs: how close they are, calibration samples say.
            self.restore_samples(live, must=True)
        content, reply = self.build(recipe, place)
        files = self._scoring_case(place, samples, metric, evaluator, live)
        with self._working() as pool, preparing("The candidate could not be scored."):
            target = files.candidate(reply.sha256)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(content)
            if metric is not None and not files.reference("search").exists():
                pool.call(prepare_jobs.run_reference, files.root, "search")
            base = pool.call(score_jobs.score, files.root, FLOAT, "search", False)
            score = pool.call(score_jobs.score, files.root, reply.sha256, "search", True)
            ends = pool.call(evidence_jobs.drop_interval, files.root, reply.sha256, score, base.value)
        low, high = ends or (None, None)
        return Scored(
            metric=str(self.manifest["metric"]["name"]),
            score=score.value,
            low=score.low,
            high=score.high,
            samples=score.samples,
            drop=drop_from(base.value, score.value, self.direction),
            drop_low=low,
            drop_high=high,
            sqnr_db=score.sqnr_db,
        )

    @property
    def direction(self) -> Direction:
        """The direction of the metric."""
        direction: Direction = self.manifest["metric"]["direction"]
        return direction

    def _judge(self, live: Live) -> tuple[Metric | None, Evaluator | None]:
        """The metric or the evaluator of the run."""
        sources, said = self.manifest["sources"], self._said
        if (evaluator := self._source("evaluator", live)) is not None:
            return None, loaded_evaluator(evaluator)
        metric = live.get("metric") or (None if sources.get("metric") else said.metric)
        if metric is None:
            raise _missing("metric")
        output, ignored = said.output_name, said.ignore_label
        return make_metric(metric, direction=said.direction, output=output, ignore_label=ignored), None

    def _source(self, name: str, live: Live) -> Any:
        """What the run was given, or what stands for it now; None if it had none.

        Raises:
            UsageError: If only the process of the search had it.
        """
        given, source = live.get(name), self.manifest["sources"].get(name)
        if given is None and source == LIVE:
            raise _missing(name)
        return source if given is None else given

    def _scoring_case(
        self,
        place: Place,
        samples: Samples | None,
        metric: Metric | None,
        evaluator: Evaluator | None,
        live: Live,
    ) -> CaseFiles:
        """A case with the samples; that of the search's samples is made once for a target and the same objects."""
        name = f"{place.files.root.name}-scores" if samples is None else f"scores-{len(list(self._root.iterdir()))}"
        files = CaseFiles(root=self._root / name)
        before = self._lives.get(name)
        if before is not None and before.keys() == live.keys() and all(before[key] is live[key] for key in live):
            return files
        shutil.rmtree(files.root, ignore_errors=True)  # What a call left that failed.
        files.root.mkdir()
        for shared in _SHARED:
            if metric is None or shared != "samples":
                (files.root / shared).symlink_to(self.files.root / shared)
        if metric is not None:
            self._write_samples(files, samples, metric, live)
        settings = replace(self.settings, target=place.spec, compiling=False)
        write_scoring(files, metric, evaluator, settings, cache_directory() if settings.cache else None)
        self._lives[name] = dict(live)
        return files

    def _write_samples(self, files: CaseFiles, samples: Samples | None, metric: Metric, live: Live) -> None:
        ends = reader.read_interface(files.float_model.read_bytes())
        if samples is not None:
            folder = files.samples("evaluation")
            write_labelled(samples, folder, ends.inputs, ends.outputs, metric, self._said.signature)
            write_split(files, "search", "evaluation")
            return
        given = Ingredients(
            model=files.float_model,
            calibration=None,
            evaluation=self._source("evaluation", live),
            heldout=self._source("heldout", live),
            metric=metric,
            wishes=Wishes(signature=self._said.signature),
        )
        _, _, hashes = write_parts(given, self.settings, files, ends.inputs, ends.outputs, metric)
        self._refuse_other(hashes, _OWN_SAMPLES)


def _common(recipe: Recipe) -> Recipe:
    """What candidates of one blueprint have in common."""
    repairs = corrected_at_once(recipe.repairs)
    return Recipe(per_channel=recipe.per_channel, io_type=recipe.io_type, repairs=repairs)


def _read_blueprint(pool: Workers, files: CaseFiles, key: Recipe, *, int16: bool) -> Blueprint:
    return pool.call(prepare_jobs.blueprint, files.root, key.to_json(), int16)


def _missing(name: str) -> UsageError:
    return UsageError(f"The run was started with a live {name}. Pass it again in Python: score(..., {name}=...).")


@contextlib.contextmanager
def _asked_too_much() -> Iterator[None]:
    """What cannot be made because of what was asked."""
    with preparing("Planning the candidates failed."):
        try:
            yield
        except BuildError as exc:
            raise UsageError(f"Such candidates cannot be made of this model. {exc}") from exc
