"""The version of the package, and nothing else: the build reads it without importing anything."""

__version__ = "1.0.0"
