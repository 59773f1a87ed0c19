"""A listener that writes a search to Weights & Biases: each trial as one point.

with wandb.init(project="quantization") as tracked:
    run = autoselect.search(model, calibration=..., evaluation=..., listener=WandbListener(tracked))
    tracked.save(str(run.directory / "report.html"))
"""

from dataclasses import asdict

from autoselect import events


class WandbListener:
    def __init__(self, tracked) -> None:
        self._tracked = tracked

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.TrialFinished):
            # Trials of several workers may end in another order; their number is a figure like the others.
            self._tracked.log({name: value for name, value in asdict(event).items() if value is not None})
        elif isinstance(event, events.Warned):
            self._tracked.alert(title="autoselect", text=event.message)
