"""Accuracy, size and fragmentation of built models.

It refuses to know how a model was built.
"""
