"""A case of the field: a topology, a log, and what is right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recount.audit.compare.identity import identity_of
from recount.declare.flow import RecordStream, Table
from recount.declare.output import encode_value
from recount.declare.schema import FieldType, RecordSchema, with_places
from recount.declare.topics import Topic
from recount.declare.topology import Topology

IDLE_AFTER = "60 s"
MAX_FUTURE = "30 d"
"""Of the topologies of all cases: times in a log are counted from 0, and can be days later."""
Row = tuple[Any, tuple[int, int] | None, Mapping[str, Any] | None]
"""A result as any implementation has it: key, window, value."""
Comparable = tuple[str, ...]
CLOSING = "closing"
"""The key of records that are there to let event time pass: what comes of them does not count."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A record of the log."""

    topic: str
    at_ms: int
    key: bytes | None
    value: bytes | None
    partition: int = 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """A result that counts: its key, the bounds of its window, and the fields that the case is about."""

    key: Any
    value: Mapping[str, Any]
    window: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is declared, what comes, in which batches, and what is right; see the package."""

    name: str
    topology: Topology
    log: Sequence[Sequence[Sent]]
    results: Mapping[str, Sequence[Result]] = field(default_factory=dict)
    dead_letters: Mapping[str, str] = field(default_factory=dict)
    stops: str | None = None
    on_broker: bool = True

    @property
    def partitions(self) -> dict[str, int]:
        """How many partitions each source topic has."""
        return {one.topic.name: one.topic.partitions for one in self.topology.sources}

    @property
    def records(self) -> list[Sent]:
        """The log without its batches."""
        return [record for batch in self.log for record in batch]

    def found(self, topic: str, rows: Iterable[Row]) -> list[Comparable]:
        """Of all ``rows`` of the output ``topic``, in the order in which they were written, what must be right."""
        [written] = [one for one in self.topology.written if one.topic.name == topic]
        names = {name for one in self.results[_short(topic)] for name in one.value}
        kept = list(rows)
        if identity_of(written).is_latest:
            kept = list({(key, window): (key, window, value) for key, window, value in kept}.values())
        return sorted(
            _comparable(key, window, {name: with_places(value[name], written.fields[name]) for name in names})
            for key, window, value in kept
            if value is not None and key != CLOSING
        )

    def expected(self, topic: str) -> list[Comparable]:
        """The results of ``topic`` as ``found`` has them."""
        return sorted(_comparable(one.key, one.window, one.value) for one in self.results[_short(topic)])

    @property
    def outputs(self) -> list[str]:
        """The output topics."""
        return [one.topic.name for one in self.topology.written]


def source(name: str, *, partitions: int = 1, **fields: FieldType) -> Topic:
    """The topic ``name``-in, whose records have the JSON ``fields``."""
    return Topic(name=f"{name}-in", key="id", value=RecordSchema.of(**fields), partitions=partitions, retention_ms=-1)


def ending(name: str, flow: RecordStream | Table) -> Topology:
    """The stream ``name``, whose one flow is written to the topic and table ``name``-out."""
    out = Topic(name=f"{name}-out", key="id", partitions=1, retention_ms=-1)
    return Topology(name=name, sinks=[flow.to(out)], idle_after=IDLE_AFTER, max_future=MAX_FUTURE)


def record(name: str, *, at_ms: int, key: str | None = "k", partition: int = 0, **fields: Any) -> Sent:
    """A record of the topic ``name``-in."""
    value = encode_value(fields)
    raw_key = None if key is None else key.encode()
    return Sent(topic=f"{name}-in", at_ms=at_ms, key=raw_key, value=value, partition=partition)


def _short(topic: str) -> str:
    return topic.removesuffix("-out")


def _comparable(key: Any, window: tuple[int, int] | None, value: Mapping[str, Any]) -> Comparable:
    """With types and all places, for 1 == 1.0 == Decimal(1), and as text, so that nulls can be sorted."""
    return (repr(key), repr(window), *(f"{name}: {_cell(cell)!r}" for name, cell in sorted(value.items())))


def _cell(value: Any) -> Any:
    """A list is a list, though a run has it as a tuple to count its rows."""
    return list(value) if isinstance(value, tuple) else value
