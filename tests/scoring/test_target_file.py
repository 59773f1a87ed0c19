from __future__ import annotations

from pathlib import Path

import pytest

from autoselect.domain.targets import Precision
from autoselect.errors import UsageError
from autoselect.scoring.target_file import read_target, target_hash

BUNDLED = (
    "edgetpu",
    "ethos-u55-128",
    "ethos-u65-256",
    "ethos-u85-256",
    "hexagon",
    "integer-only",
    "litert-cpu",
    "tflm",
)

PROFILE = """
schema_version = 1
name = "own"
why = "A test."
unit = "cycles"
segments = "any"
crossing = { fixed = 1.0, per_byte = 2.0 }

[accelerator]
name = "npu"
int8 = { ops = ["CONV_2D"], per_mac = 0.5, per_element = 0.25, per_mac_of = { CONV_2D = 3.0 } }

[host]
name = "cpu"
float = { ops = "all", per_mac = 4.0, per_element = 2.0 }

[[reject]]
ops = ["ADD"]
precisions = ["float"]
by = "runtime"
why = "No float ADD."
"""


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_profile_is_read_by_its_name(name: str) -> None:
    assert read_target(name).name == name


def test_a_file_of_ones_own_is_read_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(PROFILE)
    target = read_target(str(tmp_path / "own.toml"))
    assert target.accelerator is not None
    found = target.accelerator.kernels[Precision.INT8]
    assert (found.ops, found.per_mac, found.per_element) == (frozenset({"CONV_2D"}), 0.5, 0.25)
    assert found.per_mac_of == {"CONV_2D": 3.0}
    assert target.host.kernels[Precision.FLOAT].ops is None
    assert (target.crossing_fixed, target.crossing_per_byte) == (1.0, 2.0)
    assert (target.io_type, target.per_channel, target.shares, target.compiler) == (None, True, None, None)
    assert [(r.ops, r.precisions, r.by) for r in target.rules] == [
        (frozenset({"ADD"}), frozenset({Precision.FLOAT}), "runtime")
    ]
    assert not target.runs_hybrid


WRONG = {
    "unknown op": ('["CONV_2D"]', '["CONV2D"]', r"accelerator\.int8\.ops\.0: there is no TensorFlow Lite op 'CONV2D'"),
    "unknown op in a rule": ('["ADD"]', '["ADDD"]', r"reject\.0\.ops\.0: .*'ADDD'"),
    "negative cost": ("per_mac = 4.0", "per_mac = -4.0", r"host\.float\.per_mac: .*greater than or equal to 0"),
    "negative crossing": ("per_byte = 2.0", "per_byte = -1", r"crossing\.per_byte: .*greater than or equal to 0"),
    "missing rule": ('segments = "any"', "", r"segments: .*required"),
    "unknown segment rule": ('"any"', '"some"', r"segments: .*'any', 'scheduled', 'leading' or 'none'"),
    "missing host": ("[host]", "[hosts]", r"hosts?: "),
    "unknown key": ("unit =", "units =", r"units?: "),
    "a rule without a reason": ('why = "No float ADD."', "", r"reject\.0\.why: .*required"),
    "none with an accelerator": ('"any"', '"none"', r"segments: expected 'none' without an accelerator"),
}


@pytest.mark.parametrize(("old", "new", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_by_its_key_path(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in PROFILE
    (tmp_path / "own.toml").write_text(PROFILE.replace(old, new, 1))
    with pytest.raises(UsageError, match=words) as caught:
        read_target(str(tmp_path / "own.toml"))
    assert caught.value.exit_code == 2


def test_an_unknown_target_gets_the_nearest_names() -> None:
    with pytest.raises(UsageError, match=r"'ethos-u55-256'.*Did you mean 'ethos-u"):
        read_target("ethos-u55-256")


def test_the_hash_follows_what_the_profile_says_not_how(tmp_path: Path) -> None:
    first, second, other = (tmp_path / f"{i}.toml" for i in "abc")
    first.write_text(PROFILE)
    second.write_text("# a remark\n" + PROFILE)
    other.write_text(PROFILE.replace("4.0", "5.0"))
    assert target_hash(str(first)) == target_hash(str(second)) != target_hash(str(other))
