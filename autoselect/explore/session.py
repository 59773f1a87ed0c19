"""One run as a page asks about it: every answer is plain rows, one question at a time. Knows no HTTP."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.pinned import Pins
from autoselect.domain.recipe import Recipe
from autoselect.domain.words import amount, counted, label, lost, unit_of_drops
from autoselect.errors import StorageError, UsageError
from autoselect.explore.asking import Cheapest, Question
from autoselect.report.page.graphs import op_rows
from autoselect.report.page.models import model_rows
from autoselect.report.page.nodes import node_rows
from autoselect.report.page.page import model_name, write_page
from autoselect.report.tables.frames import format_penalty, format_size
from autoselect.report.tables.what_if_rows import answer_sentences
from autoselect.runs.files import plain
from autoselect.runs.folder import RunFolder
from autoselect.runs.records import own_trials
from autoselect.runs.run import load_run
from autoselect.scoring.target_pieces import Pieces
from autoselect.study.finishing.recovery import recover
from autoselect.study.proposing.pins import holding
from autoselect.study.recording.optuna_study import refuse_behind
from autoselect.study.setup.by_user import covered
from autoselect.study.what_if.answer import WhatIf
from autoselect.study.what_if.choices import STATES, Choice, choices_of, targets_at_hand
from autoselect.study.what_if.moves import Move, cheapest, moves_from
from autoselect.study.what_if.questions import Questions
from autoselect.study.what_if.tried import WHOLES
from autoselect.study.what_if.workshop import Workshop

Row = dict[str, Any]

_HOW = "A score tells."
_OF_NO_MODEL = frozenset({"trials", "timeout", "workers"})
"""Settings that say nothing of what candidates are made of."""
_FIGURES = ("short", "index", "error", "buys", "macs", "cure")


class Session:
    """Answers questions about a run; those of several threads wait for each other.

    Attributes:
        directory: The run folder.
        revision: Grows whenever the run has changed.
    """

    def __init__(self, directory: Path) -> None:
        """Open a run; of one that was killed, write first what Ctrl-C would have written.

        Raises:
            RunFolderError: If the folder holds no run, it is damaged, or another process is working in it.
            UsageError: If it keeps no models to plan candidates from, or another version made it.
        """
        self.directory, self.revision = directory, 0
        self._lock = threading.Lock()
        self._folder = RunFolder(directory)
        self._open(None)

    def _open(self, workshop: Workshop | None) -> None:
        self._folder.refuse_damaged_summary()
        refuse_behind(self._folder)
        recover(self._folder)
        seen, run = self._stamp(), load_run(self.directory)
        if _stamp_of(self._folder.report)[0] < _stamp_of(self._folder.summary)[0]:  # Drawn before somebody was killed.
            with contextlib.suppress(StorageError):  # One may look at a run that one may not change.
                write_page(run, self._folder.report)
        questions = Questions(self._folder, workshop)
        choices = choices_of(questions)
        self._seen, self._run, self._questions, self._choices = seen, run, questions, choices
        self._places = {choice.name: place for place, choice in enumerate(choices)}
        self._told: Row | None = None
        self.revision += 1

    def refresh(self) -> None:
        """Read the run again if it has changed.

        Raises:
            AutoselectError: As for a new session; what was read before then stays.
        """
        with self._lock:
            if self._stamp() == self._seen:
                return
            before = self._questions.workshop
            settings = self._folder.read_manifest("settings")["settings"]
            changed = {key for key, value in settings.items() if value != before.manifest["settings"].get(key)}
            self._open(before if changed <= _OF_NO_MODEL else None)

    def _stamp(self) -> tuple[int, ...]:
        """What is another one as soon as a trial is told, or a process has ended its work on the run."""
        return tuple(number for path in (self._folder.summary, self._folder.study) for number in _stamp_of(path))

    def run(self) -> Row:
        """What a page shows of the run before anything is asked."""
        with self._lock:
            if self._told is None:
                self._told = plain(self._run_row())
            return {**self._told, "revision": self.revision}

    def ask(self, asked: Question) -> Row:
        """The answer to a question, with its sentences and its graph.

        Raises:
            AutoselectError: If it cannot be answered, in words for the user.
        """
        with self._lock:
            answer = self._answer(asked)
            row: Row = plain(
                {**answer.as_dict(), "sentences": answer_sentences(answer, _HOW), "graph": self._graph_row(answer)}
            )
            return row

    def recipe(self, asked: Question) -> Recipe:
        """The recipe of a candidate.

        Raises:
            AutoselectError: As :meth:`ask`.
        """
        with self._lock:
            return self._answer(asked).recipe

    @property
    def model_name(self) -> str:
        """The name of the model's file, without its ending."""
        return Path(model_name(self._run)).stem

    @property
    def own_trials(self) -> int:
        """How many trials are of the search's budget."""
        return own_trials(self._questions.tried.records)

    def check_pins(self, pins: Mapping[str, Sequence[str]]) -> None:
        """Refuse pins that the search cannot keep.

        Raises:
            UsageError: With the reason.
        """
        with self._lock:
            layers, graph = self._questions.workshop.prepared.layers, self._questions.workshop.prepared.graph
            named = {name: covered(nodes, layers, graph, name) for name, nodes in pins.items()}
            holding(self._questions.tried.problem, Pins(**named))

    def scored(self, recipe: Recipe, *, is_new: bool) -> Row:
        """What came of a candidate that has been scored; a row of the result of a job.

        Raises:
            UsageError: If it has no score.
        """
        with self._lock:
            answer = self._questions.ask(recipe)
            if answer.trial is None or answer.scored_drop is None:
                raise UsageError("The candidate has no score.")
            record = next(r for r in self._questions.tried.records if r.number == answer.trial)
            sentence = f"Trial {answer.trial} {lost(answer.scored_drop, answer.metric)}."
            row: Row = plain(
                {
                    "says": sentence if is_new else f"It had been scored before. {sentence}",
                    "number": answer.trial,
                    "id": record.id,
                    "drop": answer.scored_drop,
                    "penalty": answer.penalty,
                    "size_bytes": answer.size_bytes,
                }
            )
            return row

    def searched(self, trials: int) -> Row:
        """What came of further trials; a row of the result of a job."""
        recommended = self._run.picks.get("recommended")
        clause = f"{recommended} is recommended now" if recommended else "nothing is recommended"
        return {"says": f"{counted(trials, 'trial')}; {clause}.", "trials": trials, "recommended": recommended}

    def cheapest(self, asked: Cheapest) -> Row:
        """The single steps from a candidate that are worth most.

        Raises:
            AutoselectError: As :meth:`ask`.
        """
        with self._lock:
            answer = self._answer(asked)
            moves = cheapest(moves_from(self._questions, answer), asked.goal)[:8]  # As many as fit beside the graph.
            return {"moves": [self._move_row(move, answer) for move in moves]}

    def _answer(self, asked: Question) -> WhatIf:
        return self._questions.ask(asked.named, asked.changes.changes, asked.target)

    def _run_row(self) -> Row:
        metric, settings = str(self._run.summary["metric"]), self._questions.workshop.settings
        unit, factor = unit_of_drops(metric)
        figures = {row["name"]: row for row in node_rows(self._run)}
        sets = [list(repairs) for repairs in settings.repairs.alternatives]
        return {
            "name": model_name(self._run),
            "directory": str(self.directory),
            "status": self._run.status,
            "target": settings.target,
            "targets": targets_at_hand(settings.target),
            "penalty_unit": self._questions.workshop.place().target.unit,
            "metric": metric,
            "metric_label": label(metric),
            "maximize": self._run.summary.get("direction") != "minimize",
            "float_score": self._questions.tried.yardstick.float_score,
            "recommended": self._run.picks.get("recommended"),
            "unit": unit,
            "to_unit": factor,
            "allowed_drop": self._questions.tried.rule.allowed_drop,
            "nodes": [self._node_row(choice, figures.get(choice.name, {})) for choice in self._choices],
            "repairs": sorted({name for repairs in sets for name in repairs}),
            "repair_sets": sets,
            "starts": [
                *({"name": name, "label": name, "id": id_} for name, id_ in self._run.picks.items()),
                *({"name": name, "label": f"all {name}", "id": None} for name in WHOLES),
            ],
            "points": self._point_rows(),
        }

    @staticmethod
    def _node_row(choice: Choice, figures: Mapping[str, Any]) -> Row:
        return {
            "name": choice.name,
            "op": choice.op_type,
            "unit": choice.unit,
            "states": [state for state in STATES if state not in choice.lacks],
            "why": dict(choice.lacks),
            **{name: figures.get(name) for name in _FIGURES},
        }

    def _point_rows(self) -> list[Row]:
        tried = self._questions.tried
        expected, compiled = tried.standings, {record.id for record in tried.records if tried.compiled(record)}
        rows = []
        for row in model_rows(self._run, {}):
            standing = expected.get(row["id"])
            rows.append(
                {
                    "id": row["id"],
                    "number": row["number"],
                    "origin": row["origin"],
                    "state": row["state"],
                    "pick": row["picks"][0] if row["picks"] else None,
                    "on_front": row["front"],
                    "penalty": row["penalty"],
                    "compiled": row["id"] in compiled,
                    "size_bytes": row["size_bytes"],
                    "drop": None if standing is None else standing.drop,
                    "bound": None if standing is None else standing.bound,
                    "scored_drop": row["search_drop"],
                }
            )
        return rows

    def _graph_row(self, answer: WhatIf) -> Row:
        graph, pieces = self._questions.drawn(answer)
        return {
            "ops": op_rows(graph, self._places),
            "pieces": _pieces(graph, pieces),
            "crossings": [list(edge) for edge in pieces.crossings],
            "why": {i: reason for i, reason in enumerate(pieces.reasons) if reason},
        }

    def _move_row(self, move: Move, answer: WhatIf) -> Row:
        row: Row = plain(
            {
                "unit": move.unit,
                "nodes": list(move.nodes),
                "state": move.state,
                "penalty": move.penalty,
                "more_penalty": move.more_penalty,
                "size_bytes": move.size_bytes,
                "more_bytes": move.more_bytes,
                "drop": move.drop,
                "more_drop": move.guessed_more,
                "drop_low": move.drop_low,
                "drop_high": move.drop_high,
                "says": _says(move, answer),
            }
        )
        return row


def _stamp_of(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def _pieces(graph: Graph, pieces: Pieces) -> list[int | None]:
    """The piece of each op; 0 on the host, None where it is computed on either side."""
    ops = zip(graph.ops, pieces.piece_of, strict=True)
    return [None if op.kind is OpKind.NEUTRAL and not piece else piece for op, piece in ops]


def _says(move: Move, answer: WhatIf) -> str:
    """What a step costs and saves, in words."""
    parts = [f"penalty {_changed(move.more_penalty, format_penalty)}", f"size {_changed(move.more_bytes, format_size)}"]
    if move.drop is None or move.guessed_more is None:
        parts.append("nobody knows what it loses")
    else:
        more = amount(move.guessed_more, answer.metric)
        side = "more" if move.guessed_more > 0.0 else "less"
        parts.append(f"it probably {lost(move.drop, answer.metric)}, {more} {side} than now")
    return ", ".join(parts)


def _changed(by: float, formatter: Callable[[Any], str]) -> str:
    return "as now" if not by else f"{'+' if by > 0 else '−'}{formatter(abs(by))}"
