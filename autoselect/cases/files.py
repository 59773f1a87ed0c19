"""Where the files of a case lie; knows paths, not what is in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FLOAT = "float"
"""Stands for the float model where a candidate's file is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFiles:
    """The files of a case: what a search works on while it runs."""

    root: Path

    @property
    def float_model(self) -> Path:
        """The float model."""
        return self.root / "float.tflite"

    @property
    def integer_model(self) -> Path:
        """The integer model that another quantizer made, where one is given."""
        return self.root / "integer.tflite"

    @property
    def prepared(self) -> Path:
        """Calibrated model, names and layer table."""
        return self.root / "prepared"

    @property
    def evidence(self) -> Path:
        """What repairs were measured by: means, ranges, the equalized model; and builds that only some recipes want."""
        return self.root / "evidence"

    @property
    def scoring(self) -> Path:
        """Metric or evaluator, and penalty weights, pickled."""
        return self.root / "scoring.pkl"

    def samples(self, part: str) -> Path:
        """Folder of samples: ``calibration``, ``evaluation`` or ``heldout``."""
        return self.root / "samples" / part

    def split(self, part: str) -> Path:
        """Which samples belong to ``search`` and ``heldout``."""
        return self.root / "samples" / f"{part}.json"

    def reference(self, part: str) -> Path:
        """Outputs of the float model on a part."""
        return self.root / "reference" / part

    def candidate(self, sha256: str) -> Path:
        """A built candidate, or the float model."""
        return self.float_model if sha256 == FLOAT else self.root / "candidates" / f"{sha256}.tflite"

    @property
    def seen(self) -> Path:
        """What was seen of the target's chips before the search."""
        return self.root / "chips.json"

    def compiled(self, sha256: str, chip: str) -> Path:
        """What a chip's compiler made of a candidate."""
        return self.root / "compiled" / chip / f"{sha256}.tflite"

    def emulated(self, sha256: str, chip: str) -> Path:
        """The evidence of a candidate on the emulation of a chip, with the numbers of its search samples."""
        return self.root / "emulated" / chip / f"{sha256}.npz"

    def plain_kernels(self, sha256: str) -> Path:
        """There for a model that runs without delegates, since it did not repeat its outputs with them."""
        return self.root / "plain_kernels" / sha256

    def rows(self, sha256: str, part: str = "search") -> Path:
        """The metric's evidence of a candidate on the samples of a part."""
        return self.root / "rows" / part / f"{sha256}.npy"

    def judging(self, part: str) -> Path:
        """How the rows of an evaluator make a score on a part, pickled; the float model or the first one tells."""
        return self.root / "judging" / f"{part}.pkl"

    @property
    def evaluator_ends(self) -> Path:
        """The least and the largest value of the float model's inputs and outputs in each run of the evaluator."""
        return self.root / "evaluator_ends.npz"

    def fidelity_rows(self, sha256: str, part: str = "search") -> Path:
        """How close each of a candidate's outputs on the samples of a part is to the float model's, in dB."""
        return self.root / "fidelity_rows" / part / f"{sha256}.npy"

    @property
    def schedule(self) -> Path:
        """The order in which racing candidates see the search samples."""
        return self.root / "schedule.npz"
