"""What a search costs beside inference, and against the Quantization Debugger guide's own loop."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real_models"))
import loaders

import autoselect
from autoselect.cases.events import Event, StageStarted, TrialFinished

SAMPLE_COUNT = 200


class Clock:
    """Notes when stages begin and trials end."""

    def __init__(self) -> None:
        """Start."""
        self.begun = time.perf_counter()
        self.stages: dict[str, float] = {}
        self.first_trial: float | None = None
        self.trials_end = float("nan")
        self.last = ""

    def __call__(self, event: Event) -> None:
        """Take an event."""
        now = time.perf_counter() - self.begun
        if isinstance(event, StageStarted):
            if self.last == "trials":
                self.trials_end = now
            self.stages[event.stage], self.last = now, event.stage
        if isinstance(event, TrialFinished) and self.first_trial is None:
            self.first_trial = now


class PeakMemory(threading.Thread):
    """Samples the memory of this process and all its children; shared pages count once (PSS)."""

    def __init__(self, every_seconds: float = 0.2) -> None:
        """Prepare; ``start`` begins. A look takes 12 ms of processor time for each process that has TensorFlow."""
        super().__init__(daemon=True)
        self._every_seconds = every_seconds
        self.peak_bytes = self._since = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        """Sample again and again."""
        me = psutil.Process()
        while not self.stopped.wait(self._every_seconds):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            self.peak_bytes, self._since = max(self.peak_bytes, total), max(self._since, total)

    def taken(self) -> int:
        """The most since this was asked before."""
        found, self._since = self._since, 0
        return found


def search(
    model: Any, name: str, *, trials: int, workers: int, with_memory: bool = True, **options: Any
) -> tuple[dict[str, float], Any]:
    """One search in a new folder; returns its figures and the run. Sampling the memory of many processes takes time."""
    clock, memory = Clock(), PeakMemory()
    if with_memory:
        memory.start()
    with tempfile.TemporaryDirectory() as folder:
        run = autoselect.search(
            model,
            calibration=f"loaders:{name}_calibration",
            evaluation=f"loaders:{name}_evaluation",
            trials=trials,
            workers=workers,
            output=Path(folder) / "run",
            cache=False,
            early_exit=False,  # The cost of trials is asked, also where there is nothing to find.
            listener=clock,
            **options,
        )
    memory.stopped.set()
    total = time.perf_counter() - clock.begun
    tried = run.trials[run.trials.state.isin(["complete", "dropped"]) & ~run.trials.reused.eq(True)]
    scored = tried[tried.inference_seconds > 0]  # The others were scored when repairs were decided.
    figures = {
        "scored candidates": len(scored),
        "start-up until the first candidate is scored, s": clock.first_trial or float("nan"),
        "trials stage, s": clock.trials_end - clock.stages["trials"],
        "pure inference of the trials, s": float(scored.inference_seconds.sum()),
        "whole run, s": total,
        "peak memory of all processes, GiB": memory.peak_bytes / 2**30,
    }
    return figures, run


def beside(figures: dict[str, float]) -> float:
    """Seconds a candidate that are not inference, of one worker."""
    spent = figures["trials stage, s"] - figures["pure inference of the trials, s"]
    return spent / figures["scored candidates"]


def mobilenet_v1(trials: int) -> dict[str, float]:
    """Cost of a candidate without inference, one worker; start-up and memory with two."""
    path = loaders.IMAGENET / "mobilenet_v1_025_224_float.tflite"
    alone, _ = search(path, "imagenet", trials=trials, workers=1, repairs=False)
    repaired, _ = search(path, "imagenet", trials=trials, workers=1)
    plain, _ = search(path, "imagenet", trials=trials, workers=2, repairs=False)
    both, _ = search(path, "imagenet", trials=trials, workers=2)
    return {
        "scored candidates": alone["scored candidates"],
        "beside inference, s a candidate (one worker)": beside(alone),
        "the same with repairs, some in sequence, s": beside(repaired),
        "start-up until the first candidate is scored, s": plain["start-up until the first candidate is scored, s"],
        "the same with repairs tried first, s": both["start-up until the first candidate is scored, s"],
        "peak memory of all processes, GiB": both["peak memory of all processes, GiB"],
    }


def deep_conv_lstm(model: Path, trials: int) -> dict[str, float]:
    """Wall time x workers over pure inference, where inference dominates."""
    figures, _ = search(model, "har", trials=trials, workers=2)
    ratio = figures["trials stage, s"] * 2 / figures["pure inference of the trials, s"]
    return {
        "scored candidates": figures["scored candidates"],
        "trials stage x workers / pure inference": ratio,
        "trials stage, s": figures["trials stage, s"],
        "pure inference of the trials, s": figures["pure inference of the trials, s"],
    }


def mobilenet_v3(candidates: int, trials: int) -> dict[str, float]:
    """Candidates a minute, against the guide's loop: convert, calibrate and score for each candidate."""
    import tf_keras as keras

    keras.utils.set_random_seed(0)
    model = keras.applications.MobileNetV3Small(
        input_shape=(64, 64, 3), weights=None, classes=10, include_preprocessing=False
    )
    x = np.random.default_rng(0).normal(size=(SAMPLE_COUNT * 2, 64, 64, 3)).astype(np.float32)
    y = np.arange(SAMPLE_COUNT * 2) % 10
    calibration = np.random.default_rng(1).normal(size=(100, 64, 64, 3)).astype(np.float32)
    guide = _guide_loop(model, calibration, x[:SAMPLE_COUNT], y[:SAMPLE_COUNT], candidates)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        run = autoselect.search(
            model,
            calibration=calibration,
            evaluation=(x, y),
            trials=trials,
            workers=2,
            output=Path(folder) / "run",
            cache=False,
            early_exit=False,
            repairs=False,
            listener=clock,
        )
    whole = time.perf_counter() - clock.begun
    scored = int((~run.trials.reused & (run.trials.state == "complete")).sum())
    stage = clock.trials_end - clock.stages["trials"]
    return {
        "guide, candidates a minute": 60 / guide,
        "autoselect, candidates a minute (whole run, start-up and held-out check included)": scored * 60 / whole,
        "autoselect, candidates a minute (trials stage)": scored * 60 / stage,
        "ratio (whole run)": scored / whole * guide,
        "ratio (trials stage)": scored / stage * guide,
    }


def _guide_loop(model: Any, calibration: np.ndarray, x: np.ndarray, y: np.ndarray, candidates: int) -> float:
    """Seconds a candidate of the guide's loop: a debugger of its own, then one sample at a time."""
    import tensorflow as tf

    def dataset() -> Iterator[list[np.ndarray]]:
        for sample in calibration:
            yield [sample[None]]

    def debugger(nodes: list[str]) -> Any:
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = dataset
        options = tf.lite.experimental.QuantizationDebugOptions(denylisted_nodes=nodes)
        return tf.lite.experimental.QuantizationDebugger(
            converter=converter, debug_dataset=dataset, debug_options=options
        )

    names = [d["name"].split(":")[0].removeprefix("NumericVerify/") for d in _verified(debugger([]))]
    begun = time.perf_counter()
    for i in range(candidates):
        content = debugger(names[: i + 1]).get_nondebug_quantized_model()
        interpreter = tf.lite.Interpreter(model_content=content)
        interpreter.allocate_tensors()
        feed, fetch = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
        hits = 0
        for sample, label in zip(x, y, strict=True):
            interpreter.set_tensor(feed, sample[None])
            interpreter.invoke()
            hits += int(interpreter.get_tensor(fetch).argmax() == label)
    return (time.perf_counter() - begun) / candidates


def _verified(debugger: Any) -> list[dict[str, Any]]:
    return list(debugger._get_numeric_verify_tensor_details())


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dcl", type=Path, help="DeepConvLSTM made by experiments/deepconvlstm/train.py")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--candidates", type=int, default=5, help="of the guide's loop")
    parser.add_argument("--only", choices=["mobilenet_v1", "deep_conv_lstm", "mobilenet_v3"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    parts = {
        "mobilenet_v1": lambda: mobilenet_v1(arguments.trials),
        "deep_conv_lstm": lambda: deep_conv_lstm(arguments.dcl, arguments.trials),
        "mobilenet_v3": lambda: mobilenet_v3(arguments.candidates, arguments.trials),
    }
    found = {name: part() for name, part in parts.items() if arguments.only in (None, name)}
    for name, figures in found.items():
        print(f"\n{name}")
        for key, value in figures.items():
            print(f"| {key} | {value:.3f} |")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
