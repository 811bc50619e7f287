"""What an audit says: differences (there must be none), grace misses (explained), and the account of every offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_LATE_NAMED = 100
"""Of the late records of one grace miss."""
Outcome = Literal["match", "violation"]
"""``match``: every output is there exactly once, as the log says. Grace misses do not count against it."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between what the log says and what was found: a violation of exactly-once.

    ``kind`` is what was checked: ``output``, ``late ledger``, ``dead letters``, ``offsets``, ``batch ledger`` or
    ``topic``.
    ``place`` is where it was found. ``key``, ``window_start`` and ``window_end`` (ms) are None where there is none.
    ``origin``, of a row that is no window's result, names the records that it was made of.
    ``evidence`` names offsets as ``topic-partition@offset`` and batches as ``batch generation/batch``; of a topic, ids.
    """

    kind: str
    place: str
    verdict: str
    key: str | None = None
    window_start: int | None = None
    window_end: int | None = None
    expected: str | None = None
    actual: str | None = None
    cause: str = ""
    evidence: tuple[str, ...] = ()
    origin: str | None = None


@dataclass(frozen=True, kw_only=True)
class GraceMiss:
    """A result that unlimited grace would change, and the late records that would change it.

    ``late`` names them as ``topic-partition@offset +margin ms``, at most the first ``MAX_LATE_NAMED`` of
    ``late_records``. The miss is explained when the stream's late ledger holds exactly the records that are missing; of
    topologies beyond one aggregation, when it holds records that can have made the difference. There a row without a
    window is named by ``origin``, and ``sink`` is its topic. ``complete`` None: with unlimited grace there is no such
    row.
    """

    key: str | None
    window_start: int | None
    window_end: int | None
    published: str | None
    complete: str | None
    late_records: int
    late: tuple[str, ...]
    explained: bool
    sink: str | None = None
    origin: str | None = None


@dataclass(frozen=True, kw_only=True)
class PartitionAccount:
    """Every offset of one partition's audited range, each in exactly one column; ``unaccounted`` must be 0.

    ``control`` are transaction markers, ``aborted`` records of aborted transactions, ``expired`` records that Kafka no
    longer holds, ``compacted`` those that compaction took.
    """

    topic: str
    partition: int
    start: int
    end: int
    counted: int
    late: int
    filtered: int
    null_key: int
    dead_lettered: int
    null_value: int = 0
    deduplicated: int = 0
    waiting: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    expired: int = 0
    stream_time_ms: int | None = None

    @property
    def records(self) -> int:
        """The records that were read."""
        refused = self.null_key + self.null_value + self.deduplicated + self.dead_lettered
        return self.counted + self.late + self.filtered + self.waiting + refused

    @property
    def unaccounted(self) -> int:
        """Offsets that nothing explains."""
        explained = self.records + self.control + self.aborted + self.compacted + self.expired
        return self.end - self.start - explained
