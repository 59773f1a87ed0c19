"""The windows of a simulated pump and the float model trained on them; knows no quantizer and no runtime.

A process pump is watched by six sensors sampled at 512 Hz. A window of 64 samples (an eighth of a second,
about three turns of the shaft) is classified as healthy or as one of seven faults. Sensors report physical
units, so the channels live on very different scales, and now and then somebody knocks against the casing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

CLASS_NAMES = (
    "healthy",
    "unbalance",
    "misalignment",
    "bearing_wear",
    "looseness",
    "cavitation",
    "blocked_strainer",
    "hot_winding",
)
CHANNEL_NAMES = (
    "discharge_pressure_kpa",
    "winding_temperature_degc",
    "radial_vibration_m_s2",
    "axial_vibration_m_s2",
    "motor_current_a",
    "shaft_speed_rad_s",
)
WINDOW_LENGTH = 64

TRAIN_SEED = 101
CALIBRATION_SEED = 102
SEARCH_SEED = 103
HELDOUT_SEED = 104

CALIBRATION_COUNT = 100
SEARCH_COUNT = 1000
HELDOUT_COUNT = 2000

_MODEL_FILE = "pump_monitor.tflite"

_UNBALANCE, _MISALIGNMENT, _BEARING, _LOOSENESS, _CAVITATION, _STRAINER, _WINDING = range(1, len(CLASS_NAMES))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """Operating state of each window; every array has shape (count, 1) except the two time grids.

    Attributes:
        label: Class index.
        severity: Fault severity, 0 (nothing yet) to 1.
        load: Hydraulic load, 0 to 1.
        speed_rad_s: Mean shaft speed.
        time_s: Shape (1, WINDOW_LENGTH), seconds since the window began.
        angle_rad: Shape (count, WINDOW_LENGTH), shaft angle.
    """

    label: np.ndarray
    severity: np.ndarray
    load: np.ndarray
    speed_rad_s: np.ndarray
    time_s: np.ndarray
    angle_rad: np.ndarray

    def degree(self, fault: int) -> np.ndarray:
        """Return the severity of one fault, zero in windows of another class; shape (count, 1)."""
        return np.where(self.label == fault, self.severity, 0.0)


def make_windows(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate labelled sensor windows.

    Only ``Generator.random`` and ``Generator.standard_normal`` are drawn from, and every reading is rounded
    to the sensors' resolution (1/1024 of a unit), so a seed gives the same windows on every supported numpy.

    Returns:
        Windows of shape (count, 64, 1, 6), float32, in the units named by ``CHANNEL_NAMES``, and their class
        indices of shape (count,), int64, about equally frequent.

    Raises:
        ValueError: If ``count`` is less than 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    machine = _draw_machine(rng, count)
    knock = _knocks(rng, machine)
    channels = (
        _discharge_pressure(rng, machine),
        _winding_temperature(rng, machine),
        _radial_vibration(rng, machine) + knock,
        _axial_vibration(rng, machine) + 0.6 * knock,
        _motor_current(rng, machine),
        _shaft_speed(rng, machine),
    )
    # Sensors have 1,024 steps per unit: they hide last-bit differences between math libraries.
    readings = np.round(np.stack(channels, axis=-1) * 1024.0) / 1024.0
    return readings[:, :, np.newaxis, :].astype(np.float32), machine.label[:, 0]


def training_windows(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first ``count`` training windows and labels, shaped as by ``make_windows``."""
    return make_windows(_generator(TRAIN_SEED), count)


def calibration() -> Iterator[list[np.ndarray]]:
    """Yield 100 inputs as a ``representative_dataset`` does: lists of one array of shape (1, 64, 1, 6)."""
    windows, _ = make_windows(_generator(CALIBRATION_SEED), CALIBRATION_COUNT)
    for window in windows:
        yield [window[np.newaxis]]


def search_samples() -> Iterator[tuple[np.ndarray, int]]:
    """Yield 1000 pairs of a window, shape (64, 1, 6), and its class, to compare candidates on."""
    return _pairs(SEARCH_SEED, SEARCH_COUNT)


def heldout_samples() -> Iterator[tuple[np.ndarray, int]]:
    """Yield 2000 pairs of a window, shape (64, 1, 6), and its class, which no search may see."""
    return _pairs(HELDOUT_SEED, HELDOUT_COUNT)


def model_path() -> Path:
    """Path of the float model in the installed package."""
    return Path(str(resources.files("autoselect.embedded").joinpath(_MODEL_FILE)))


def model_bytes() -> bytes:
    """Return the float model: one input of shape (batch, 64, 1, 6), one output of shape (batch, 8)."""
    return resources.files("autoselect.embedded").joinpath(_MODEL_FILE).read_bytes()


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _pairs(seed: int, count: int) -> Iterator[tuple[np.ndarray, int]]:
    windows, labels = make_windows(_generator(seed), count)
    for window, label in zip(windows, labels, strict=True):
        yield window, int(label)


def _draw_machine(rng: np.random.Generator, count: int) -> _Machine:
    label = np.floor(rng.random((count, 1)) * len(CLASS_NAMES)).astype(np.int64)
    severity = 0.1 + 0.9 * rng.random((count, 1))
    load = rng.random((count, 1))
    speed_rad_s = 156.5 - 3.0 * load + 0.4 * rng.standard_normal((count, 1))
    time_s = np.arange(WINDOW_LENGTH)[np.newaxis] / 512.0  # Hz
    angle_rad = speed_rad_s * time_s + _phase(rng, count)
    return _Machine(
        label=label, severity=severity, load=load, speed_rad_s=speed_rad_s, time_s=time_s, angle_rad=angle_rad
    )


def _phase(rng: np.random.Generator, count: int) -> np.ndarray:
    return 2.0 * math.pi * rng.random((count, 1))


def _noise(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    return rng.standard_normal(machine.angle_rad.shape)


def _per_window(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    return rng.standard_normal(machine.load.shape)


def _harmonic(rng: np.random.Generator, machine: _Machine, order: float) -> np.ndarray:
    """Return a sine at a multiple of the shaft speed, at a random phase; shape (count, WINDOW_LENGTH)."""
    return np.asarray(np.sin(order * machine.angle_rad + _phase(rng, len(machine.load))))


def _discharge_pressure(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    drift = 4.0 * _per_window(rng, machine)
    blade_pass = 0.6 * _harmonic(rng, machine, 5.0)
    strainer = -30.0 * machine.degree(_STRAINER)
    vapour = 2.0 * machine.degree(_CAVITATION) * _noise(rng, machine)
    pressure: np.ndarray = (
        205.0 + drift - 25.0 * machine.load + blade_pass + strainer + vapour + 0.3 * _noise(rng, machine)
    )
    return pressure


def _winding_temperature(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    ambient = 22.0 + 3.0 * _per_window(rng, machine)
    rise = 24.0 + 20.0 * machine.load + 13.0 * machine.degree(_WINDING)
    return ambient + rise + 0.1 * _noise(rng, machine)


def _radial_vibration(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    running = (0.5 + 1.6 * machine.degree(_UNBALANCE)) * np.sin(machine.angle_rad)
    double = (0.15 + 0.6 * machine.degree(_MISALIGNMENT)) * _harmonic(rng, machine, 2.0)
    half = 1.3 * machine.degree(_LOOSENESS) * _harmonic(rng, machine, 0.5)
    rough = (0.3 + 1.0 * machine.degree(_CAVITATION)) * _noise(rng, machine)
    return np.asarray(running + double + half + rough + _bearing_ringing(rng, machine))


def _axial_vibration(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    running = 0.2 * _harmonic(rng, machine, 1.0)
    double = (0.1 + 1.2 * machine.degree(_MISALIGNMENT)) * _harmonic(rng, machine, 2.0)
    rough = (0.25 + 0.6 * machine.degree(_CAVITATION)) * _noise(rng, machine)
    return np.asarray(running + double + rough + 0.4 * _bearing_ringing(rng, machine))


def _bearing_ringing(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    """Return the decaying ring after each roller passes the damaged spot (3.58 times a turn), m/s2."""
    passes = 3.58 * machine.angle_rad / (2.0 * math.pi) + rng.random(machine.load.shape)
    since_pass_s = np.mod(passes, 1.0) * 2.0 * math.pi / (3.58 * machine.speed_rad_s)
    ring = np.exp(-since_pass_s / 0.003) * np.sin(2.0 * math.pi * 190.0 * since_pass_s)
    return np.asarray(3.0 * machine.degree(_BEARING) * ring)


def _motor_current(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    ripple = 0.08 + 0.25 * machine.degree(_WINDING)
    mains = ripple * np.sin(2.0 * math.pi * 100.0 * machine.time_s + _phase(rng, len(machine.load)))
    starved = -1.2 * machine.degree(_STRAINER)
    mean = 9.0 + 5.0 * machine.load + 0.3 * _per_window(rng, machine)
    return np.asarray(mean + starved + mains + 0.08 * _noise(rng, machine))


def _shaft_speed(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    hunting = 0.6 * machine.degree(_LOOSENESS) * np.sin(0.5 * machine.angle_rad)
    return machine.speed_rad_s + hunting + 0.15 * _noise(rng, machine)


def _knocks(rng: np.random.Generator, machine: _Machine) -> np.ndarray:
    """Return a rare, decaying blow to the casing, m/s2; shape (count, WINDOW_LENGTH)."""
    hit = rng.random(machine.load.shape) < 0.04
    peak = 1.0 + 3.0 * rng.random(machine.load.shape)
    since_hit_s = machine.time_s - 0.1 * rng.random(machine.load.shape)
    ring = np.exp(-np.abs(since_hit_s) / 0.006) * np.cos(2.0 * math.pi * 150.0 * since_hit_s)
    return np.where(hit & (since_hit_s >= 0.0), peak * ring, 0.0)
