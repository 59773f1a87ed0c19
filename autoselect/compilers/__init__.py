"""Compilers of chips: whether one is there, which ops of a model it takes, and what it makes of a model.

It refuses to know recipes, searches and accuracy.
"""
