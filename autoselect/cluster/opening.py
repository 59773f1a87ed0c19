"""From what a user calls a scheduler to workers: an address, a file, ``local:N`` or a live client."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping

import dask
from distributed import Client, LocalCluster
from distributed import TimeoutError as DaskTimeout
from distributed.comm.core import FatalCommClosedError

from autoselect.cluster.address import address_of, refuse_open, workers_of_local
from autoselect.cluster.engine import Cluster
from autoselect.cluster.jobs import Local
from autoselect.errors import UsageError

_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Settings of our own cluster. By default Dask looks at each thread every 10 to 20 ms, on the cores that score."""
_TLS_SETTINGS = (
    "Set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY."
)


@contextlib.contextmanager
def opened(
    scheduler: object,
    *,
    describe: Callable[[], Mapping[str, str]],
    local: Local,
    insecure: bool,
    tell: Callable[[str], None],
) -> Iterator[Cluster]:
    """The workers of a scheduler, given back at the end; a live client stays open.

    Raises:
        UsageError: If it is no scheduler, cannot be reached, may not be used, or has workers of other versions only.
    """
    with contextlib.ExitStack() as stack:
        connect = _connector(scheduler, stack, insecure=insecure)
        logger = logging.getLogger("distributed")  # What is lost and comes back, users are told in our words.
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        try:
            cluster = Cluster(connect, describe=describe, local=local, insecure=insecure, tell=tell)
        except (OSError, DaskTimeout) as exc:
            raise UsageError("scheduler: nobody answers there. Is it started, and is its address reachable?") from exc
        stack.callback(cluster.close)
        yield cluster


def _connector(scheduler: object, stack: contextlib.ExitStack, *, insecure: bool) -> Callable[[], Client]:
    """Gives a client; what it opens is closed with the stack."""
    if isinstance(scheduler, Client):
        refuse_open(str(scheduler.scheduler.address), insecure=insecure)
        return lambda: scheduler
    if not isinstance(scheduler, str):
        raise UsageError(f"scheduler: expected a text or a distributed.Client, got {type(scheduler).__name__}.")
    if count := workers_of_local(scheduler):
        stack.enter_context(dask.config.set(_QUIET))
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs="ERROR",
        )
        address = str(stack.enter_context(cluster).scheduler_address)
    else:
        address = address_of(scheduler)
    refuse_open(address, insecure=insecure)

    def connect() -> Client:
        try:
            client = Client(address, timeout=10.0, set_as_default=False, name="autoselect")
        except TypeError as exc:  # What Dask raises of tls:// where it knows no certificate.
            raise UsageError(f"scheduler: tls:// needs a certificate. {_TLS_SETTINGS}") from exc
        except FatalCommClosedError as exc:
            raise UsageError(f"scheduler: it does not know this certificate, or is not known. {_TLS_SETTINGS}") from exc
        stack.callback(client.close, timeout=10.0)
        return client

    return connect
