"""How far each node is from float, measured in one place.

It refuses to give advice.
"""
