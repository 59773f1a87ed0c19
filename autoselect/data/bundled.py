"""Finds the data files that come with autoselect: search spaces and target profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoselect.data.texts import toml_of
from autoselect.domain.words import did_you_mean
from autoselect.errors import UsageError

_PACKAGE = Path(__file__).resolve().parents[1]


def bundled_directory() -> Path:
    """Folder of the bundled search spaces, in an installed package or in a source tree."""
    installed = _PACKAGE / "_search_spaces"
    return installed if installed.is_dir() else _PACKAGE.parent / "search_spaces"


def read_toml(name_or_path: str, *, folder: str = "", kind: str = "search space") -> dict[str, Any]:
    """Read a bundled file by name, or a user's own by path.

    Args:
        name_or_path: ``default``, or a path that ends in ``.toml``.
        folder: Sub-folder of the bundled ones, for example ``targets``.
        kind: What the message calls it.

    Raises:
        UsageError: If there is none, with the names there are; or it is not TOML, with the line.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = bundled_directory() / folder / f"{name_or_path}.toml"
    try:
        return toml_of(path, called=f"The {kind} file {path}")
    except UsageError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            raise UsageError(_unknown(name_or_path, folder, kind)) from None
        raise


def bundled_names(folder: str = "") -> list[str]:
    """Names of the bundled files of a sub-folder."""
    return sorted(path.stem for path in (bundled_directory() / folder).glob("*.toml"))


def lasting(name_or_path: str) -> str:
    """A name by which any folder finds the file: a path is absolute, a bundled name stays as it is."""
    return str(Path(name_or_path).absolute()) if Path(name_or_path).suffix == ".toml" else name_or_path


def _unknown(name: str, folder: str, kind: str) -> str:
    if name.endswith(".toml"):
        return f"There is no {kind} file {name}. Check the path."
    names = bundled_names(folder)
    hint = did_you_mean(name, names, most=1)
    return f"There is no {kind} {name!r}.{hint} Bundled: {', '.join(names)}; or pass a path that ends in .toml."
