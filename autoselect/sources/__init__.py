"""From what a user brings to one float TFLite model.

It refuses to know calibration and quantization: it runs a model only to learn shapes and to prove that outputs stay.
"""
