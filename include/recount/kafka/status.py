"""What a driver says about its stream, and the board on which everybody reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Literal, get_args

from recount.core.errors import Terminal
from recount.kafka.compacted import CompactedView
from recount.kafka.connection import Connection
from recount.kafka.platform import STATUS

State = Literal["starting", "running", "stopping", "stopped", "failed"]
VERSION = 1


class UnreadableStatus(Terminal):
    """A status message that this version cannot read."""


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """One driver's last word. Times are milliseconds since the epoch by the driver's clock, durations milliseconds.

    ``lag`` and all totals count records; totals are of this driver since it started. ``frontier_ms`` and
    ``stream_time_ms`` (the largest of all partitions) are event times and None before the first record.
    ``last_progress_ms`` is when a batch was last committed. ``failed_batches`` counts failures in a row.
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
    lag: int | None = None
    records_total: int = 0
    records_per_second: float = 0.0
    late_records: int = 0
    dead_letters: int = 0
    frontier_ms: int | None = None
    stream_time_ms: int | None = None
    batch_duration_ms: int | None = None
    commit_duration_ms: int | None = None
    failed_batches: int = 0
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the driver said that it ended; a killed driver cannot say so."""
        return self.state in ("stopped", "failed")

    def to_json(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> StreamStatus:
        """Read ``text``; fields this version does not know are ignored, so that a newer driver can add some.

        Raises ``UnreadableStatus`` for another version, a missing field or an unknown state.
        """
        try:
            said = json.loads(text)
            if said["version"] != VERSION or said["state"] not in get_args(State):
                raise ValueError(f"version {said['version']}, state {said['state']}")
            known = {field.name for field in fields(cls)}
            return cls(**{name: value for name, value in said.items() if name in known})
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableStatus(
                "a status message cannot be read",
                given=text[:200],
                expected=f"StreamStatus as JSON, version {VERSION}",
                remedy="use one version of Recount for drivers and Airflow",
            ) from error


class StatusBoard:
    """Reads the last status of every stream; only the holder of a stream's ``Lease`` writes it."""

    def __init__(self, connection: Connection, topic: str = STATUS) -> None:
        self._view = CompactedView(connection, topic)

    def latest(self) -> Mapping[str, StreamStatus]:
        """The last status by stream name, as of this call."""
        return {stream: StreamStatus.from_json(value) for stream, value in self._view.refresh().items()}

    def of(self, stream: str) -> StreamStatus | None:
        """The last status of ``stream``, None when no driver ever spoke."""
        value = self._view.refresh().get(stream)
        return None if value is None else StreamStatus.from_json(value)

    def close(self) -> None:
        self._view.close()
