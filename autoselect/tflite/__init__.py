"""The one place that reads, writes and runs TFLite files."""
