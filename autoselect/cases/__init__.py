"""A case: a model, its calibration and its samples, made ready for the workers, and what workers do with them.

It refuses to know what is tried next: everything that builds or scores stands on it.
"""
