"""Calibrate, build candidates, gather layer statistics; the only importer of the TensorFlow converter."""
