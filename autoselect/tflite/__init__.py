"""The one place that reads, writes and runs TFLite files.

It refuses to know recipes and samples.
"""
