"""What makes integers more accurate at no float op: ranges, scales, biases.

It refuses to judge what it made.
"""
