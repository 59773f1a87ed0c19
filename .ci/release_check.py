"""Tries the built wheel as a user gets it, once for each Python that is here: install, demo, a .keras search, examples.

``make release-check`` builds the sdist, and the wheel out of it. Each environment is bare: nothing but the wheel and
what pip fetches for it, as wheels alone, so that no compiler is needed. The table says seconds and sizes; what went
wrong is in the log beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
EXTRAS = ("ethos-u", "qualcomm", "legacy-keras", "litert", "onnx", "torch", "dashboard", "distributed")
EXAMPLES = "blocks_run or files_of_the_readme or commands_of_the_readme or tutorial_runs"
"""The tests that run what the pages show."""
_SEARCH = """
import keras, numpy as np
rng = np.random.default_rng(0)
x = rng.normal(size=(300, 8, 8, 1)).astype("float32")
y = (x.mean(axis=(1, 2, 3)) > 0).astype(int)
net = keras.Sequential([
    keras.Input((8, 8, 1)),
    keras.layers.Conv2D(4, 3, activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(2, activation="softmax"),
])
net.compile("adam", "sparse_categorical_crossentropy")
net.fit(x, y, epochs=3, verbose=0)
net.save("small.keras")
np.savez("calibration.npz", x=x[:100])
np.savez("labelled.npz", x=x[100:], y=y[100:])
"""


def interpreter(version: str) -> str | None:
    """The Python of this version on this machine, on the path or pyenv's, if there is one that runs."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{version}"), *map(str, sorted(folder.glob(f"{version}.*/bin/python")))]
    command = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')"
    for place in filter(None, places):
        done = subprocess.run([place, "-c", command], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return place
    return None


def said(command: list[str], log: Path, cwd: Path, **further: str) -> bool:
    """Whether a command ends well; what it says goes into the log."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with log.open("a", encoding="utf-8") as file:
        file.write(f"\n$ {' '.join(command)}\n")
        file.flush()
        env = {**own, **further}
        return subprocess.run(command, cwd=cwd, env=env, stdout=file, stderr=file, check=False).returncode == 0


def built(folder: Path, log: Path) -> Path:
    """The wheel, built out of the sdist.

    Raises:
        SystemExit: If one of them cannot be built.
    """
    if not said([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)], log, ROOT):
        raise SystemExit(f"The sdist or the wheel cannot be built: see {log}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def steps(wheel: Path, python: str, place: Path, log: Path) -> Iterator[tuple[str, Callable[[], bool]]]:
    """What is tried in one environment, in order."""
    bin_ = place / "env" / "bin"
    work = place / "work"
    work.mkdir(parents=True)
    pip = [str(bin_ / "python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    search = ["search", "small.keras", "--calibration", "calibration.npz", "--evaluation", "labelled.npz"]
    own = {"AUTOSELECT_CACHE_DIR": str(place / "cache"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    yield "environment", lambda: said([python, "-m", "venv", str(place / "env")], log, place)
    yield "install", lambda: said([*pip, str(wheel)], log, place)
    yield "pip check", lambda: said([str(bin_ / "python"), "-m", "pip", "check"], log, place)
    yield "demo", lambda: said([str(bin_ / "autoselect"), "demo"], log, work, **own)
    yield "model", lambda: said([str(bin_ / "python"), "-c", _SEARCH], log, work, **own)
    trials = ["--metric", "accuracy", "--trials", "8", "-o", "keras-run"]
    yield ".keras search", lambda: said([str(bin_ / "autoselect"), *search, *trials], log, work, **own)
    yield "pytest", lambda: said([*pip, "pytest>=8.2"], log, place)
    for name in ("tests", "docs", "search_spaces"):
        shutil.copytree(ROOT / name, place / "pages" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "pyproject.toml", "mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, place / "pages" / name)
    tests = [str(bin_ / "pytest"), "-q", "-p", "no:cacheprovider", "tests/test_docs.py", "-k", EXAMPLES]
    yield "examples", lambda: said(tests, log, place / "pages", **own)


def tried(wheel: Path, version: str, folder: Path) -> Mapping[str, str]:
    """What came of a Python: seconds of each step, and the size of the environment behind the wheel."""
    python = interpreter(version)
    if python is None:
        return {"install": "no such Python here"}
    place, row = folder / version, dict[str, str]()
    place.mkdir(parents=True)
    for name, step in steps(wheel, python, place, place / "log.txt"):
        begun = time.perf_counter()
        ended = step()
        row[name] = f"{time.perf_counter() - begun:.0f} s" if ended else f"FAILED, see {place / 'log.txt'}"
        print(f"{version}: {name}: {row[name]}", flush=True)
        if name == "install":
            row["size"] = f"{_size(place / 'env') / 1e6:,.0f} MB"
        if not ended and name in ("environment", "install"):
            break
    return row


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink())


def resolved(wheel: Path, extra: str, version: str, log: Path) -> bool:
    """Whether an optional part can be installed as wheels alone."""
    source = log.parent / f"{extra}.in"
    source.write_text(f"autoselect[{extra}] @ {wheel.resolve().as_uri()}\n", encoding="utf-8")
    command = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "compile",
        "--quiet",
        "--python-version",
        version,
        "--only-binary",
        ":all:",
        str(source),
    ]
    return said([*command, "--no-python-downloads", "-o", str(source.with_suffix(".txt"))], log, ROOT)


COLUMNS = ("install", "size", "pip check", "demo", ".keras search", "examples")


def main() -> None:
    """Build, try, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", choices=PYTHONS, default=[], help="Repeat it. All by default.")
    parser.add_argument("--folder", type=Path, help="Of environments and logs; a temporary one by default.")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="release-check-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = built(folder / "dist", folder / "build.txt")
    sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in sorted(wheel.parent.iterdir()))
    print(f"{sizes}; logs in {folder}", flush=True)
    rows = {version: tried(wheel, version, folder) for version in options.python or PYTHONS}
    extras = {
        extra: {
            version: resolved(wheel, extra, version, folder / "extras.txt") for version in (PYTHONS[0], PYTHONS[-1])
        }
        for extra in EXTRAS
    }
    print(f"\n| Python | {' | '.join(COLUMNS)} |\n|---{'|---' * len(COLUMNS)}|")
    for version, row in rows.items():
        print(f"| {version} | {' | '.join(row.get(name, '') for name in COLUMNS)} |")
    print(f"\n| extra | resolves to wheels on Python {PYTHONS[0]} | on {PYTHONS[-1]} |\n|---|---|---|")
    for extra, found in extras.items():
        print(f"| {extra} | {' | '.join('yes' if ended else 'NO' for ended in found.values())} |")
    cells = [cell for row in rows.values() for cell in row.values()]
    if "FAILED" in " ".join(cells) or not any(row.get("examples") for row in rows.values()):
        raise SystemExit("At least one step failed, or there is none of these Pythons.")


if __name__ == "__main__":
    main()
