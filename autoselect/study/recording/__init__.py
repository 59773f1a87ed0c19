"""What was tried: the Optuna study, its journal, each trial as a record. Refuses to know why it was proposed."""
