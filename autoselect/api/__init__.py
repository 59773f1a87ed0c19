"""The Python API: the functions behind the commands, with the same names."""

from autoselect.api.models import build, evaluate, inspect, pick
from autoselect.api.searching import demo, resume, search

__all__ = ["build", "demo", "evaluate", "inspect", "pick", "resume", "search"]
