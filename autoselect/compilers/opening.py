"""The one place that knows which compiler a target has."""

from __future__ import annotations

from autoselect.compilers.compiler import ChipCompiler
from autoselect.compilers.litert_plugin import PluginCompiler
from autoselect.compilers.vela import VelaCompiler
from autoselect.domain.targets import LitertPlugin, Target, Vela
from autoselect.errors import UsageError


def compiler_of(target: Target) -> ChipCompiler:
    """The compiler of a target.

    Raises:
        UsageError: If its profile names none.
    """
    if isinstance(target.compiler, Vela):
        return VelaCompiler(target)
    if isinstance(target.compiler, LitertPlugin):
        return PluginCompiler(target)
    raise UsageError(f"Target {target.name!r} has no compiler. Choose one with a [compiler], such as ethos-u55-128.")
