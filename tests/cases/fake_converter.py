"""Stands in for the Python of a converter: answers what the child program would, from files beside the model.

``told.json`` says what the model is (``describe``), and how to fail; ``way0.tflite`` and ``way1.tflite`` are what each
way gives. The source's own outputs are those of ``truth.tflite``. What it is asked is added to ``asked.txt``.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

_, task, request_path = sys.argv[1:4]
os.chdir(Path(request_path).parent)
request = json.loads(Path(request_path).read_text())
home = Path(os.environ["FAKE_HOME"])
told = json.loads((home / "told.json").read_text())
with (home / "asked.txt").open("a") as asked:
    asked.write(f"{task} {' '.join(request.get('options', []))}\n")


def answer(reply):
    Path("reply.json").write_text(json.dumps(reply))
    sys.exit(0)


if task == told.get("hangs"):
    (home / "pid").write_text(str(os.getpid()))
    time.sleep(600)
if task in told.get("fails", {}):
    sys.stderr.write("what the converter said\n")
    answer({"error": told["fails"][task]})
if task == told.get("dies"):
    sys.stderr.write("Segmentation fault\n")
    sys.stderr.flush()
    os.abort()
if task == "describe":
    answer(told["describe"])

if task == "run":
    from autoselect.tflite.runner import Runner

    runner = Runner((home / "truth.tflite").read_bytes(), preserve_all_tensors=True)
    perm = told.get("perm", [0, 2, 3, 1])
    with np.load("samples.npz") as stored:
        samples = [
            {
                name: stored[f"{place}/{n}"].transpose(perm)
                if stored[f"{place}/{n}"].ndim == 4
                else stored[f"{place}/{n}"]
                for place, name in enumerate(request["inputs"])
            }
            for n in range(request["samples"])
        ]
    names = {spec.key: name for spec, name in zip(runner.inputs, request["inputs"], strict=True)}
    rows = [runner({key: sample[name] for key, name in names.items()}) for sample in samples]
    np.savez("outputs.npz", **{f"{p}/{n}": one for n, row in enumerate(rows) for p, one in enumerate(row.values())})
    runner({key: samples[0][name] for key, name in names.items()})
    values = {}
    for name, index in told["values"].items():
        value = runner.tensor(index)
        values[name] = value.transpose(0, 3, 1, 2) if value.ndim == 4 else value
    np.savez("values.npz", **{str(place): value for place, value in enumerate(values.values())})
    answer({"values": list(values), "nodes": told["nodes"], "note": ""})
way = home / f"{Path(request['out']).name}.tflite"
if not way.exists():
    answer({"error": "NotImplementedError: no such op"})
out = Path(request["out"]) / "model_float32.tflite"
out.write_bytes(way.read_bytes())
answer({"path": str(out)})
