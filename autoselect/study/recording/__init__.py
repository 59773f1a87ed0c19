"""What was tried: the Optuna study, its journal, each trial as a record.

It refuses to know why it was proposed.
"""
