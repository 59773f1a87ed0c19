"""Where a vendor's libraries are looked for; the folders and the packages here are made up, with empty files."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from autoselect.compilers.libraries import NEEDED, QNN_VARIABLE, Libraries, empty_library, find_libraries, version_of
from autoselect.errors import UsageError

UNUSED = "libQnnLpai.so"
WHEEL, SDK = "onnxruntime_qnn", "ai_edge_litert_sdk_qualcomm"
REAL_FIND_SPEC = importlib.util.find_spec


def filled(folder: Path, without: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in set(NEEDED["Qualcomm"]) - set(without):
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is set, and neither package is installed."""
    monkeypatch.delenv(QNN_VARIABLE, raising=False)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in {WHEEL, SDK} else REAL_FIND_SPEC(name)
    )


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Puts a package in the way of imports and gives its folder; of the two no other is installed."""
    monkeypatch.delenv(QNN_VARIABLE, raising=False)
    for name in (WHEEL, SDK):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # What is imported in its place is forgotten again.
        del sys.modules[name]

    def spec(name: str) -> object:
        return REAL_FIND_SPEC(name) if name not in {WHEEL, SDK} or (tmp_path / f"site-{name}").exists() else None

    def put(name: str, text: str = "", *, version: str | None = None) -> Path:
        package = tmp_path / f"site-{name}" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text, encoding="utf-8")
        if version is not None:
            about = package.parent / f"{name}-{version}.dist-info"
            about.mkdir()
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(package.parent))
        return package

    monkeypatch.setattr(importlib.util, "find_spec", spec)
    return put


def sdk_of(said: object) -> str:
    return f"def path_to_sdk_libs():\n    return {said!r}\n"


def found_in(named: str | None = None) -> Libraries:
    found = find_libraries("Qualcomm", named)
    assert found is not None
    return found


def test_the_places_are_asked_in_their_order(
    installed: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, variable, sdk = (filled(tmp_path / name) for name in ("named", "variable", "sdk"))
    installed(SDK, sdk_of(str(sdk)), version="1.2.3")
    wheel = filled(installed(WHEEL, version="9.8.7"))
    monkeypatch.setenv(QNN_VARIABLE, str(variable))

    assert (found_in(str(named)).folder, found_in(str(named)).origin) == (named, "the profile")
    assert (found_in().folder, found_in().origin) == (variable, QNN_VARIABLE)
    monkeypatch.delenv(QNN_VARIABLE)
    assert (found_in().folder, found_in().origin) == (sdk, f"{SDK} 1.2.3")
    (tmp_path / f"site-{SDK}").rename(tmp_path / "gone")
    assert (found_in().folder, found_in().origin) == (wheel, f"{WHEEL} 9.8.7")


NO_DOWNLOAD = {"the word None": "None", "None": None, "nothing": ""}


@pytest.mark.parametrize("said", NO_DOWNLOAD.values(), ids=NO_DOWNLOAD)
def test_a_package_whose_download_failed_is_passed_over(installed: Callable[..., Path], said: str | None) -> None:
    installed(SDK, sdk_of(said))
    wheel = filled(installed(WHEEL))
    assert found_in().folder == wheel


def test_an_sdk_may_say_its_folder_as_a_path(installed: Callable[..., Path], tmp_path: Path) -> None:
    sdk = filled(tmp_path / "sdk")
    installed(SDK, f"from pathlib import Path\n\ndef path_to_sdk_libs():\n    return Path({str(sdk)!r})\n")
    assert (found_in().folder, found_in().origin) == (sdk, SDK)


def test_finding_the_wheel_does_not_import_it(installed: Callable[..., Path]) -> None:
    wheel = filled(installed(WHEEL, "raise RuntimeError('it was imported')"))
    assert found_in().folder == wheel


@pytest.mark.usefixtures("bare")
def test_where_none_is_there_the_commands_that_bring_them_are_told() -> None:
    with pytest.raises(UsageError, match="Qualcomm") as caught:
        find_libraries("Qualcomm")
    for words in (
        "pip install ai-edge-litert-sdk-qualcomm",
        "pip install 'autoselect[qualcomm]'",
        QNN_VARIABLE,
        "licence",
    ):
        assert words in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("place", ["the profile", QNN_VARIABLE])
@pytest.mark.parametrize("missing", [name for name in NEEDED["Qualcomm"] if name != UNUSED])
def test_an_incomplete_folder_is_told_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, place: str
) -> None:
    folder = filled(tmp_path / "half", without=(missing,))
    if place == QNN_VARIABLE:
        monkeypatch.setenv(QNN_VARIABLE, str(folder))
    with pytest.raises(UsageError, match=r"are incomplete: .* has no ") as caught:
        find_libraries("Qualcomm", str(folder) if place == "the profile" else None)
    told = str(caught.value)
    assert f"{folder} ({place}) has no {missing}." in told
    assert "pip install 'autoselect[qualcomm]'" in told
    assert ("Change libraries" in told) == (place == "the profile")


@pytest.mark.parametrize("manufacturer", ["Qualcomm", "MediaTek"])
@pytest.mark.parametrize("named", ["~/qnn", "qnn", "./qnn"])
def test_a_folder_may_be_named_from_home_and_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, manufacturer: str
) -> None:
    filled(tmp_path / "qnn")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = find_libraries(manufacturer, named)
    assert found is not None
    assert found.folder == tmp_path / "qnn"


@pytest.mark.usefixtures("bare")
def test_a_folder_that_is_not_there_is_told_without_a_word_of_packages(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_libraries("Qualcomm", str(tmp_path / "none"))
    assert f"{tmp_path / 'none'} (the profile)" in str(caught.value)
    assert "pip install" not in str(caught.value)


def test_an_incomplete_folder_hides_the_whole_one_after_it(installed: Callable[..., Path], tmp_path: Path) -> None:
    filled(installed(WHEEL))
    half = filled(tmp_path / "half", without=("libQnnHtp.so",))
    with pytest.raises(UsageError, match="incomplete"):
        find_libraries("Qualcomm", str(half))


@pytest.mark.parametrize("manufacturer", ["Google", "Intel", "MediaTek", "Samsung", "qualcomm"])
def test_other_manufacturers_find_their_own(manufacturer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(QNN_VARIABLE, str(tmp_path / "none"))
    assert find_libraries(manufacturer) is None


def test_a_folder_that_a_profile_names_counts_for_every_manufacturer(tmp_path: Path) -> None:
    (tmp_path / "libneuron_adapter.so").write_bytes(b"1234")
    found = find_libraries("MediaTek", str(tmp_path))
    assert found is not None
    with found.search_path() as path:
        assert path.split(":")[0] == str(tmp_path)
    assert found.versions() == {"libraries": "the profile, 1 files of 4 bytes"}
    with pytest.raises(UsageError, match="MediaTek"):
        find_libraries("MediaTek", str(tmp_path / "none"))


@pytest.mark.usefixtures("bare")
def test_what_is_not_there_and_not_used_is_stood_in_for(tmp_path: Path) -> None:
    whole, without = filled(tmp_path / "whole"), filled(tmp_path / "without", without=(UNUSED,))
    assert found_in(str(whole)).stood_in == ()
    assert found_in(str(without)).stood_in == (UNUSED,)


@pytest.mark.usefixtures("bare")
def test_the_folder_beside_a_wheel_s_is_searched_too(tmp_path: Path) -> None:
    folder = filled(tmp_path / "qnn")
    assert found_in(str(folder)).beside == ()
    (tmp_path / "qnn.libs").mkdir()
    assert found_in(str(folder)).beside == (tmp_path / "qnn.libs",)


BEFORE = {"nothing": (None, []), "empty": ("", []), "folders": ("/a:/b", ["/a", "/b"]), "a blank": (":/a:", ["/a"])}


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("before", "kept"), BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("fails", [False, True], ids=["it ends well", "it fails"])
def test_the_search_path_lasts_as_long_as_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, kept: list[str], fails: bool
) -> None:
    folder = filled(tmp_path / "qnn", without=(UNUSED,))
    (tmp_path / "qnn.libs").mkdir()
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    if before is not None:
        monkeypatch.setenv("LD_LIBRARY_PATH", before)
    environment, stand_in = dict(os.environ), Path()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        try:
            with found_in(str(folder)).search_path() as path:
                first, second, third, *rest = path.split(":")
                stand_in = Path(third)
                assert (Path(first), Path(second), rest) == (folder, tmp_path / "qnn.libs", kept)
                assert [file.name for file in stand_in.iterdir()] == [UNUSED]
                assert dict(os.environ) == environment
                if fails:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert fails
    assert not stand_in.exists()
    assert dict(os.environ) == environment
    assert sorted(f.name for f in tmp_path.iterdir()) == ["qnn", "qnn.libs"]


@pytest.mark.usefixtures("bare")
def test_two_search_paths_at_once_have_a_stand_in_each(tmp_path: Path) -> None:
    found = found_in(str(filled(tmp_path / "qnn", without=(UNUSED,))))
    with found.search_path() as one:
        with found.search_path() as other:
            assert one != other
        assert (Path(one.split(":")[1]) / UNUSED).read_bytes() == empty_library()


@pytest.mark.usefixtures("bare")
def test_libraries_of_other_sizes_are_other_libraries(tmp_path: Path) -> None:
    folder = filled(tmp_path / "qnn")
    before = found_in(str(folder)).versions()
    assert found_in(str(folder)).versions() == before
    assert before["libraries"].startswith("the profile, 6 files of ")
    (folder / "libQnnHtp.so").write_bytes(b"another")
    assert found_in(str(folder)).versions() != before


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in {"x86_64", "aarch64"}, reason="it is of Linux"
)
def test_an_empty_library_is_loaded_and_defines_nothing(tmp_path: Path) -> None:
    path = tmp_path / UNUSED
    path.write_bytes(empty_library())
    loaded = ctypes.CDLL(str(path))
    assert loaded is not None
    with pytest.raises(AttributeError):
        loaded.QnnInterface_getProviders  # noqa: B018 - to look it up is the point


def test_an_empty_library_is_of_the_machine_s_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = {}
    for name in ("x86_64", "aarch64"):
        monkeypatch.setattr(platform, "machine", lambda name=name: name)
        machines[name] = int.from_bytes(empty_library()[18:20], "little")
    assert machines == {"x86_64": 62, "aarch64": 183}


def test_the_real_wheel_has_what_is_needed() -> None:
    pytest.importorskip(WHEEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(QNN_VARIABLE, raising=False)
        found = found_in()
    if importlib.util.find_spec(SDK) is None:
        assert found.origin == f"{WHEEL} {importlib.metadata.version('onnxruntime-qnn')}"
    assert set(found.stood_in) <= {UNUSED}


@pytest.mark.parametrize(
    ("packages", "version"),
    [({"made-up": "1.0", "made-up-nightly": "2.0"}, "1.0"), ({"made-up-nightly": "2.0"}, "2.0"), ({}, "unknown")],
    ids=["the usual one", "another one", "none"],
)
def test_a_module_has_the_version_of_the_package_that_it_came_with(
    packages: dict[str, str], version: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, own in packages.items():
        about = tmp_path / f"{name.replace('-', '_')}-{own}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {own}\n", encoding="utf-8")
        (about / "top_level.txt").write_text("made_up\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert version_of("made-up", "made_up") == version
