from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from autoselect.compilers.vela import VelaCompiler
from autoselect.compilers.work_folder import work_folder
from autoselect.embedded import model_bytes
from autoselect.errors import StorageError
from autoselect.scoring.target_file import read_target


def test_a_folder_is_gone_afterwards() -> None:
    with work_folder("autoselect-test-") as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, StorageError), (errno.EROFS, StorageError), (errno.ENOENT, OSError)]
)
def test_a_disk_that_is_full_says_nothing_of_the_model(code: int, error: type[OSError]) -> None:
    with pytest.raises(error) as raised, work_folder("autoselect-test-"):
        raise OSError(code, "why")
    assert type(raised.value) is (StorageError if error is StorageError else FileNotFoundError)


def test_a_temporary_folder_without_room_is_told_where_vela_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="TMPDIR") as raised:
        VelaCompiler(read_target("ethos-u55-128")).compile(model_bytes(), timeout_seconds=60.0)
    assert tempfile.gettempdir() in str(raised.value)
