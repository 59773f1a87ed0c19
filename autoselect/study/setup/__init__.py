"""What is settled before the first trial: space, target, baselines, repairs.

It refuses to know what trials find.
"""
