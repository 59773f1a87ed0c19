"""Plain rows and lines of text.

It refuses to draw and to print.
"""
