"""Plain rows and lines of text. Refuses to draw and to print."""
