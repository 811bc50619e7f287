"""What a driver says about its stream, and the board on which everybody reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import NoneType
from typing import Literal, get_args

from recount.core.errors import Terminal
from recount.kafka.compacted import CompactedView, Isolation
from recount.kafka.connection import Connection
from recount.kafka.platform import STATUS

State = Literal["starting", "running", "stopping", "stopped", "failed"]
VERSION = 1
MOST_CHARACTERS = 2_000
"""Of any text in a status; an error is cut to it."""
LARGEST_EPOCH = 2**62
"""Of a lease; far beyond what relaunches come to, so a larger one was made up."""


class UnreadableStatus(Terminal):
    """A status message that this version cannot read."""


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """One driver's last word. Times are milliseconds since the epoch by the driver's clock, durations milliseconds.

    ``lag`` is that of Kafka's own tool, as the brokers said at ``lag_at_ms``: the ends of the topics minus what the
    stream's group has committed; ``oldest_unread_ms`` is the time of the oldest record of it. All totals count records
    of this driver since it started. ``frontier_ms`` and
    ``stream_time_ms`` (the largest of all partitions) are event times and None before the first record.
    ``lookup`` is the lookup of which the largest share of records found no row: ``lookup_misses`` of
    ``lookup_records``, for the ``lookup_cause`` if that is known.
    ``last_progress_ms`` is when a batch was last committed; the counts ``batch_…`` are of that batch.
    ``batch_begun_ms`` is when the driver last began to process one, and ``trigger_interval_ms`` how often it does.
    ``waiting_since_ms`` is since when there has been something to do (a batch, or records that can be read) and nothing
    was done: None while there is nothing to do. ``blocked_…`` says where an open transaction stops reading: a partition
    (as topic-partition), its offset, since when, and whose transaction it is, if that is known.
    ``memory_…`` are bytes: of the driver, and what is left to it (``spark.driver_memory``).
    ``fingerprint`` is that of the declaration that the driver runs, ``stream_version`` counts the resets of the stream
    from 1. ``final`` says of a failure that no relaunch can
    help: a human must act.
    """

    stream: str
    driver_id: str
    lease_epoch: int
    host: str
    pid: int
    state: State
    started_at_ms: int
    heartbeat_ms: int
    application_id: str | None = None
    batch: int | None = None
    last_progress_ms: int | None = None
    batch_begun_ms: int | None = None
    trigger_interval_ms: int = 0
    lag: int | None = None
    lag_at_ms: int | None = None
    oldest_unread_ms: int | None = None
    waiting_since_ms: int | None = None
    blocked_place: str | None = None
    blocked_offset: int | None = None
    blocked_since_ms: int | None = None
    blocked_by: str | None = None
    records_total: int = 0
    records_per_second: float = 0.0
    late_records: int = 0
    dead_letters: int = 0
    batch_records: int = 0
    batch_late_records: int = 0
    batch_dead_letters: int = 0
    lookup: str | None = None
    lookup_records: int = 0
    lookup_misses: int = 0
    lookup_cause: str | None = None
    frontier_ms: int | None = None
    stream_time_ms: int | None = None
    batch_duration_ms: int | None = None
    commit_duration_ms: int | None = None
    memory_used: int | None = None
    memory_left: int | None = None
    memory_limit: int | None = None
    error: str | None = None
    fingerprint: str | None = None
    final: bool = False
    stream_version: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the driver said that it ended; a killed driver cannot say so."""
        return self.state in ("stopped", "failed")

    def to_json(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> StreamStatus:
        """Read ``text``; fields this version does not know are ignored, so that a newer driver can add some.

        Raises ``UnreadableStatus`` for another version, a missing field, an unknown state, a value of another type, a
        text of more than ``MOST_CHARACTERS`` or that is no Unicode, a number of more than 64 bits, and a lease epoch
        that is not from 1 to ``LARGEST_EPOCH``: anybody may write to the topic.
        """
        try:
            said = json.loads(text)
            if said["version"] != VERSION or said["state"] not in get_args(State):
                raise ValueError(f"version {said['version']}, state {said['state']}")
            known = {field.name for field in fields(cls)}
            status = cls(**{name: value for name, value in said.items() if name in known})
            _require_plain(status)
            return status
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableStatus(
                "a status message cannot be read",
                given=text[:200],
                expected=f"StreamStatus as JSON, version {VERSION}",
                remedy="use one version of Recount for drivers and Airflow",
            ) from error


_KINDS = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "State": (str,),
    "bool": (bool,),
    "str | None": (str, NoneType),
    "int | None": (int, NoneType),
}


def _require_plain(status: StreamStatus) -> None:
    for field in fields(status):
        value = getattr(status, field.name)
        kinds = _KINDS[str(field.type)]
        if type(value) not in kinds:
            raise ValueError(f"{field.name} is {value!r}")
        if isinstance(value, str):
            value.encode()  # half a character, which JSON can escape, fits on no page
            if len(value) > MOST_CHARACTERS:
                raise ValueError(f"{field.name} has {len(value)} characters")
        if isinstance(value, int | float) and not -(2**63) <= value < 2**63:
            raise ValueError(f"{field.name} is {value!r}")
    if not 1 <= status.lease_epoch <= LARGEST_EPOCH:
        raise ValueError(f"lease_epoch is {status.lease_epoch}")


class StatusBoard:
    """Reads the last status of every stream; only the holder of a stream's ``Lease`` writes it.

    What is no status is passed over with a warning, and the last one before it stands.
    """

    def __init__(self, connection: Connection, topic: str = STATUS, *, isolation: Isolation = "read_committed") -> None:
        self._view = CompactedView(connection, topic, StreamStatus.from_json, isolation=isolation)

    def latest(self) -> Mapping[str, StreamStatus]:
        """The last status by stream name, as of this call."""
        said = {stream: StreamStatus.from_json(value) for stream, value in self._view.refresh().items()}
        return {stream: status for stream, status in said.items() if status.stream == stream}

    def of(self, stream: str) -> StreamStatus | None:
        """The last status of ``stream``, None when no driver ever spoke."""
        value = self._view.refresh().get(stream)
        status = None if value is None else StreamStatus.from_json(value)
        return status if status is not None and status.stream == stream else None

    def hidden(self, stream: str) -> str | None:
        """Where a later status of ``stream`` lies that cannot be read yet, None where there is none.

        Anybody's open transaction on the topic hides what is written behind it, until it is decided: before a driver
        is called silent, ask this, and where there is nothing hidden, read its status once more.
        """
        return self._view.undecided(stream)

    def close(self) -> None:
        self._view.close()


def status_of_group(group: str) -> str:
    """The name under which the driver of ``group`` has its lease and its status; no name of a stream has a dot."""
    return f"group.{group}"


def last_epoch(connection: Connection, stream: str, topic: str = STATUS) -> int:
    """The lease epoch of the stream's last status, 0 when no driver ever spoke.

    Read uncommitted: an open transaction on the topic must not hide the last driver from the next one, nor from an
    order to stop. The epoch of a status that is aborted is skipped, no more.
    """
    board = StatusBoard(connection, topic, isolation="read_uncommitted")
    try:
        status = board.of(stream)
    finally:
        board.close()
    return status.lease_epoch if status else 0
