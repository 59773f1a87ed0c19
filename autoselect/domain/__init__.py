"""Frozen values and pure functions.

It refuses to know files, processes and every package but NumPy.
"""
