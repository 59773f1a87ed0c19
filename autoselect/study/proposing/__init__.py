"""What to try next: atoms, forecasts, proposers, the surrogate.

It refuses to know files, workers and the loop.
"""
