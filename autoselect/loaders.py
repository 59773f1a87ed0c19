"""Samples from where people have them: a folder of images, rows of a Hugging Face or TensorFlow Datasets data set.

What a loader gives goes to ``calibration``, ``evaluation`` or ``heldout``. It can be gone through again and again, and
reads one sample at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from autoselect.errors import DataError

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})

Preprocess = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Samples that are read anew each time they are gone through."""

    begin: Callable[[], Iterator[Any]]

    def __call__(self) -> Iterator[Any]:
        """Start anew."""
        return self.begin()

    __iter__ = __call__


def image_folder(
    folder: str | Path,
    *,
    size: tuple[int, int],
    preprocess: Preprocess | None = None,
    labelled: bool = True,
    mode: str = "RGB",
    dtype: str | None = None,
) -> Loader:
    """Images in one folder for each class, or in one folder without classes.

    Args:
        folder: Its subfolders are the classes, numbered in the order of their names; hidden ones are none. Needs Pillow
            (``pip install pillow``).
        size: Height and width to which images are resized (bilinear, as Pillow does it).
        preprocess: What training did to an image: from uint8 of shape (height, width, channels) to what the model
            wants, ``lambda x: x / 127.5 - 1`` for example. By default the values become float32 from 0 to 255.
        labelled: Give pairs of image and class number; without, images alone, for calibration, also of a folder without
            subfolders.
        mode: Pillow's mode of the images, ``L`` for one channel, ``I`` or ``F`` for one of more
            than 8 bits.
        dtype: What the model's input is of: ``uint8`` if it takes pixels as they are. None for float32.

    Returns:
        Images without a batch axis, or with one for calibration, in the order of their paths.

    Raises:
        DataError: If there is no such folder, it holds no images, or the size, mode or dtype is none.

    Examples:
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from autoselect.loaders import image_folder
        >>> for name in ("cat", "dog"):
        ...     Path("pets", name).mkdir(parents=True)
        ...     Image.new("RGB", (40, 30)).save(f"pets/{name}/1.png")
        >>> [(image.shape, label) for image, label in image_folder("pets", size=(24, 32))]
        [((24, 32, 3), 0), ((24, 32, 3), 1)]
    """
    if np.shape(size) != (2,) or not all(isinstance(side, Integral) for side in size) or min(size) < 1:
        raise DataError(f"expected the height and width of images, such as (96, 128), got {size!r}.")
    _refuse_unknown(mode, dtype)
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"expected a folder of images, got {str(root)!r}, which is none. Check the path.")
    classes = sorted(path.name for path in root.iterdir() if path.is_dir() and not _is_hidden(Path(path.name)))
    numbers = {name: number for number, name in enumerate(classes)}
    files = (path for path in _files(root) if path.suffix.lower() in IMAGE_SUFFIXES)
    paths = sorted(path for path in files if not _is_hidden(path.relative_to(root)))
    if labelled:
        paths = [path for path in paths if path.parent != root]
    if not paths:
        where = "in one subfolder for each class" if labelled else "in it"
        raise DataError(
            f"expected images {where}, got none in {str(root)!r}. Known endings: {', '.join(sorted(IMAGE_SUFFIXES))}."
        )

    def samples() -> Iterator[Any]:
        for path in paths:
            image = _array(_image(path, size, mode), preprocess, dtype)
            yield (image, numbers[path.relative_to(root).parts[0]]) if labelled else [image[np.newaxis]]

    return Loader(begin=samples)


def _files(root: Path) -> Iterator[Path]:
    """The files below a folder, also behind links.

    Below each of its direct subfolders no folder is walked twice, so that links in a circle end.
    """
    for path in root.iterdir():
        if path.is_dir():
            yield from _files_within(path, {root.resolve()})
        elif path.is_file():
            yield path


def _files_within(folder: Path, seen: set[Path]) -> Iterator[Path]:
    if (here := folder.resolve()) in seen:
        return
    seen.add(here)
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _files_within(path, seen)
        elif path.is_file():
            yield path


def _refuse_unknown(mode: str, dtype: str | None) -> None:
    pillow = _pillow()
    try:
        pillow.new(mode, (1, 1))
    except (ValueError, KeyError) as exc:
        raise DataError(f"expected a mode of Pillow's, such as 'RGB' or 'L', got {mode!r}.") from exc
    try:
        np.dtype(dtype)
    except TypeError as exc:
        raise DataError(f"expected the name of a dtype, such as 'uint8', got {dtype!r}.") from exc


def rows(
    dataset: Iterable[Mapping[str, Any]],
    *,
    inputs: str | Mapping[str, str],
    label: str | None = None,
    preprocess: Preprocess | None = None,
    dtype: str | Mapping[str, str] | None = None,
) -> Loader:
    """Columns of a data set of rows: of Hugging Face's ``datasets``, or of ``tfds.as_numpy``.

    Args:
        dataset: Gives mappings of column to value each time it is gone through.
        inputs: The column of the model's only input, or by input name the column.
        label: The column of the target; None for calibration.
        preprocess: What training did to an input, on the column's value; of several inputs on the dict of them. By
            default it becomes an array as it is.
        dtype: What the model's inputs are of, all or by name: ``bool`` for a mask, ``uint8`` for pixels. None for
            float32, except for integers of 32 or 64 bits, which stay what they are.

    Returns:
        Pairs of input and target, or inputs with a batch axis if there is no ``label``.

    Raises:
        DataError: When gone through, if a row lacks a column.

    Examples:
        >>> from autoselect.loaders import rows
        >>> data = [{"audio": [0.0, 0.5], "word": 3}]
        >>> list(rows(data, inputs="audio", label="word"))
        [(array([0. , 0.5], dtype=float32), 3)]
    """

    def samples() -> Iterator[Any]:
        for row in dataset:
            sample = _sample(row, inputs, preprocess, dtype)
            if label is not None:
                yield sample, _column(row, label)
            elif isinstance(sample, dict):
                yield {name: value[np.newaxis] for name, value in sample.items()}
            else:
                yield [sample[np.newaxis]]

    return Loader(begin=samples)


def _sample(
    row: Mapping[str, Any],
    inputs: str | Mapping[str, str],
    preprocess: Preprocess | None,
    dtype: str | Mapping[str, str] | None,
) -> np.ndarray | dict[str, np.ndarray]:
    by_name, common = (dtype, None) if isinstance(dtype, Mapping) else ({}, dtype)
    if isinstance(inputs, str):
        return _array(_column(row, inputs), preprocess, common)
    values: Any = {name: _column(row, column) for name, column in inputs.items()}
    values = values if preprocess is None else preprocess(values)
    return {name: _array(value, None, by_name.get(name, common)) for name, value in values.items()}


def _column(row: Mapping[str, Any], name: str) -> Any:
    if not hasattr(row, "keys"):
        raise DataError(
            f"expected rows that hold values by the names of columns, got {type(row).__name__}. Of a pandas table pass "
            "table.to_dict('records')."
        )
    if name not in row:
        raise DataError(f"expected the column {name!r}, got {', '.join(map(repr, row))}. Name one of these.")
    return row[name]


def _image(path: Path, size: tuple[int, int], mode: str) -> np.ndarray:
    pillow = _pillow()
    try:
        with pillow.open(path) as opened:
            _refuse_clipping(path, opened, mode)
            resized = opened.convert(mode).resize(size[::-1], pillow.Resampling.BILINEAR)
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as exc:  # SyntaxError is of broken PNG.
        raise DataError(f"The image {path} cannot be read: {exc}. Repair or remove it.") from exc
    pixels = np.asarray(resized)
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("Images are read with Pillow, which is not installed. Run: pip install pillow") from None
    return Image


def _refuse_clipping(path: Path, opened: Any, mode: str) -> None:
    """Pillow makes 255 of all that is larger, and whole numbers of fractions, where it makes 8 bits of more."""
    wide = ("I", "F")
    if mode.startswith(wide) or not opened.mode.startswith(wide):
        return
    low, high = opened.getextrema()
    if opened.mode.startswith("F") or low < 0 or high > 255:
        raise DataError(
            f"The image {path} has values from {low} to {high} (Pillow's mode {opened.mode}), of which mode {mode!r} "
            "would keep whole numbers up to 255. Read it with mode='I' or 'F', and bring the values down in "
            "`preprocess`."
        )


def _array(value: Any, preprocess: Preprocess | None, dtype: str | None) -> np.ndarray:
    """A value of some dtype; by default floats of 32 bits, and integers of 32 or 64 bits stay what they are."""
    array = np.asarray(value if preprocess is None else preprocess(value))
    if dtype is None:
        return array if array.dtype in (np.int32, np.int64) else array.astype(np.float32)
    with np.errstate(invalid="ignore"):  # What does not survive is refused below.
        cast = array.astype(dtype)
    if cast.dtype.kind in "biu" and not np.array_equal(cast, array):
        raise DataError(
            f"expected values that {cast.dtype} can hold, got {array.dtype} from {array.min()} to {array.max()}. Round "
            "them in `preprocess`, or choose another dtype."
        )
    return cast


def _is_hidden(path: Path) -> bool:
    """Whether a part of its name begins with a dot, as in ``.ipynb_checkpoints``."""
    return any(part.startswith(".") for part in path.parts)
