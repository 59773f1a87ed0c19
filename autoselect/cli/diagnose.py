"""``autoselect diagnose``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autoselect.cli.command import with_debug, with_settings
from autoselect.cli.console import out, print_lines, warn, watching
from autoselect.cli.options import AsJson, in_python, parameters_of
from autoselect.cli.parsing import HelpAll
from autoselect.diagnosis.settings import DiagnosisSettings

if TYPE_CHECKING:
    from autoselect.diagnosis.result import Diagnosis


@with_settings(parameters_of(DiagnosisSettings))
@with_debug
def diagnose(*, settings: Mapping[str, Any], as_json: AsJson = False, help_all: HelpAll = False) -> None:
    """Show which layers full-integer quantization harms, why, and what to do about it."""
    from autoselect import diagnose as run_diagnose
    from autoselect.cli.results import print_json

    arguments = in_python(DiagnosisSettings, settings)
    with watching() as watcher:
        diagnosis = run_diagnose(arguments.pop("model"), **arguments, listener=watcher)
    for message in diagnosis.facts.get("warnings") or ():
        if message not in watcher.warned:
            warn(str(message))
    if as_json:
        print_json(_as_json(diagnosis))
    else:
        _print_diagnosis(diagnosis)


def _as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "facts": diagnosis.facts,
        "model_metrics": diagnosis.model_metrics,
        "advice": [asdict(item) for item in diagnosis.advice],
        "layer_statistics": diagnosis.layer_statistics.to_dict("records"),
        "node": diagnosis.node,
        "directory": None if diagnosis.directory is None else str(diagnosis.directory),
        "figures": [str(path) for path in diagnosis.figures],
    }


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    from autoselect.report.tables import layer_tables as tables
    from autoselect.report.tables.model_tables import aligned

    width = max(out().width, 60)
    rows = diagnosis.layer_statistics
    print_lines((tables.facts_line(diagnosis.facts),))
    suspects = tables.suspect_lines(rows, count=10, width=width)
    print_lines(suspects or ("No node has a measured error.",), title="Largest errors")
    if cures := tables.cure_lines(rows, width=width):
        print_lines(cures, title="Cheapest cures")
    if ablation := tables.ablation_lines(rows, width=width):
        print_lines(ablation, title="Ablation")
    if diagnosis.model_metrics:
        print_lines(aligned(tables.metric_rows(diagnosis.model_metrics), right=(1,)), title="Whole model")
    advice = tables.advice_lines(diagnosis.advice, width=width)
    print_lines(advice or ("Nothing stands out.",), title="Advice")
    _print_files(diagnosis)


def _print_files(diagnosis: Diagnosis) -> None:
    if diagnosis.directory is None:
        print_lines(("", "No files were kept; --output keeps the tables and figures."))
        return
    names = sorted(path.name for path in diagnosis.directory.iterdir() if path.is_file())
    print_lines([f"  {name}" for name in names], title=f"Files in {diagnosis.directory}:")
