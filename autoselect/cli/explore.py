"""``autoselect explore``."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from autoselect.cli.command import with_debug
from autoselect.cli.console import out, results_only_on_stdout


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
