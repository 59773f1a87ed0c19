"""Rewrites of models: from the file as it is given to what quantizers are given, each with what it says of itself.

It refuses to know samples, recipes and candidates.
"""
