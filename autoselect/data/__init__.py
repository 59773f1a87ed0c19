"""What the user brings to calibrate and to score on, made uniform.

It refuses to know models beyond the shapes and types of their inputs.
"""
