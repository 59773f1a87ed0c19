"""An ``adb`` for the PATH with devices that are folders: their shell is this machine's, ``/data/local/tmp`` a folder.

Its ``benchmark_model`` prints a recorded output with times that depend on the model's size and on how often it ran.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

RECORDED = Path(__file__).resolve().parent / "tflite" / "benchmark_model"

ADB = """#!{python} -SE
import json, pathlib, shutil, subprocess, sys

root = pathlib.Path({root!r})
state = json.loads((root / "state.json").read_text())
devices, words = state["devices"], sys.argv[1:]
with (root / "asked.jsonl").open("a") as log:
    print(json.dumps(words), file=log)
if words == ["devices"]:
    print("* daemon not running; starting now at tcp:5037", file=sys.stderr)
    print("List of devices attached")
    print("".join(f"{{name}}\\t{{told}}\\n" for name, told in devices.items()))
    sys.exit(0)
assert words[0] == "-s", words
serial, verb, *rest = words[1:]
starts = root / "starts"
if devices.get(serial) != "device" or starts.exists() and len(starts.read_text()) >= state["lost_after"]:
    sys.exit(f"error: device '{{serial}}' not found")
here = lambda text: text.replace("/data/local/tmp", str(root / "tmp"))
if verb == "get-state":
    print("device")
elif verb == "push":
    if state["full"]:
        sys.exit("adb: error: failed to copy: remote couldn't create file: No space left on device")
    shutil.copy(rest[0], here(rest[1]))
    print(f"{{rest[0]}}: 1 file pushed")
elif verb == "shell":
    (command,) = rest
    done = subprocess.run(["sh", "-c", here(command)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(done.stdout.replace(str(root / "tmp"), "/data/local/tmp"), end="")
    print(done.stderr, end="", file=sys.stderr)
    sys.exit(done.returncode if state["tells_exit_codes"] else 0)
else:
    sys.exit(f"adb: unknown command {{verb}}")
"""

TOOL = """#!{python} -SE
import json, pathlib, re, sys

root = pathlib.Path({root!r})
state = json.loads((root / "state.json").read_text())
(graph,) = [word.removeprefix("--graph=") for word in sys.argv if word.startswith("--graph=")]
content = pathlib.Path(graph).read_bytes()
with (root / "starts").open("a") as log:
    log.write(".")
number = len((root / "starts").read_text())
size = len(content)
kind = state["outputs"].get(str(size), state["output"])
if kind == "killed":
    sys.exit(139)
text = (pathlib.Path({recorded!r}) / f"{{kind}}.txt").read_text().replace("MODEL", graph)
if kind == "percentiles":
    before, last, after = text.rpartition("median=2036")
    text = f"{{before}}median={{size * (1000 + number) // 1000}}{{after}}"
print(text, end="", file=sys.stderr)
sys.exit(1 if "Benchmarking failed" in text else 0)
"""
GETPROP = """#!/bin/sh
case $1 in ro.product.model) echo Pixel 7;; ro.build.version.release) echo 14;; esac
"""
DEFAULTS = {
    "devices": {"R58M": "device"},
    "output": "percentiles",
    "outputs": {},
    "lost_after": 1_000_000,
    "full": False,
    "tells_exit_codes": True,
}


class FakeAdb:
    """A folder for the PATH.

    Args:
        root: New; its folder ``bin`` is for the PATH.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.storage = root, root / "bin", root / "tmp"
        for made in (self.folder, self.storage):
            made.mkdir(parents=True)
        self.set()
        names = {"python": sys.executable, "root": str(root), "recorded": str(RECORDED)}
        getprop = self.folder / "getprop"  # of the device, whose shell has our PATH
        for path, text in ((self.folder / "adb", ADB), (self.storage / "benchmark_model", TOOL), (getprop, GETPROP)):
            path.write_text(text.format(**names), encoding="utf-8")
            path.chmod(0o755)

    def set(self, **changes: object) -> None:
        """Make it behave otherwise: see ``DEFAULTS``."""
        (self.root / "state.json").write_text(json.dumps(DEFAULTS | changes), encoding="utf-8")

    def asked(self) -> list[list[str]]:
        """The words of every call so far."""
        path = self.root / "asked.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
