"""Processes of their own for native code: a crash, a hang or a kill costs one job, never the run.

It refuses to know what the jobs do.
"""
