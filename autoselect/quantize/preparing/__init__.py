"""From a float model to one that can be built from: names, normal form, ranges, nodes.

It refuses to know recipes.
"""
