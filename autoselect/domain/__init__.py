"""Frozen values and pure functions; numpy only."""
