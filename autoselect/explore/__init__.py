"""A page on this machine that asks what-if questions about one run, and has what looks good built and scored.

It refuses to know how anything is forecast, built or scored: ``study.what_if`` answers, the command line works.
"""
