from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoselect.data.bundled import bundled_directory
from autoselect.domain.targets import LitertPlugin, Memory, Precision, Vela
from autoselect.errors import UsageError
from autoselect.scoring.target_file import lasting_target, read_target, target_hash

BUNDLED = (
    "edgetpu",
    "ethos-u55-128",
    "ethos-u65-256",
    "ethos-u85-256",
    "integer-only",
    "litert-cpu",
    "qualcomm-sa8255",
    "qualcomm-sa8295",
    "qualcomm-sm8350",
    "qualcomm-sm8450",
    "qualcomm-sm8475",
    "qualcomm-sm8550",
    "qualcomm-sm8650",
    "qualcomm-sm8735",
    "qualcomm-sm8750",
    "qualcomm-sm8845",
    "qualcomm-sm8850",
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

[accelerator.int8]
ops = ["CONV_2D"]
per_mac = 0.5
per_element = 0.25
per_mac_of = { CONV_2D = 3.0 }
per_weight_of = { CONV_2D = 7.0 }

[host]
name = "cpu"
float = { ops = "all", per_mac = 4.0, per_element = 2.0 }

[[reject]]
ops = ["ADD"]
precisions = ["float"]
by = "runtime"
why = "No float ADD."
"""


PLUGIN = """
[compiler]
kind = "litert-plugin"
manufacturer = "Qualcomm"
soc_model = "SM8750"
"""


def test_the_bundled_profiles_are_these() -> None:
    assert tuple(sorted(path.stem for path in (bundled_directory() / "targets").glob("*.toml"))) == BUNDLED


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_profile_is_read_by_its_name(name: str) -> None:
    assert read_target(name).name == name


def test_a_file_of_ones_own_is_read_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(PROFILE)
    target = read_target(str(tmp_path / "own.toml"))
    assert target.accelerator is not None
    found = target.accelerator.kernels[Precision.INT8]
    assert (found.ops, found.per_mac, found.per_element) == (frozenset({"CONV_2D"}), 0.5, 0.25)
    assert (found.per_mac_of, found.per_weight_of) == ({"CONV_2D": 3.0}, {"CONV_2D": 7.0})
    assert target.host.kernels[Precision.FLOAT].ops is None
    assert (target.crossing_fixed, target.crossing_per_byte) == (1.0, 2.0)
    assert (target.io_type, target.per_channel, target.shares, target.compiler) == (None, True, None, None)
    assert [(r.ops, r.precisions, r.by) for r in target.rules] == [
        (frozenset({"ADD"}), frozenset({Precision.FLOAT}), "runtime")
    ]
    assert not target.runs_hybrid


@pytest.mark.parametrize("name", ["tflm", "ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_the_end_of_an_ssd_detector_runs_on_tensorflow_lite_micro(name: str) -> None:
    """It is a custom op, which a profile names with a prefix, so that a misspelt name is refused."""
    assert read_target(name).host.kernels[Precision.FLOAT].runs("TFLite_Detection_PostProcess")


WRONG = {
    "a custom op without a name": ('["CONV_2D"]', '["custom:"]', r"accelerator\.int8\.ops\.0: .*'custom:'"),
    "unknown op": ('["CONV_2D"]', '["CONV2D"]', r"accelerator\.int8\.ops\.0: there is no TensorFlow Lite op 'CONV2D'"),
    "unknown op in a rule": ('["ADD"]', '["ADDD"]', r"reject\.0\.ops\.0: .*'ADDD'"),
    "negative cost": ("per_mac = 4.0", "per_mac = -4.0", r"host\.float\.per_mac: .*greater than or equal to 0"),
    "negative crossing": ("per_byte = 2.0", "per_byte = -1", r"crossing\.per_byte: .*greater than or equal to 0"),
    "missing rule": ('segments = "any"', "", r"segments: .*required"),
    "unknown segment rule": ('"any"', '"some"', r"segments: .*'any', 'scheduled', 'listed', 'leading' or 'none'"),
    "listed without a compiler": (
        '"any"',
        '"listed"',
        r"segments: expected 'listed' with a compiler of kind litert-pl",
    ),
    "negative piece": ("[host]", "[piece]\nfixed = -1.0\nddr_per_byte = 0.0\n[host]", r"piece\.fixed: .*greater than"),
    "half a piece": ("[host]", "[piece]\nfixed = 1.0\n[host]", r"piece\.ddr_per_byte: .*required"),
    "an unknown kind of compiler": (
        "[host]",
        "[compiler]\nkind = 'gcc'\n[host]",
        r"compiler: .*'vela', 'litert-plugin'",
    ),
    "a compiler without its kind": ("[host]", "[compiler]\nsoc_model = 'X'\n[host]", r"compiler: .*kind"),
    "a key of another kind": (
        "[host]",
        f"{PLUGIN}memory_mode = 'Shared_Sram'\n[host]",
        r"compiler\..*memory_mode: .*no such key",
    ),
    "a plugin without its chip": (
        "[host]",
        "[compiler]\nkind = 'litert-plugin'\nmanufacturer = 'Q'\n[host]",
        r"soc_model",
    ),
    "a plugin whose pieces are not listed": ("[host]", f"{PLUGIN}[host]", r"segments: expected 'listed' .*, got 'any'"),
    "missing host": ("[host]", "[hosts]", r"hosts?: "),
    "unknown key": ("unit =", "units =", r"units?: "),
    "a key that is nearly an optional one": (
        "[host]",
        "[piece]\nfixed = 1.0\nddr_per_byte = 0.0\n[host]\nmax_ranks = 3",
        r"host\.max_ranks: .*'max_rank'\?$",
    ),
    "a cost without an end": ("per_mac = 4.0", "per_mac = inf", r"host\.float\.per_mac: .* 1000000000000, got"),
    "a cost that overflows": ("per_mac = 4.0", "per_mac = 1e308", r"host\.float\.per_mac: .* 1000000000000, got"),
    "a cost that is none": ("per_mac = 4.0", "per_mac = nan", r"host\.float\.per_mac: "),
    "a cost in quotes": ("per_mac = 4.0", "per_mac = '4.0'", r"host\.float\.per_mac: .*valid number, got '4\.0'"),
    "a cost that is a truth": ("per_mac = 4.0", "per_mac = true", r"host\.float\.per_mac: .*valid number, got True"),
    "a rank that is a truth": ("[host]", "[host]\nmax_rank = true", r"host\.max_rank: .*valid integer"),
    "a truth that is a number": ("unit =", "per_channel = 1\nunit =", r"per_channel: .*valid boolean"),
    "a name that lists two": ('name = "own"', 'name = "own,other"', r"name: .*comma"),
    "a name of two lines": ('name = "own"', 'name = "own\\nother"', r"name: .*line"),
    "no name": ('name = "own"', 'name = ""', r"name: .*1 to 100"),
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


def test_a_name_that_is_too_long_for_a_file_is_told() -> None:
    with pytest.raises(UsageError):
        read_target(300 * "a" + ".toml")


def test_an_unknown_target_gets_the_nearest_names() -> None:
    with pytest.raises(UsageError, match=r"'ethos-u55-256'.* 'ethos-u"):
        read_target("ethos-u55-256")


def test_a_path_is_a_file_commas_or_not(tmp_path: Path) -> None:
    path = tmp_path / "a,b.toml"
    path.write_text(PROFILE)
    assert read_target(path) == read_target(str(path))
    assert (target_hash(path), lasting_target(path)) == (target_hash(str(path)), str(path))


def test_the_hash_follows_what_the_profile_says_not_how(tmp_path: Path) -> None:
    first, second, other = (tmp_path / f"{i}.toml" for i in "abc")
    first.write_text(PROFILE)
    second.write_text("# a remark\n" + PROFILE)
    other.write_text(PROFILE.replace("4.0", "5.0"))
    assert target_hash(str(first)) == target_hash(str(second)) != target_hash(str(other))


def test_a_piece_and_a_plugin_are_read_as_they_stand(tmp_path: Path) -> None:
    own = PROFILE.replace('"any"', '"listed"').replace(
        "[host]", f"{PLUGIN}libraries = '/opt/qnn'\n[piece]\nfixed = 100.0\nddr_per_byte = 0.25\n[host]"
    )
    (tmp_path / "own.toml").write_text(own)
    target = read_target(str(tmp_path / "own.toml"))
    assert target.compiler == LitertPlugin(manufacturer="Qualcomm", soc_model="SM8750", libraries="/opt/qnn")
    assert (target.piece_fixed, target.ddr_per_byte, target.segments) == (100.0, 0.25, "listed")
    assert target.asks_compiler


COMPILERS = {
    "an Ethos-U": ("ethos-u55-128", Vela, False),
    "a phone": ("qualcomm-sm8750", LitertPlugin, True),
    "none": ("tflm", type(None), False),
}


@pytest.mark.parametrize(("name", "kind", "decides"), COMPILERS.values(), ids=COMPILERS)
def test_what_a_compiler_decides_hangs_on_its_kind(name: str, kind: type, decides: bool) -> None:
    target = read_target(name)
    assert isinstance(target.compiler, kind)
    assert (target.segments == "listed") is target.asks_compiler is decides


@pytest.mark.parametrize("name", [name for name in BUNDLED if name.startswith("qualcomm-")])
def test_the_chips_of_one_vendor_differ_in_name_and_memory_alone(name: str) -> None:
    target, base = read_target(name), read_target("qualcomm-sm8750")
    assert isinstance(target.compiler, LitertPlugin)
    assert f"qualcomm-{target.compiler.soc_model.lower()}" == name
    assert target.compiler.soc_model in target.why
    assert replace(target, name=base.name, why=base.why, compiler=base.compiler, memory=base.memory) == base
    assert target.memory is not None


def own(tmp_path: Path, text: str, name: str = "own.toml") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_a_profile_that_extends_another_says_only_what_differs(tmp_path: Path) -> None:
    base = read_target("qualcomm-sm8750")
    assert base.accelerator is not None
    name = own(
        tmp_path,
        """
        extends = "qualcomm-sm8750"
        name = "mine"
        per_channel = false

        [compiler]
        libraries = "/opt/qnn"

        [piece]
        fixed = 7.0

        [host.float]
        per_mac = 3.0
        """,
    )
    found = read_target(name)
    assert (found.name, found.per_channel, found.piece_fixed) == ("mine", False, 7.0)
    assert found.compiler == LitertPlugin(manufacturer="Qualcomm", soc_model="SM8750", libraries="/opt/qnn")
    assert found.host.kernels[Precision.FLOAT] == replace(base.host.kernels[Precision.FLOAT], per_mac=3.0)
    same = ("why", "unit", "segments", "accelerator", "crossing_per_byte", "ddr_per_byte", "rules")
    assert [getattr(found, key) for key in same] == [getattr(base, key) for key in same]
    assert found.host.kernels[Precision.INT8] == base.host.kernels[Precision.INT8]


def test_a_profile_may_extend_a_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own(tmp_path, 'extends = "qualcomm-sm8750"\nname = "maker"\nunit = "pence"\n', "maker.toml")
    (tmp_path / "old.toml").write_text(
        (bundled_directory() / "targets" / "tflm.toml").read_text().replace('"tflm"', '"old"')
    )
    name = own(tmp_path, 'extends = "old.toml"\nname = "new"\n')
    monkeypatch.chdir("/")
    assert replace(read_target(name), name="old") == read_target(str(tmp_path / "old.toml"))
    with pytest.raises(UsageError, match="extends no"):
        read_target(own(tmp_path, 'extends = "maker.toml"\nname = "chip"\n', "chip.toml"))


def test_lists_are_taken_in_place_of_those_of_the_base(tmp_path: Path) -> None:
    text = """
        extends = "ethos-u55-128"
        name = "mine"
        reject = []

        [accelerator.int8]
        ops = ["CONV_2D"]
        """
    found, base = read_target(own(tmp_path, text)), read_target("ethos-u55-128")
    assert found.accelerator is not None
    assert base.accelerator is not None
    assert base.rules
    assert found.rules == ()
    assert found.accelerator.kernels[Precision.INT8].ops == {"CONV_2D"}
    assert found.accelerator.kernels[Precision.INT16] == base.accelerator.kernels[Precision.INT16]


EXTENDS = {
    "an unknown base": ('extends = "hexagon"', r"There is no target 'hexagon'"),
    "a base that extends another": (
        'extends = "qualcomm-sm8735"',
        r"extends: expected a profile that extends no other",
    ),
    "no name": ("extends = 1", r"extends: expected a profile that extends no other, got 1"),
    "what then does not fit": ('extends = "qualcomm-sm8750"\nsegments = "any"', r"segments: expected 'listed'"),
    "an unknown key": ('extends = "tflm"\nspeed = 1', r"speed"),
}


CONFIGURED = """
extends = "ethos-u55-128"

[compiler]
config = "own.ini"
system_config = "B"
memory_mode = "C"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(None, r"compiler\.config: .*own\.ini", id="no file"),
        pytest.param("core_clock", r"compiler\..*\bsection headers\b", id="no sections"),
        pytest.param("[System_Config.A]\n", r"\[System_Config\.B\].* System_Config\.A", id="another"),
        pytest.param("[System_Config.B]\n", r"\[Memory_Mode\.C\]", id="no memory mode"),
        pytest.param("[System_Config.B]\ninherit=X\n", r"\[X\]", id="no parent"),
        pytest.param("[System_Config.B\ncore_clock=1\n", r"System_Config\.B", id="half a header"),
        pytest.param("[System_Config.B]\nDram_raed_latency=1\n", r"'Dram_read_latency'", id="unknown key"),
        pytest.param("[System_Config.B]\ncore_clock=fast\n", r"core_clock=fast: .*number", id="no number"),
        pytest.param("[System_Config.B]\nDram_clock_scale=0\n", r"Dram_clock_scale=0: .*positive", id="a scale of 0"),
        pytest.param("[System_Config.B]\nSram_read_latency=1.5\n", r"latency=1\.5: .*whole", id="half a cycle"),
        pytest.param("[System_Config.B]\naxi1_port=Dramm\n", r"axi1_port=Dramm: .*\bDram\b", id="unknown memory"),
        pytest.param("[System_Config.B]\n[Memory_Mode.C]\nconst_mem_area=Axi2\n", r"=Axi2: .*Axi1", id="unknown port"),
        pytest.param("[System_Config.B]\ninherit=X\n[X]\ninherit=System_Config.B\n", r"itself", id="a circle"),
    ],
)
def test_what_is_wrong_with_a_chips_own_configuration_is_told(tmp_path: Path, text: str | None, words: str) -> None:
    (tmp_path / "own.toml").write_text(CONFIGURED)
    if text is not None:
        (tmp_path / "own.ini").write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        read_target(str(tmp_path / "own.toml"))
    assert not str(caught.value).endswith("a table.")


def test_a_run_does_not_go_on_with_another_configuration_of_the_chip(tmp_path: Path) -> None:
    path, text = tmp_path / "own.toml", "[System_Config.B]\ncore_clock = 1\n[Memory_Mode.C]\n"
    path.write_text(CONFIGURED)
    hashes = []
    for clock in (1, 1, 2):
        (tmp_path / "own.ini").write_text(text.replace("1", str(clock)))
        hashes.append(target_hash(str(path)))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(("text", "words"), EXTENDS.values(), ids=EXTENDS)
def test_what_cannot_be_extended_is_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_target(own(tmp_path, text))


@pytest.mark.parametrize(
    ("said", "cost"),
    [
        ("per_mac = 0.5", 1.0),
        ("per_mac_of = { FULLY_CONNECTED = 0.001 }", 0.001),
        ("per_mac_of = { FULLY_CONNECTED = 0.001 }\nper_weight_of = { FULLY_CONNECTED = 0.25 }", 0.25),
    ],
)
def test_who_says_what_products_of_an_op_cost_inherits_no_cost_of_its_weights(
    said: str, cost: float, tmp_path: Path
) -> None:
    chip = read_target(
        own(tmp_path, f'extends = "ethos-u55-128"\nname = "c"\n[accelerator.int8]\n{said}\n')
    ).accelerator
    assert chip is not None
    assert chip.kernels[Precision.INT8].of_mac("FULLY_CONNECTED", 1.0) == cost


def test_the_hash_of_a_profile_that_extends_another_is_that_of_both(tmp_path: Path) -> None:
    plain = own(tmp_path, 'extends = "qualcomm-sm8750"', "plain.toml")
    other = own(tmp_path, 'extends = "qualcomm-sm8750"\n[piece]\nfixed = 1.0', "other.toml")
    assert target_hash(plain) == target_hash("qualcomm-sm8750") != target_hash(other)


def test_a_chips_own_memory_is_read_and_may_be_missing() -> None:
    memories = [read_target(name).memory for name in ("qualcomm-sm8750", "qualcomm-sm8350", "tflm")]
    assert memories == [Memory(size_bytes=size << 20, block=(8, 8, 32)) for size in (8, 4)] + [None]


@pytest.mark.parametrize(
    ("host", "lacking"),
    [
        ("", {"int64", "uint8"}),
        ('[host]\nname = "TensorFlow Lite Micro"\n', {"int64", "uint8"}),
        ('[host]\nname = "LiteRT"\n', set()),
        ('[host]\nname = "LiteRT"\nlacks_types = { CAST = ["bool"] }\n', {"bool"}),
        ("[host]\nlacks_types = { CAST = [] }\n", set()),
    ],
)
def test_a_host_of_another_name_lacks_only_what_is_said(host: str, lacking: set[str], tmp_path: Path) -> None:
    found = read_target(own(tmp_path, f'extends = "ethos-u55-128"\n{host}'))
    assert found.host.lacks_types.get("CAST", frozenset()) == lacking


def test_a_type_that_there_is_not_is_told(tmp_path: Path) -> None:
    text = 'extends = "tflm"\n[host]\nlacks_types = { CAST = ["uint9"] }\n'
    with pytest.raises(UsageError, match=r"lacks_types\..*'uint9' .*'uint8'"):
        read_target(own(tmp_path, text))
