"""What other tools read: recipes, scripts and node data, as plain values and text; writes no file and runs no model."""
