"""Makes a page of the notebook, as the site is built: its words and code, in their order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOK = Path(__file__).with_name("notebook.ipynb")


def on_files(files: Files, config: Any) -> Files:
    """Called by MkDocs before it reads the navigation."""
    files.append(File.generated(config, "notebook.md", content=page()))
    return files


def page() -> str:
    """The notebook as Markdown, with a link to the file itself."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    written = ["".join(cell["source"]) for cell in cells]
    shown = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell, text in zip(cells, written, strict=True)
    ]
    title, *rest = shown
    return "\n\n".join([title, "[Download the notebook](notebook.ipynb) and run it in Jupyter.", *rest])
