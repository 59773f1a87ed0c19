"""Processes of their own for native code: a crash, a hang or a kill costs one job, never the run."""
