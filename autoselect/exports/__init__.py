"""What other tools read: recipes, scripts and node data, as plain values and text.

It refuses to write files and to run models.
"""
