"""``autoselect what-if`` and ``explore``: models that a search did not try."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import out, print_lines, results_only_on_stdout
from autoselect.cli.options import AsJson, option_of

_NODES = "Nodes: names, globs or op types; may be repeated"
_MODEL = "The model itself"
Nodes = list[str] | None
_CHANGES = [
    inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Nodes, typer.Option(metavar="NODE", rich_help_panel=_NODES, help=help_text)],
    )
    for name, help_text in {
        "deny": "Leave it out of integers: hybrid or float.",
        "in_float": "Leave it in float.",
        "int16": "Give it 16-bit activations.",
        "int8": "Put it into 8-bit integers again.",
    }.items()
]


@with_settings(_CHANGES)
@with_debug
def what_if(
    *,
    directory: Annotated[str, typer.Argument(metavar="RUN", help="Run folder.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="NAME",
            help="What to change: a pick, int8, int16, hybrid, float, an id of trials.csv, the number of a trial, or a "
            "recipe file (.json).",
        ),
    ] = "recommended",
    settings: Mapping[str, Nodes],
    repairs: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A repair instead of the model's own, may be repeated; or none."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the penalty is of; that of the run by default.")
    ] = None,
    build: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_MODEL, help="Build it and write it.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", rich_help_panel=_MODEL, help="Write over an existing file.")
    ] = False,
    score: Annotated[
        bool, typer.Option("--score", rich_help_panel=_MODEL, help="Build it and score it on the search samples.")
    ] = False,
    evaluation: Annotated[
        str | None, option_of("evaluation", rich_help_panel=_MODEL, help="Score it on these samples instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask what a model that the search did not try would cost, and what it would probably lose.

    Size and kinds are exact, and penalty and segments unless a compiler gives them.
    The drop is what the trials let expect.
    """
    from autoselect.api.run import load_run
    from autoselect.api.source import read_recipe
    from autoselect.cli.results import print_json

    changes: dict[str, Any] = {name: nodes or () for name, nodes in settings.items()}
    if repairs is not None:
        if "none" in repairs and len(repairs) > 1:
            raise typer.BadParameter("none takes no repair at all; leave it or the others out", param_hint="--repairs")
        changes["repairs"] = () if repairs == ["none"] else repairs
    with results_only_on_stdout():
        run = load_run(directory)
        asked = read_recipe(Path(start)) if start.endswith(".json") else start
        answer = run.what_if(asked, **changes, target=target)
        before = run.what_if(asked, target=target)
        if build is not None:
            answer.build(build, force=force)
        scored = answer.score(evaluation) if score or evaluation is not None else None
    if as_json:
        print_json({**answer.as_dict(), "score": scored, "path": None if build is None else str(build)})
        return
    how = "--score tells." if scored is None else ""
    _print([before, answer] if answer.recipe != before.recipe else [answer], before.name, how)
    if scored is not None:
        _print_score(scored)
    if build is not None:
        print_lines(["", f"Written to {build}."])


def _print(answers: list[Any], start: str, how: str) -> None:
    """The answer beside what it was made of, and ``how`` one learns what nobody knows."""
    from autoselect.report.tables.model_tables import aligned
    from autoselect.report.tables.what_if_rows import answer_rows, answer_sentences

    answer = answers[-1]
    out().print(f"{answer.name}, on {answer.target}", style="bold", markup=False, soft_wrap=True)
    headings = [start, "changed"][-len(answers) :] if len(answers) > 1 else [start]
    print_lines(aligned(answer_rows(answers, headings)))
    for sentence in answer_sentences(answer, how):
        out().print(f"\n{sentence}", markup=False)


def _print_score(scored: Any) -> None:
    from autoselect.domain.words import between, lost, said

    where = f"on {scored.samples:,} samples" if scored.samples else "by the evaluator"
    interval = ""
    if scored.drop_low is not None and scored.drop_low == scored.drop_low:
        interval = f" (95 % interval: {between(scored.drop_low, scored.drop_high, scored.metric)})"
    out().print(
        f"\nScored {where}: {said(scored.score, scored.metric)}; it {lost(scored.drop, scored.metric)}{interval}.",
        markup=False,
    )


@with_debug
def explore(
    *,
    directory: Annotated[str, typer.Argument(metavar="RUN", help="Run folder.")],
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Where the page is served; at a free port by default.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")] = False,
) -> None:
    """Try models by hand on a page: what each costs and probably loses, built and scored on demand (extra: explore).

    The page is served to this machine alone, until Ctrl-C.
    """
    from autoselect.explore.serving import serve

    for number in (signal.SIGINT, signal.SIGTERM):  # Both end it well, also where a script ignores Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    with results_only_on_stdout():
        page = serve(directory, port=port)
    with page:
        out().print(page.url, markup=False, soft_wrap=True)
        if not no_browser:
            typer.launch(page.url)
        try:
            page.wait()
        except KeyboardInterrupt:
            return  # That is how one ends it.
