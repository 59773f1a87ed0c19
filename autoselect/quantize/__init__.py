"""Prepare, build, repair and diagnose: from a float model to candidates. The only importer of TensorFlow's quantizer.

It refuses to know metrics, trials and the folder of a run.
"""
