"""The Python API: the functions behind the commands, with the same names (``report`` is ``write_report``)."""

from autoselect.api.diagnosing import diagnose
from autoselect.api.evaluating import classification_report, evaluate
from autoselect.api.models import build, inspect, pick
from autoselect.api.reporting import write_report
from autoselect.api.searching import demo, resume, search

__all__ = [
    "build",
    "classification_report",
    "demo",
    "diagnose",
    "evaluate",
    "inspect",
    "pick",
    "resume",
    "search",
    "write_report",
]
