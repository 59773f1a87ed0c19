"""How far each node is from float, measured in one place. Refuses to give advice."""
