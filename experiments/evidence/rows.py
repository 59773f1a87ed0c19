"""Keeps the rows of evidence of random candidates of the embedded case, which a search removes when it ends."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import autoselect
from autoselect.embedded import calibration, model_path, search_samples
from autoselect.study.finishing import front_files

KEPT = Path(__file__).parent / "results" / "embedded_rows.npz"


def keep(trials: int) -> None:
    found: dict[str, np.ndarray] = {}
    remove = front_files.remove_work

    def keep_rows(root: Path) -> None:
        for kind in ("rows", "fidelity_rows"):
            for path in sorted((root / kind).glob("*.npy")):
                found[f"{kind}/{path.stem}"] = np.load(path)[:, 0]
        remove(root)

    front_files.remove_work = keep_rows
    with tempfile.TemporaryDirectory() as folder:
        run = autoselect.search(
            model_path(),
            calibration=calibration,
            evaluation=search_samples,
            metric="accuracy",
            trials=trials,
            sampler="random",
            racing=False,
            early_exit=False,
            repairs=False,
            workers=1,
            output=Path(folder) / "run",
        )
        table = run.trials
    integer = table[(table.float_ops == 0) & (table.state == "complete")].iloc[0]
    hits = np.stack([found[key] for key in sorted(found) if key.startswith("rows/") and not key.endswith("float")])
    float_hits = next(values for key, values in found.items() if key == "rows/float")
    hardness = -found[f"fidelity_rows/{integer.sha256}"]
    np.savez_compressed(
        KEPT, hits=hits.astype(np.uint8), float_hits=float_hits.astype(np.uint8), hardness=hardness.astype(np.float32)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=30)
    keep(parser.parse_args().trials)
