"""From a recipe to bytes and their forecast: whole builds, parts, the stitcher.

It refuses to know samples and scores.
"""
