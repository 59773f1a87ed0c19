"""Writes mixed models of many nets: whole ones in each form, and drawn mixes of 8 and 16 bits, hybrid and float."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import forecasts
import nursery
import test_int16
import zoo

from autoselect.domain.recipe import Recipe

MIXES = 8


def nets(folder: Path) -> Iterator[tuple[str, Callable[[], zoo.Prepared]]]:
    """The nets of the tests by name: small ones of single ops, Keras nets and the nursery's."""
    for name in ("branches", "composed", "endless", "masked", "padded", "shared_bias"):
        yield name, getattr(test_int16, name)
    for name in ("cnn", "lstm", "two_inputs", "mobilenet_v3_small", "deep_conv_lstm"):
        yield name, lambda name=name: getattr(zoo, name)().prepared  # type: ignore[misc]
    for name in nursery.NETS:
        yield name.replace(",", "").replace(" ", "_"), lambda name=name: _of_nursery(name, folder)  # type: ignore[misc]


def _of_nursery(name: str, folder: Path) -> zoo.Prepared:
    return zoo.prepare(nursery.grown(name, folder).tflite.read_bytes())


def main() -> None:
    """Write the models into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nets", type=int, help="Only so many of the first nets.")
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as grown:
        for name, make in islice(nets(Path(grown)), options.nets):
            prepared = make()
            names = frozenset(forecasts.escaped(node.name) for node in prepared.nodes)
            whole = [
                Recipe(),
                Recipe(int16_nodes=names),
                Recipe(denylisted_nodes=names),
                Recipe(denylisted_nodes=names, fallback="float"),
            ]
            for number, recipe in enumerate([*whole, *forecasts.mixed_recipes(prepared.nodes, Recipe(), MIXES, 0)]):
                content = prepared.builder.build(recipe).content
                (folder / f"{name}_{number:02}.tflite").write_bytes(content)
            print(name, flush=True)


if __name__ == "__main__":
    main()
