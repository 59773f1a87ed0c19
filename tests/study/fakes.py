"""A model, a pool and a study whose answers are known, so that the loop runs without TensorFlow."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from autoselect.cases import build_jobs, race_jobs, score_jobs
from autoselect.domain.layers import LayerStatistics, LayerTable, Node
from autoselect.domain.recipe import Recipe


def statistics(rmse_per_scale: float, *, scale: float = 1.0) -> LayerStatistics:
    return LayerStatistics(
        tensor_index=0,
        num_elements=10.0,
        stddev=0.0,
        mean_error=0.0,
        max_abs_error=0.0,
        mean_squared_error=(rmse_per_scale * scale) ** 2,
        scale=scale,
        zero_point=0,
        sqnr_db=20.0,
        verified=True,
    )


def table(*rows: tuple[str, str, float | None]) -> LayerTable:
    """A layer table of (name, op type, rmse/scale) rows; None for a node without statistics."""
    nodes = tuple(Node(index=i, name=name, op_type=op_type) for i, (name, op_type, _) in enumerate(rows))
    return LayerTable(nodes=nodes, statistics=tuple(None if r[2] is None else statistics(r[2]) for r in rows))


def sha_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def dropped(full: score_jobs.ScoreReply) -> race_jobs.Dropped:
    """What is known of a candidate after one of three samples."""
    return race_jobs.Dropped(
        samples=1,
        total=3,
        estimate=full.value,
        sqnr_db=20.0,
        divergence=0.01,
        seconds=0.25,
        inference_seconds=0.125,
    )


class FakePool:
    """Runs nothing: a recipe's size and score follow from its nodes.

    Every denylisted node adds 10 bytes and 1 point of penalty to a file of 100 bytes, and 0.1 to a score of 0.
    Two recipes give equal bytes where they differ only in nodes called ``idle…``.

    Attributes:
        built: Recipes in the order in which they were built.
        scored: Hashes in the order in which they were scored.
        raced: Hashes with their rivals and goals, in the order in which they raced.
        schedule_of: The candidate that said which samples are hard.
    """

    def __init__(self, *, held_back: bool = False, fails: Callable[[str, Any], Exception | None] | None = None) -> None:
        """With ``held_back`` no job ends before :meth:`release`; ``fails(job, recipe or sha)`` may give an error."""
        self.built: list[frozenset[str]] = []
        self.scored: list[str] = []
        self.raced: list[tuple[str, tuple[str, ...], float]] = []
        self.schedule_of = ""
        self._held_back = held_back
        self._fails = fails or (lambda job, what: None)
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._nodes: dict[str, frozenset[str]] = {}

    def submit(self, function: Callable[..., Any], *args: Any, timeout_seconds: float = 0.0) -> Future[Any]:
        answer = {build_jobs.build: self._build, score_jobs.score: self._score, race_jobs.race: self._race}[function]
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: answer(*args)))
        if not self._held_back:
            self.release()
        return future

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        assert function is race_jobs.keep_schedule
        self.schedule_of = args[1]

    def _race(
        self, root: Path, sha256: str, rivals: Sequence[str], goal: float, confidence: float
    ) -> score_jobs.ScoreReply | race_jobs.Dropped:
        """A candidate that is not better than its goal is dropped after one of three samples."""
        self.raced.append((sha256, tuple(rivals), goal))
        full = self._score(root, sha256, "search", False)
        return dropped(full) if full.value <= goal + 1e-9 else full

    def release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future, answer in waiting:
            try:
                future.set_result(answer())
            except Exception as exc:  # noqa: BLE001 - a future carries whatever its job raises
                future.set_exception(exc)

    def _build(self, root: Path, recipe_json: str) -> build_jobs.BuildReply:
        nodes = Recipe.from_json(recipe_json).denylisted_nodes
        self.built.append(nodes)
        if error := self._fails("build", nodes):
            raise error
        active = frozenset(n for n in nodes if not n.startswith("idle"))
        sha = sha_of(" ".join(sorted(active)))
        self._nodes[sha] = active
        return build_jobs.BuildReply(
            sha256=sha,
            size_bytes=100 + 10 * len(active),
            fragmentation={
                "penalty": float(len(active)),
                "segments": 1,
                "float_ops": len(active),
                "crossing_tensors": 0,
                "crossing_bytes": 0,
                "float_macs_share": 0.0,
            },
            kinds={},
            fallbacks={},
            seconds=0.5,
        )

    def _score(self, root: Path, sha256: str, part: str, interval: bool) -> score_jobs.ScoreReply:
        self.scored.append(sha256)
        if error := self._fails("score", self._nodes[sha256]):
            raise error
        value = 0.1 * len(self._nodes[sha256])
        return score_jobs.ScoreReply(
            value=value,
            noise=0.0,
            bound=math.nan,
            sqnr_db=30.0,
            divergence=0.001,
            low=math.nan,
            high=math.nan,
            samples=3,
            seconds=0.25,
            inference_seconds=0.125,
        )
