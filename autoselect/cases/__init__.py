"""A case: a model, its calibration and its samples, made ready for the workers, and what workers do with them.

Everything that builds or scores stands on it: the search, the diagnosis, building and evaluating one model.
``prepare`` runs in the main process and sends ``prepare_jobs`` to the workers; the search sends ``build_jobs``,
``score_jobs`` and ``race_jobs``. ``open_case`` is what all jobs of a worker share.
"""
