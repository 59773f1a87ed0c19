"""What the trials come to: front, picks, held-out scores, reasons, files.

It refuses to propose candidates.
"""
