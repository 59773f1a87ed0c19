"""From a float model to one that can be built from: names, normal form, ranges, nodes. Refuses to know recipes."""
