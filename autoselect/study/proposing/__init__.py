"""What to try next: units, forecasts, proposers, the surrogate.

It refuses to know files, workers and the loop.
"""
