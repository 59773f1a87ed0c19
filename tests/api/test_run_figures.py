"""The figures of a finished run."""

from __future__ import annotations

import html
import io

import pytest

import autoselect
from autoselect.errors import RunFolderError


@pytest.mark.parametrize("name", ["plot_pareto", "plot_layers", "plot_islands", "plot_history"])
def test_a_run_draws_its_figures(finished: autoselect.Run, name: str) -> None:
    image = io.BytesIO()
    getattr(autoselect.load_run(finished.directory), name)().savefig(image, format="png")
    assert image.getvalue().startswith(b"\x89PNG")


def test_islands_of_chosen_members_are_titled_by_their_ids(finished: autoselect.Run) -> None:
    chosen = finished.front["id"].tolist()[:2]
    titles = [axes.get_title(loc="left") for axes in finished.plot_islands(chosen).axes]
    assert [title.split(":")[0] for title in titles] == chosen
    with pytest.raises(RunFolderError, match="has no 'nothing'"):
        finished.plot_islands(["nothing"])


def test_a_run_shows_its_verdict_and_its_front(finished: autoselect.Run) -> None:
    shown = finished._repr_html_()
    assert finished.summary["verdict"] in html.unescape(shown)
    assert all(name in shown for name in ("float", "all-integer", "recommended", "accurate"))
