"""A listener that writes a search to MLflow: each trial as one step, the stages as tags.

with mlflow.start_run():
    run = autoselect.search(model, calibration=..., evaluation=..., listener=mlflow_listener)
    mlflow.log_artifacts(run.directory)
"""

import itertools

import mlflow

from autoselect import events

numbers = itertools.count(1)


def mlflow_listener(event: events.Event) -> None:
    if isinstance(event, events.TrialFinished) and event.drop is not None:
        figures = {"score": event.score, "drop": event.drop, "size_bytes": event.size_bytes, "penalty": event.penalty}
        mlflow.log_metrics({name: float(value) for name, value in figures.items()}, step=event.number)
    elif isinstance(event, events.StageStarted):
        mlflow.set_tag("stage", event.stage)
    elif isinstance(event, events.Warned):
        mlflow.set_tag(f"warning {next(numbers)}", event.message)
