"""Accuracy, size and fragmentation of built models."""
