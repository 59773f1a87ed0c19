"""What a run found, first as plain rows, then drawn; runs no model."""
