from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoselect.cluster.address import address_of, is_closed, refuse_open, workers_of_local
from autoselect.errors import UsageError


@pytest.mark.parametrize(
    ("address", "closed"),
    [
        ("tcp://127.0.0.1:8786", True),
        ("tcp://127.8.9.1:8786", True),
        ("tcp://localhost:8786", True),
        ("tcp://[::1]:8786", True),
        ("tls://10.0.0.1:8786", True),
        ("inproc://192.168.1.2/12/1", True),
        ("tcp://10.0.0.1:8786", False),
        ("tcp://0.0.0.0:8786", False),
        ("tcp://[fe80::1%eth0]:8786", False),
        ("tcp://localhost.example.org:8786", False),
        ("tcp://127.0.0.1.example.org:8786", False),
        ("ws://10.0.0.1:8786", False),
        ("tcp://:8786", False),
    ],
)
def test_what_is_closed_to_others(address: str, closed: bool) -> None:
    assert is_closed(address) is closed
    refuse_open(address, insecure=True)
    if closed:
        refuse_open(address, insecure=False)
    else:
        with pytest.raises(UsageError, match=r"tls://.*insecure"):
            refuse_open(address, insecure=False)


def test_an_address_is_said_or_read_from_a_file(tmp_path: Path) -> None:
    written = tmp_path / "scheduler.json"
    written.write_text(json.dumps({"type": "Scheduler", "address": "tls://10.0.0.1:8786"}))
    assert address_of(str(written)) == "tls://10.0.0.1:8786"
    for address in ("tcp://10.0.0.1:8786", "tls://[::1]:8786", "inproc://192.168.1.2/12/1"):
        assert address_of(address) == address


@pytest.mark.parametrize(
    "told",
    [
        "tcp://me:hunter2@10.0.0.1:8786",
        "hunter2",
        "hunter2.json",
        "tcp://",
        "://hunter2",
        "tcp://h",
        "tcp://h:99999",
        "tcp://:8786",
        "inproc://",
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(told: str) -> None:
    with pytest.raises(UsageError, match="scheduler: expected tcp://HOST:PORT") as refused:
        address_of(told)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"address": "tcp://u:hunter2@h:1"}', "\0"])
def test_a_file_without_an_address_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(content)
    with pytest.raises(UsageError, match="scheduler: expected tcp://HOST:PORT") as refused:
        address_of(str(path))
    assert "hunter2" not in str(refused.value)


def test_local_workers_are_counted() -> None:
    assert workers_of_local("local:4") == 4
    assert workers_of_local("tcp://127.0.0.1:8786") is None
    for told in ("local", "local:", "local:0", "local:-1", "local:two", "local:1000", "local:²"):
        with pytest.raises(UsageError, match="local:N with 1 to 256"):
            workers_of_local(told)
