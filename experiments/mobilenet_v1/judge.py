"""What models answer where no search looked, and what they cost; keeps it, so that nothing is built or run twice."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("search_benchmark", "nncf", "real_models")]
import pair  # noqa: E402 - found by the path above
import parts  # noqa: E402
import side_by_side  # noqa: E402
from cases import BenchmarkCase  # noqa: E402
from unseen import opened  # noqa: E402

import autoselect  # noqa: E402
from autoselect.cases import build_jobs  # noqa: E402
from autoselect.isolation.pool import open_pool  # noqa: E402
from autoselect.quantize.preparing import converter  # noqa: E402
from autoselect.runs.files import write_json  # noqa: E402
from autoselect.scoring.class_metrics import Accuracy  # noqa: E402
from autoselect.scoring.paired import PairedDrop, paired_drop  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One model.

    Attributes:
        answers: Classes, shape (n_heldout,).
        search_answers: The same of the search samples; empty where nobody asked.
        costs: ``size_bytes``, ``penalty``, ``float_ops``, and of ``weighted_ops`` how many are ``weighted_int8``.
    """

    answers: np.ndarray
    search_answers: np.ndarray
    costs: Mapping[str, float]


class Judge:
    """Judges models of one case on its held-out samples."""

    def __init__(self, case: BenchmarkCase, folder: Path) -> None:
        self.case, self.folder = case, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.heldout, self.search = (_arrays(case, part) for part in ("unseen", "search"))
        self.float = self.file("float", _content(case))
        self.reference = self.hits(self.float.answers)

    @property
    def count(self) -> int:
        """Of ops that compute."""
        return int(self.float.costs["float_ops"])

    def file(self, name: str, content: bytes) -> Judged:
        """Judge a file under a name of its own, on both parts."""
        if not self._kept(name).exists():
            self._keep(name, content, with_search=True)
        return self._read(name)

    def recipes(self, recipes: Sequence[autoselect.Recipe]) -> list[Judged]:
        """Judge candidates, in their order."""
        keys = [hashlib.sha256(recipe.to_json().encode()).hexdigest()[:16] for recipe in recipes]
        left = {key: one for key, one in zip(keys, recipes, strict=True) if not self._kept(key).exists()}
        if left:
            with tempfile.TemporaryDirectory(prefix="judge-") as work:
                for key, content in _built(self.case, left, Path(work)):
                    self._keep(key, content)
        return [self._read(key) for key in keys]

    def hits(self, answers: Sequence[int] | np.ndarray) -> np.ndarray:
        """1 where an answer on the held-out samples is right, shape (n_heldout, 1)."""
        return (np.asarray(answers) == self.heldout[1]).astype(np.float64)[:, None]

    def drop(self, *answers: np.ndarray) -> PairedDrop:
        """What a model loses against float on the held-out samples; the mean of several."""
        return paired_drop(Accuracy(), np.mean([self.hits(one) for one in answers], axis=0), self.reference)

    def unlike(self, answers: np.ndarray) -> float:
        """Share of the held-out samples that float answers otherwise."""
        return float((answers != self.float.answers).mean())

    def _kept(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _keep(self, key: str, content: bytes, *, with_search: bool = False) -> None:
        with tempfile.TemporaryDirectory() as work:
            path = Path(work) / "model.tflite"
            path.write_bytes(content)
            cut = autoselect.inspect(path)["fragmentation"]
            quantized, weighted = pair.weighted(path)
            found = side_by_side.answers(path, *self.heldout).y_pred.tolist()
            search = side_by_side.answers(path, *self.search).y_pred.tolist() if with_search else []
        costs = {"size_bytes": len(content), "penalty": cut["penalty"], "float_ops": cut["float_ops"]}
        costs |= {"weighted_int8": quantized, "weighted_ops": weighted}
        write_json(self._kept(key), {"answers": found, "search_answers": search, "costs": costs})

    def _read(self, key: str) -> Judged:
        found = json.loads(self._kept(key).read_text(encoding="utf-8"))
        answers = {name: np.array(found[name], dtype=int) for name in ("answers", "search_answers")}
        return Judged(**answers, costs=found["costs"])


def _arrays(case: BenchmarkCase, part: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = list(getattr(parts, f"{case.data}_{part}")())
    return np.stack([x for x, _ in pairs]), np.array([y for _, y in pairs])


def _content(case: BenchmarkCase) -> bytes:
    assert case.model is not None
    return case.model.read_bytes()


def _built(chosen: BenchmarkCase, recipes: Mapping[str, autoselect.Recipe], work: Path) -> Iterator[tuple[str, bytes]]:
    """The files of candidates, as a search builds them."""
    with open_pool(1, log=work / "worker.log", warm_up=converter.import_tensorflow) as pool:
        case = opened(chosen, pool, work / "case")
        for key, recipe in recipes.items():
            reply = pool.call(build_jobs.build, case.files.root, recipe.to_json())
            yield key, case.files.candidate(reply.sha256).read_bytes()
