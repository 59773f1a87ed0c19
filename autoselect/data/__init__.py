"""What the user brings, made uniform; knows files and callables, not models."""
