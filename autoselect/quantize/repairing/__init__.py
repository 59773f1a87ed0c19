"""What makes integers more accurate at no float op: ranges, scales, biases. Refuses to judge what it made."""
