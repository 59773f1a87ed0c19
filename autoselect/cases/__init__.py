"""A case: a model, its calibration and its samples, made ready for the workers, and what workers do with them.

Everything that builds or scores stands on it: the search, the diagnosis, building and evaluating one model.
"""
