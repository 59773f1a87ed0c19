"""What the trials come to: front, picks, held-out scores, reasons, files. Refuses to propose candidates."""
