"""The pictures, for files and notebooks. Refuses to know where their numbers come from."""
