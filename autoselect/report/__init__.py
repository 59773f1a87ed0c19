"""What a run found, first as plain rows, then drawn.

It refuses to know workers and to run a model.
"""
