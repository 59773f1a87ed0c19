"""How small models become by searches that may choose fewer levels of weights: Vela's file, loss on unseen samples.

Limits and losses are beyond those of the all-integer model with repairs, whose weights have 8 bits. Each limit has a
search of its own. The member with the smallest compiled file is taken whose bound on the search samples keeps the
limit, paired with the all-integer model, and the same by the expected drop. ``results/searches.csv`` has a row for
each model, seed, limit and way to choose. Runs stay in ``--work``, and a run that is there is not made again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("search_benchmark", "real_models")]
import parts  # noqa: E402 - found by the path above
from cases import BenchmarkCase, all_cases  # noqa: E402

import autoselect  # noqa: E402
from autoselect.scoring.metrics import make_metric  # noqa: E402
from autoselect.scoring.paired import PairedDrop, paired_drop  # noqa: E402
from autoselect.tflite.runner import Runner  # noqa: E402

TARGET = "ethos-u55-128"
BASELINES = 4
"""Trials of a search that scores little beside the all-integer model, plain and with repairs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a model: its case, the metric, and the further drops that are allowed, in the metric's units."""

    case: str
    metric: str
    limits: tuple[float, ...]


ASKED: Mapping[str, Asked] = {
    "mobilenet_pc": Asked("mobilenet_pc", "accuracy", (0.005, 0.01, 0.02)),
    "mobilenet_pc_agreement": Asked("mobilenet_pc", "agreement", (0.005, 0.01, 0.02)),
    "ds_cnn": Asked("ds_cnn", "accuracy", (0.005, 0.01, 0.02)),
    "fsrcnn": Asked("fsrcnn", "psnr", (0.05, 0.1, 0.2)),
}


def run_of(folder: Path, **asked: Any) -> autoselect.Run:
    """The run in a folder, in which weights may have 4 to 8 bits; it is made if it is not there."""
    if not (folder / "summary.json").exists():
        autoselect.search(**asked, weights=4, output=folder, progress=False)
    return autoselect.load_run(folder)


@dataclass(kw_only=True)
class Study:
    """Searches of one model by one metric."""

    name: str
    trials: int
    work: Path
    rows: dict[tuple[str, bytes], np.ndarray] = field(default_factory=dict)

    @property
    def asked(self) -> Asked:
        """What is asked of the model."""
        return ASKED[self.name]

    @property
    def case(self) -> BenchmarkCase:
        """The model and its samples."""
        return all_cases({})[self.asked.case]

    def searched(self, folder: Path, **options: Any) -> autoselect.Run:
        """A run for the model and metric."""
        return run_of(
            folder,
            model=self.case.model,
            **{**self.case.sources, "heldout": f"parts:{self.case.data}_unseen"},
            metric=self.asked.metric,
            target=TARGET,
            objectives="accuracy,flash,penalty",
            **options,
        )

    @cached_property
    def all_integer(self) -> tuple[pd.Series, bytes]:
        """The trial of the all-integer model with all repairs that help, and the model."""
        trials = self.searched(self.work / f"{self.name}-baselines", seed=0, trials=BASELINES).trials
        by_origin = trials.set_index("origin")
        trial = by_origin.loc["baseline:fiq+repairs" if "baseline:fiq+repairs" in by_origin.index else "baseline:fiq"]
        file = self.work / f"{self.name}-all-integer.tflite"
        autoselect.build(
            autoselect.Recipe.from_json(trial["recipe"]),
            model=self.case.model,
            calibration=self.case.sources["calibration"],
            target=TARGET,
            output=file,
        )
        return trial, file.read_bytes()

    def observed(self, which: str, content: bytes) -> np.ndarray:
        """What the metric sees of a model on the ``search`` samples or the ``unseen`` ones."""
        known = self.rows.get((which, content))
        if known is None:
            known = self.rows[which, content] = np.array(list(self._observe(SAMPLES[which](self.case), content)))
        return known

    def _observe(self, samples: Callable[[], Iterator[Any]], content: bytes) -> Iterator[np.ndarray]:
        metric = make_metric(self.asked.metric)
        runner = Runner(content)
        reference = Runner(Path(self.case.model).read_bytes()) if metric.needs_reference else None
        (only,) = runner.inputs
        for values, target in samples():
            value = np.asarray(values, np.float32).reshape(only.shape)
            yield metric.observe(runner(value), target, None if reference is None else reference(value))

    def beyond(self, which: str, content: bytes) -> PairedDrop:
        """How much more a model loses than the all-integer one."""
        pair = (self.observed(which, each) for each in (content, self.all_integer[1]))
        return paired_drop(make_metric(self.asked.metric), *pair)

    def found(self, limit: float, seed: int) -> Iterator[dict[str, Any]]:
        """A row for each way to choose."""
        whole = self.all_integer[0]
        folder = self.work / f"{self.name}-{limit:g}-{seed}"
        run = self.searched(folder, seed=seed, trials=self.trials, max_drop=whole["drop"] + limit)
        for way, member in self._smallest(run, limit):
            content = Path(run.model_path(member["id"])).read_bytes()
            on_search, unseen = self.beyond("search", content), self.beyond("unseen", content)
            yield {
                "model": self.name,
                "seed": seed,
                "limit": limit,
                "by": way,
                "flash_bytes": int(member["flash_bytes"]),
                "share_of_int8": round(member["flash_bytes"] / whole["flash_bytes"], 4),
                "penalty": member["penalty"],
                "float_ops": int(member["float_ops"]),
                "search_drop": on_search.drop,
                "search_bound": on_search.bound,
                "heldout_drop": unseen.drop,
                "heldout_drop_low": unseen.low,
                "heldout_drop_high": unseen.high,
            }

    def _smallest(self, run: autoselect.Run, limit: float) -> Iterator[tuple[str, Any]]:
        allowed = self.all_integer[0]["drop"] + limit
        by_size = [row for _, row in run.front.sort_values("flash_bytes", kind="stable").iterrows()]
        expected = [row for row in by_size if row["expected_drop"] <= allowed]
        yield from (("expected_drop", row) for row in expected[:1])
        for row in expected:
            if self.beyond("search", Path(run.model_path(row["id"])).read_bytes()).bound <= limit:
                yield "drop_bound", row
                break


SAMPLES: Mapping[str, Callable[[BenchmarkCase], Callable[[], Iterator[Any]]]] = {
    "search": lambda case: getattr(parts, case.sources["evaluation"].partition(":")[2]),
    "unseen": lambda case: getattr(parts, f"{case.data}_unseen"),
}
"""Samples with their targets by what they are for."""


def main() -> None:
    """Search all cases and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(ASKED))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--trials", type=int, default=80)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    table = list[dict[str, Any]]()
    for name in options.cases:
        study = Study(name=name, trials=options.trials, work=options.work)
        for seed in options.seeds:
            for limit in study.asked.limits:
                table += study.found(limit, seed)
                pd.DataFrame(table).to_csv(options.output / "searches.csv", index=False)
    print(pd.DataFrame(table).to_string(index=False))


if __name__ == "__main__":
    main()
