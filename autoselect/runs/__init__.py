"""The run folder: manifest, records, candidates, and reading it all back."""
