"""The page ``report.html`` from plain rows.

It refuses to compute figures of merit, or to run a model.
"""
