"""Workers on many machines, reached through a Dask scheduler; the only room that imports ``distributed``.

It refuses to know what the jobs do.
"""
