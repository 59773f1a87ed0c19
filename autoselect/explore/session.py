"""One run as a page asks about it: every answer is plain rows, one question at a time. Knows no HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoselect.domain.graph import Graph, OpKind
from autoselect.domain.recipe import Recipe
from autoselect.domain.words import amount, label, lost, unit_of_drops
from autoselect.explore.asking import Cheapest, Question
from autoselect.report.page.graphs import op_rows
from autoselect.report.page.models import model_rows
from autoselect.report.page.nodes import node_rows
from autoselect.report.tables.frames import format_penalty, format_size
from autoselect.report.tables.what_if_rows import answer_sentences
from autoselect.runs.files import plain
from autoselect.runs.folder import RunFolder
from autoselect.runs.run import Run, load_run
from autoselect.scoring.target_pieces import Pieces
from autoselect.study.finishing.recovery import recover
from autoselect.study.what_if.answer import WhatIf
from autoselect.study.what_if.choices import STATES, Choice, choices_of, targets_at_hand
from autoselect.study.what_if.moves import Move, cheapest, moves_from
from autoselect.study.what_if.questions import Questions
from autoselect.study.what_if.tried import WHOLES

Row = dict[str, Any]

_MOST_MOVES = 8
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
        recover(RunFolder(directory))
        self._open()

    def _open(self) -> None:
        self._run: Run = load_run(self.directory)
        self._questions = Questions(RunFolder(self.directory))
        self._choices: list[Choice] = choices_of(self._questions)
        self._places = {choice.name: place for place, choice in enumerate(self._choices)}
        self._told: Row | None = None
        self.revision += 1

    def reopen(self) -> None:
        """Read the run again: it has changed.

        Raises:
            AutoselectError: As for a new session; what was read before then stays.
        """
        with self._lock:
            self._open()

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
            found: Row = plain(
                {**answer.as_dict(), "sentences": answer_sentences(answer), "graph": self._graph_row(answer)}
            )
            return found

    def recipe(self, asked: Question) -> tuple[str, Recipe]:
        """The name and the recipe of a candidate.

        Raises:
            AutoselectError: As :meth:`ask`.
        """
        with self._lock:
            answer = self._answer(asked)
            return answer.name, answer.recipe

    def cheapest(self, asked: Cheapest) -> Row:
        """The single steps from a candidate that are worth most.

        Raises:
            AutoselectError: As :meth:`ask`.
        """
        with self._lock:
            answer = self._answer(asked)
            moves = cheapest(moves_from(self._questions, answer), asked.goal)[:_MOST_MOVES]
            return {"moves": [self._move_row(move, answer) for move in moves]}

    def _answer(self, asked: Question) -> WhatIf:
        return self._questions.ask(asked.named, asked.changes.changes, asked.target)

    def _run_row(self) -> Row:
        metric, settings = str(self._run.summary["metric"]), self._questions.workshop.settings
        unit, factor = unit_of_drops(metric)
        figures = {row["name"]: row for row in node_rows(self._run)}
        sets = [list(repairs) for repairs in settings.repair_choices]
        return {
            "name": _model_name(self._run),
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
        expected = self._questions.tried.standings
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
                "size_bytes": move.size_bytes,
                "drop": move.drop,
                "drop_low": move.drop_low,
                "drop_high": move.drop_high,
                "says": _says(move, answer),
            }
        )
        return row


def _pieces(graph: Graph, pieces: Pieces) -> list[int | None]:
    """The piece of each op; 0 on the host, None where it is computed on either side."""
    ops = zip(graph.ops, pieces.piece_of, strict=True)
    return [None if op.kind is OpKind.NEUTRAL and not piece else piece for op, piece in ops]


def _says(move: Move, answer: WhatIf) -> str:
    """What a step costs and saves, in words."""
    parts = [f"penalty {_changed(move.more_penalty, format_penalty)}", f"size {_changed(move.more_bytes, format_size)}"]
    if move.drop is None or move.more_drop is None:
        parts.append("nobody knows what it loses")
    else:
        more = amount(move.more_drop, answer.metric)
        side = "more" if move.more_drop > 0.0 else "less"
        parts.append(f"it probably {lost(move.drop, answer.metric)}, {more} {side} than now")
    return ", ".join(parts)


def _changed(by: float, told: Callable[[Any], str]) -> str:
    return "as now" if not by else f"{'+' if by > 0 else '−'}{told(abs(by))}"


def _model_name(run: Run) -> str:
    source = str((run.manifest.get("sources") or {}).get("model") or "")
    return Path(source).name if source else "model"
