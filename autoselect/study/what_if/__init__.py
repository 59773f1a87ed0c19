"""Questions about a run that is over: what a candidate that nobody tried would cost, and probably lose.

It refuses to propose candidates, and to change the run.
"""
