"""The search itself: ask, build, score, tell, archive; samplers and baselines. The only importer of Optuna.

It is called ``study``, not ``search``: ``autoselect.search`` is the function.
"""
