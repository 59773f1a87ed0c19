"""The pictures, for files and notebooks.

It refuses to know where their numbers come from.
"""
