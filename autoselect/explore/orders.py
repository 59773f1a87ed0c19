"""Makes jobs of what a page orders: which command of autoselect does it, and what its result says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoselect.domain.recipe import Recipe
from autoselect.domain.words import counted
from autoselect.errors import UsageError
from autoselect.explore.asking import Order
from autoselect.explore.jobs import Event, Job, Jobs
from autoselect.explore.session import Session
from autoselect.runs.files import write_text
from autoselect.study.what_if.changes import IN_WORDS


class Orders:
    """Takes orders."""

    def __init__(self, session: Session, jobs: Jobs, folder: Path) -> None:
        """Keep what knows the run, what works, and a folder for recipes and models."""
        self._session, self._jobs, self._folder = session, jobs, folder
        self._count = 0

    def take(self, order: Order) -> Job:
        """Make a job of an order; it waits for those before it.

        Raises:
            AutoselectError: If it cannot be, in words for the user.
        """
        job = self._search(order) if order.kind == "search" else self._made(order)
        self._jobs.add(job)
        return job

    def _made(self, order: Order) -> Job:
        recipe = self._session.recipe(order)
        self._count += 1
        path, name = self._folder / f"{self._count}.recipe.json", _name_of(order)
        write_text(path, recipe.to_json())
        return self._build(name, path) if order.kind == "build" else self._score(name, recipe, path)

    @property
    def _run(self) -> str:
        return str(self._session.directory)

    def _build(self, name: str, path: Path) -> Job:
        model = self._folder / f"{self._session.model_name}-{self._count}.tflite"

        def told(_events: Sequence[Event]) -> Mapping[str, Any]:
            size = model.stat().st_size
            return {"says": f"Built: {size:,} bytes.", "size_bytes": size, "file": model.name}

        arguments = ["what-if", self._run, f"--from={path}", f"--build={model}", "--json"]
        return Job(kind="build", name=name, arguments=lambda: arguments, told=told, file=model)

    def _score(self, name: str, recipe: Recipe, path: Path) -> Job:
        def told(events: Sequence[Event]) -> Mapping[str, Any]:
            trial = next((event for event in events if event.get("event") == "trial"), None)
            if trial is not None and trial.get("error"):
                raise UsageError(f"The candidate has no score. {trial['error']}")
            return self._session.scored(recipe, is_new=trial is not None)

        arguments = ["resume", self._run, f"--recipe={path}", "--json"]
        return Job(kind="score", name=name, arguments=lambda: arguments, told=told, trials=1)

    def _search(self, order: Order) -> Job:
        pins = order.pins.model_dump()
        self._session.check_pins(pins)
        options = [f"--{name.replace('_', '-')}={node}" for name, nodes in pins.items() for node in nodes]
        pinned = sum(map(len, pins.values()))
        name = f"{counted(order.trials, 'more trial')}" if order.trials else "what is left of the search"
        name += f", {counted(pinned, 'node')} pinned" if pinned else ""

        def told(events: Sequence[Event]) -> Mapping[str, Any]:
            return self._session.searched(sum(event.get("event") == "trial" for event in events))

        def arguments() -> Sequence[str]:
            total = [f"--trials={self._session.own_trials + order.trials}"] if order.trials else []
            return ["resume", self._run, *total, *options, "--json"]

        return Job(kind="search", name=name, arguments=arguments, told=told, trials=order.trials or None)


def _name_of(order: Order) -> str:
    """A candidate in a few words: what it was made of, and how many nodes were changed."""
    start = "a recipe" if isinstance(order.start, dict) else str(order.start)
    wanted = order.changes.changes.wanted
    return "; ".join([start, *(f"{len(nodes)} {IN_WORDS[option]}" for option, nodes in wanted.items() if nodes)])
