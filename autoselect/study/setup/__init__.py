"""What is settled before the first trial: space, target, baselines, repairs. Refuses to know what trials find."""
