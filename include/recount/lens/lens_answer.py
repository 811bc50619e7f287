"""What the other engines would have answered, as a value: for a terminal, for JSON, for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recount.lens.differing_results import Between


@dataclass(frozen=True, kw_only=True)
class DroppedRecord:
    """A record that Recount counts and the engine drops; ``is_certain``: in whatever order it has read.

    ``place`` is ``topic-partition@offset``.
    """

    place: str
    key: str | int
    time_ms: int
    is_certain: bool


@dataclass(frozen=True, kw_only=True)
class OtherResult:
    """One result of Recount, and what the engine has of it, at the fewest and at the most records dropped.

    ``ours`` and each of theirs is a row of window bounds and aggregates; theirs are several where a session fell apart,
    none where the result is lost. ``dropped`` are the first places of records that are missing. Of a window of which
    not all records were read no values are told: ``ours`` is None.
    """

    key: str | int
    window_start: int
    window_end: int
    is_certain: bool
    ours: Mapping[str, Any] | None
    theirs_at_least_dropped: Sequence[Mapping[str, Any]]
    theirs_at_most_dropped: Sequence[Mapping[str, Any]]
    dropped: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class EngineAnswer:
    """One engine: what it would have dropped and answered, and what is ``assumed`` of it, in sentences."""

    engine: str
    assumed: Sequence[str]
    dropped: Between
    dropped_of_ours: Between
    lost: Between
    changed: Between
    added: Between
    records: Sequence[DroppedRecord]
    results: Sequence[OtherResult]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        counts = ("dropped", "dropped_of_ours", "lost", "changed", "added")
        return {
            "engine": self.engine,
            "assumed": list(self.assumed),
            **{name: getattr(self, name).document for name in counts},
            "records": [asdict(record) for record in self.records],
            "results": [asdict(result) for result in self.results],
        }


@dataclass(frozen=True, kw_only=True)
class LensAnswer:
    """What was looked at, and what each engine would have made of it.

    ``records`` reach the aggregation in the interval, of which ``late`` are late for a window by Recount itself, in
    ``batches`` batches, of ``batch_records`` where they were cut anew; its ``results`` have one of these records.
    ``read`` records were read in ``seconds``, those before the interval included.
    """

    stream: str
    windows: str
    start_ms: int | None
    end_ms: int | None
    batches: int
    batch_records: int | None
    records: int
    late: int
    results: int
    read: int
    seconds: float
    engines: Sequence[EngineAnswer]

    def document(self) -> dict[str, Any]:
        """As JSON; decimals are texts."""
        names = ("stream", "windows", "start_ms", "end_ms", "batches", "batch_records", "records", "late", "results")
        return {
            **{name: getattr(self, name) for name in names},
            "cost": {"read": self.read, "seconds": round(self.seconds, 3)},
            "engines": [engine.document() for engine in self.engines],
        }
