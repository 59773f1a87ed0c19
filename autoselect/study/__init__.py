"""The search itself: ask, build, score, tell; what is tried, recorded and chosen. The only importer of Optuna.

It refuses to know pages and pictures. It is called ``study``, not ``search``: ``autoselect.search`` is the function.
"""
