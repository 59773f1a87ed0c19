"""The page ``report.html`` from plain rows. Refuses to compute figures of merit, or to run a model."""
