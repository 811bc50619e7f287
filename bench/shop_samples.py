"""One look at the running shop: how far each stream is behind, what each process holds and what it has cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field

import psutil
from examples.shop.shop_demo_steps import ShopReading

from bench.processes import cpu_s, footprints
from recount.declare.registry import Declarations
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus, status_of_group
from recount.profile import daemon
from recount.profile.home import Home

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class StreamSample:
    """``lag`` counts the records on the brokers that no batch has committed; ``pid`` is that of the driver."""

    state: str
    epoch: int
    batch: int | None
    lag: int
    batch_ms: int | None
    pid: int


@dataclass(frozen=True, kw_only=True)
class ShopSample:
    """``memory_mib`` by driver and part (JVM, driver, workers), a page that processes share counted once; ``cpu_s``
    are processor seconds since the process began.
    """

    seconds: float
    streams: Mapping[str, StreamSample]
    memory_mib: Mapping[str, Mapping[str, float]]
    cpu_s: Mapping[str, float]
    load: float = field(default_factory=lambda: psutil.getloadavg()[0])

    @property
    def total_mib(self) -> float:
        """The memory of all processes."""
        return sum(sum(parts.values()) for parts in self.memory_mib.values())

    def to_json(self) -> dict[str, object]:
        return asdict(self)


class ShopSampler:
    """Looks at the streams of ``declarations`` and at the processes of ``home``."""

    def __init__(self, connection: Connection, declarations: Declarations, home: Home) -> None:
        self._connection = connection
        self._home = home
        self._groups = list(declarations.groups)
        self._reading = ShopReading(connection, declarations)
        self._begun_s = time.monotonic()

    def take(self) -> ShopSample:
        """A sample of now."""
        with closing(StatusBoard(self._connection)) as board:
            statuses = board.latest()
        lags = self._reading.unread()
        pids = dict(self._pids())
        return ShopSample(
            seconds=round(time.monotonic() - self._begun_s, 1),
            streams={name: _stream(statuses[name], lag) for name, lag in lags.items() if name in statuses},
            memory_mib={
                name: {role: round(one.memory_bytes / _MIB) for role, one in footprints(pid).items()}
                for name, pid in pids.items()
            },
            cpu_s={name: round(cpu_s([pid]), 1) for name, pid in pids.items()},
        )

    def _pids(self) -> Iterator[tuple[str, int]]:
        for one in (*daemon.drivers(self._home), *daemon.recorded(self._home)):
            if one.alive:
                yield (status_of_group(one.name) if one.name in self._groups else one.name), one.pid


def _stream(status: StreamStatus, lag: int) -> StreamSample:
    return StreamSample(
        state=status.state,
        epoch=status.lease_epoch,
        batch=status.batch,
        lag=lag,
        batch_ms=status.batch_duration_ms,
        pid=status.pid,
    )
