"""From a recipe to bytes and their forecast: whole builds, parts, the stitcher. Refuses to know samples and scores."""
