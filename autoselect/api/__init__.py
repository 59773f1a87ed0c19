"""The Python API: the functions behind the commands, with the same names (``report`` is ``write_report``).

It refuses to know the terminal, and to build or to score anything itself.
"""
