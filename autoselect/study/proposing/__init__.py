"""What to try next: atoms, forecasts, proposers, the surrogate. Refuses to know files, workers and the loop."""
