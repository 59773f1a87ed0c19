"""What pages show of the results of this study."""

from __future__ import annotations

from pathlib import Path

from shown import table_of

RESULTS = Path(__file__).resolve().parent / "results"


def exact() -> str:
    """How many forecasts are exact in size, kinds, segments and penalty, of how many if not all."""
    rows = table_of(RESULTS / "table.md")[1:]
    asked, right = sum(int(row[1]) for row in rows), sum(min(int(cell) for cell in row[2:6]) for row in rows)
    return f"All {asked} forecasts" if right == asked else f"Of {asked} forecasts {right}"


def _moved_units() -> dict[str, str]:
    """Share inside the interval, by case."""
    return {row[0]: row[3].removesuffix(" %") for row in table_of(RESULTS / "table.md", 2)[1:] if row[1] == "units"}


def inside() -> str:
    """Share of all scores inside their interval."""
    return f"{float(_moved_units()['all']):.0f} %"


def inside_by_case() -> str:
    """The same of each case."""
    names = {"pump monitor (demo)": "the pump", "MobileNetV1-0.25": "MobileNetV1", "streaming denoiser": "the denoiser"}
    return ", ".join(f"{float(_moved_units()[case]):.0f} % on {name}" for case, name in names.items())
