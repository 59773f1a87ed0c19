"""The run folder: manifest, records, candidates, cache, and reading it all back.

It refuses to know what the figures in it mean.
"""
