"""Which schedulers and workers may be spoken to; knows addresses, opens none.

Dask runs what it is sent, so that whoever reaches an open port runs code there. Only addresses of this machine and
encrypted ones, whose ends know each other by their certificates, are taken unasked.
"""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from urllib.parse import urlsplit

from autoselect.errors import UsageError

_ENCRYPTED = ("tls", "wss")
_IN_PROCESS = "inproc"
_FORMS = "tcp://HOST:PORT, tls://HOST:PORT, a scheduler's .json file, or local:N"


def workers_of_local(scheduler: str) -> int | None:
    """The count of ``local:N``; None for anything else.

    Raises:
        UsageError: If the count is none.
    """
    kind, _, count = scheduler.partition(":")
    if kind != "local":
        return None
    if not count.isascii() or not count.isdigit() or not 1 <= int(count) <= 256:
        raise UsageError("scheduler: expected local:N with 1 to 256 workers, for example local:4.")
    return int(count)


def address_of(scheduler: str) -> str:
    """The address that a user names, or that a scheduler wrote into a file.

    Raises:
        UsageError: If it is none. The message does not repeat it: a user may have put a password into it.
    """
    address = scheduler
    if "://" not in scheduler:
        try:
            address = str(json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise UsageError(f"scheduler: expected {_FORMS}; this is no address and no readable file.") from exc
    try:
        parts = urlsplit(address)
        is_whole = bool(parts.netloc) and (bool(parts.port and parts.hostname) or parts.scheme == _IN_PROCESS)
    except ValueError:  # a port that is no number, or too large
        is_whole = False
    if "@" in address or not is_whole:
        raise UsageError(f"scheduler: expected {_FORMS}, with a port, and without user or password.")
    return address


def is_closed(address: str) -> bool:
    """Whether nobody else can read along or send jobs: within this machine, or with certificates."""
    parts = urlsplit(address)
    if parts.scheme in (*_ENCRYPTED, _IN_PROCESS):
        return True
    host = (parts.hostname or "").split("%")[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_open(address: str, *, insecure: bool) -> None:
    """Refuse what others on the network could use to run code.

    Raises:
        UsageError: With the remedy.
    """
    if not insecure and not is_closed(address):
        raise UsageError(
            f"scheduler: {address} is neither on this machine nor encrypted: whoever reaches it can run code on all of "
            "its workers and on this machine. Start scheduler and workers with TLS (tls://), or say insecure "
            "if nobody else is on the network."
        )
