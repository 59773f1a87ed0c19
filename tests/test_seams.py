"""Parts of other packages that are not public: each is used in the files named here, and is as it is used.

An upgrade that changes one fails here first, with its name.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "autoselect"

SEAMS = {
    "tensorflow.lite.python": (
        r"tensorflow\.lite\.python",
        {"quantize/preparing/converter.py", "sources/saved_models.py", "exports/plain_tensorflow.py"},
    ),
    "optuna": (r"\._(storage|study_id|trial_id)\b", {"study/recording/optuna_study.py"}),
    "optuna's journal": (r"JournalFileBackend", {"study/recording/optuna_study.py"}),
    "flatbuffers": (
        r"\b(?:self|builder)\.(?:vtables|Bytes|head)\b",
        {"tflite/flatbuffer.py", "tflite/steady_builder.py"},
    ),
    "keras": (r"\._flatten_layers\b", {"sources/recurrent.py"}),
    "loky": (r"loky\.backend", {"isolation/pool.py"}),
    "pebble": (r"\bpebble\b", {"isolation/pool.py"}),
}


@pytest.mark.parametrize("seam", SEAMS)
def test_private_parts_are_used_where_it_is_said(seam: str) -> None:
    pattern, files = SEAMS[seam]
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert users == files


def test_tensorflow() -> None:
    from tensorflow.lite.python import convert
    from tensorflow.lite.python.optimize import calibrator

    taken = inspect.signature(convert.mlir_quantize).parameters
    assert {
        "disable_per_channel",
        "input_data_type",
        "output_data_type",
        "enable_numeric_verify",
        "enable_whole_model_verify",
        "denylisted_nodes",
    } <= set(taken)
    assert issubclass(convert.ConverterError, Exception)
    assert list(inspect.signature(calibrator.Calibrator.calibrate).parameters) == ["self", "dataset_gen"]
    assert len(inspect.signature(calibrator.add_intermediate_tensors).parameters) == 1


def test_optuna(tmp_path: Path) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    study = optuna.create_study(storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal"))))
    study._storage.set_study_system_attr(study._study_id, "name", 1)
    assert study._storage.get_study_system_attrs(study._study_id)["name"] == 1
    trial = study.ask()
    assert study.get_trials()[0]._trial_id == trial._trial_id
    assert list(inspect.signature(JournalFileBackend.append_logs).parameters) == ["self", "logs"]


def test_flatbuffers() -> None:
    import flatbuffers

    builder = flatbuffers.Builder(64)
    builder.StartObject(2)
    builder.PrependUint32Slot(0, 7, 0)
    builder.EndObject()
    assert isinstance(builder.Bytes, bytearray)
    assert builder.Offset() == len(builder.Bytes) - builder.head
    assert len(builder.vtables) == 1


def test_keras() -> None:
    import keras

    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    names = {type(layer).__name__ for layer in keras.Sequential([keras.Input((2,)), inner])._flatten_layers()}
    assert {"Sequential", "Dense"} <= names


def test_loky_and_pebble() -> None:
    from loky.backend.context import LokyContext
    from loky.backend.process import LokyProcess
    from pebble import ProcessExpired, ProcessPool

    assert isinstance(inspect.getattr_static(LokyProcess, "exitcode", None) or LokyProcess.exitcode, property)
    assert callable(LokyContext().Process)
    assert ProcessExpired("gone", code=3).exitcode == 3
    assert {"max_workers", "initializer", "initargs", "context"} <= set(inspect.signature(ProcessPool).parameters)
    assert {"args", "timeout"} <= set(inspect.signature(ProcessPool.schedule).parameters)
