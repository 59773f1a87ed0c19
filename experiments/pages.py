"""Writes into pages what results hold: tables, single figures, and what made them.

A page says between two comments, which no reader sees, where a part comes from::

    <!-- results: levels/page.searches -->
    ...
    <!-- /results -->

``STUDY/FILE.md N`` is the N-th table of a result, without N the whole file. ``STUDY/page.NAME`` is what the function
``NAME`` of the study's ``page.py`` returns. ``STUDY/stamp`` says of each result which commit and builder wrote it. On
one line the comments mark a part of a sentence or a cell; else the part is a block.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent))
import studies

_PART = re.compile(r"<!-- results: (?P<source>[^\n]+?) -->(?P<shown>.*?)<!-- /results -->", re.DOTALL)


def all_pages() -> list[Path]:
    """Pages that may show results."""
    places = ("README.md", "docs/**/*.md", "experiments/README.md", "experiments/*/README.md")
    return sorted(path for place in places for path in studies.ROOT.glob(place))


def sources_of(text: str) -> list[str]:
    """Where the parts of a page come from, in order."""
    return [found["source"] for found in _PART.finditer(text)]


def written(text: str) -> str:
    """A page with its parts as the results are now.

    Raises:
        ValueError: If a source is not there, or comments are not in pairs.
    """
    if len(sources_of(text)) != text.count("<!-- results:") or text.count("<!-- results:") != text.count(
        "<!-- /results"
    ):
        raise ValueError("expected each <!-- results: SOURCE --> to end with <!-- /results -->, in pairs")

    def anew(found: re.Match[str]) -> str:
        content = part_of(found["source"])
        shown = f"\n\n{content}\n\n" if "\n" in found["shown"] else content
        return f"<!-- results: {found['source']} -->{shown}<!-- /results -->"

    return _PART.sub(anew, text)


def part_of(source: str) -> str:
    """What a source is now.

    Raises:
        ValueError: If it is not there.
    """
    place, _, number = source.partition(" ")
    study, _, name = place.partition("/")
    if name == "stamp":
        return _stamps(study)
    if name.startswith("page."):
        function = getattr(_page(study), name.removeprefix("page."), None)
        if function is None:
            raise ValueError(f"{source}: experiments/{study}/page.py has no such function")
        return str(function()).strip()
    path = studies.HERE / study / "results" / name
    if not path.is_file():
        raise ValueError(f"{source}: there is no {path.relative_to(studies.ROOT)}")
    text = path.read_text(encoding="utf-8").strip()
    tables = re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)
    if number and not 0 < int(number) <= len(tables):
        raise ValueError(f"{source}: {name} has {len(tables)} tables")
    return str(tables[int(number) - 1]).strip() if number else text


def _stamps(study: str) -> str:
    """What made the results of a study, a sentence for each step."""
    said = []
    for step in studies.read_steps().values():
        stamp = studies.stamp_of(step) if step.study == study else None
        if stamp:
            names = ", ".join(f"`{name}`" for name in step.results if name.endswith((".csv", ".json", ".md", ".npz")))
            builder = f", builder {stamp['inputs']['builder']}" if "builder" in stamp["inputs"] else ""
            said.append(f"{names}: commit {stamp['commit']} of {stamp['date']}{builder}.")
    if not said:
        raise ValueError(f"{study}/stamp: no result of this study has a stamp")
    return " ".join(said)


@functools.cache
def _page(study: str) -> ModuleType:
    path = studies.HERE / study / "page.py"
    spec = importlib.util.spec_from_file_location(f"page_of_{study}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise ValueError(f"{study}/page: there is no experiments/{study}/page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: Sequence[str] | None = None) -> None:
    """Write all pages anew, and name those that changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="Write nothing; end with 1 if a page is not as results are."
    )
    options = parser.parse_args(arguments)
    changed = []
    for path in all_pages():
        before = path.read_text(encoding="utf-8")
        try:
            after = written(before)
        except ValueError as exc:
            raise SystemExit(f"{path.relative_to(studies.ROOT)}: {exc}") from exc
        if before != after:
            changed.append(str(path.relative_to(studies.ROOT)))
            if not options.check:
                path.write_text(after, encoding="utf-8")
    print("\n".join(changed) or "All pages show what the results hold.")
    if options.check and changed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
