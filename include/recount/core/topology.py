"""The fluent API: a topology reads like the sentence that asked for it.

>>> from recount.core.aggregates import count
>>> from recount.core.expressions import col
>>> from recount.core.schema import STRING, RecordSchema
>>> from recount.core.topics import Topic
>>> from recount.core.windows import tumbling
>>> clicks = Topic(name="clicks", key="click_id", value=RecordSchema.of(user_id=STRING))
>>> per_user = Topic(name="clicks-per-user", key="user_id")
>>> topology = Topology(
...     name="clicks-per-user",
...     sinks=[
...         stream(clicks)
...         .select_key(user_id=col("user_id"))
...         .windowed_by(tumbling("5 min", grace="60 s"))
...         .aggregate(clicks=count())
...         .emit_final()
...         .to(per_user)
...     ],
... )
>>> [source.topic.name for source in topology.sources]
['clicks']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recount.core.aggregates import Aggregate
from recount.core.durations import Duration, milliseconds
from recount.core.errors import require
from recount.core.expressions import Expression, expression
from recount.core.nodes import Emission, Filter, Node, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.core.topics import Topic
from recount.core.windows import Windows

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Health:
    """The limits beyond which a running stream is unhealthy and is relaunched; milliseconds, records, batches.

    ``progress_age_ms`` counts only while there is lag: a stream with nothing to read is healthy.
    """

    heartbeat_age_ms: int = 30_000
    progress_age_ms: int = 180_000
    lag: int = 10_000_000
    frontier_age_ms: int = 86_400_000
    failed_batches: int = 3


@dataclass(frozen=True)
class RecordStream:
    """An unbounded sequence of records."""

    node: Node

    def filter(self, predicate: Expression) -> RecordStream:
        """Only the records for which ``predicate`` is true."""
        return RecordStream(Filter(input=self.node, predicate=predicate))

    def with_fields(self, **added: object) -> RecordStream:
        """The same records with fields added or replaced."""
        return RecordStream(
            WithFields(input=self.node, added={name: expression(given) for name, given in added.items()})
        )

    def select_key(self, **key: object) -> RecordStream:
        """The same records under a new key, named by the one keyword: ``select_key(region=col("region"))``."""
        require(
            len(key) == 1,
            "select_key",
            given=sorted(key),
            expected="exactly one keyword, the name of the key",
            remedy='select_key(region=col("region"))',
        )
        [(name, by)] = key.items()
        return RecordStream(SelectKey(input=self.node, key=name, by=expression(by)))

    def windowed_by(self, windows: Windows) -> WindowedStream:
        """The records grouped by key and window."""
        return WindowedStream(self.node, windows)

    def to(self, topic: Topic, *, table: str | None = None) -> Sink:
        """Writes to ``topic`` and to a Delta table, by default named like the topic with ``_`` for ``-`` and ``.``."""
        return Sink(input=self.node, topic=topic, table=table or re.sub(r"[-.]", "_", topic.name))


@dataclass(frozen=True)
class WindowedStream:
    """Records grouped by key and window."""

    node: Node
    windows: Windows

    def aggregate(self, **aggregates: Aggregate) -> WindowedTable:
        """One row per key and window, a column per aggregate."""
        return WindowedTable(self.node, self.windows, aggregates)


@dataclass(frozen=True)
class WindowedTable:
    """One row per key and window; choose when its updates leave."""

    node: Node
    windows: Windows
    aggregates: Mapping[str, Aggregate]

    def emit_final(self) -> RecordStream:
        """Each result once, when its window closes (Kafka Streams: suppress until window closes)."""
        return self._emit(Emission(kind="final"))

    def emit_each_batch(self) -> RecordStream:
        """The latest result of every changed key and window, once a batch (Kafka Streams: record caching)."""
        return self._emit(Emission(kind="each batch"))

    def _emit(self, emission: Emission) -> RecordStream:
        return RecordStream(
            WindowedAggregate(
                input=self.node, windows=self.windows, aggregates=dict(self.aggregates), emission=emission
            )
        )


def stream(topic: Topic) -> RecordStream:
    """The records of ``topic`` as a stream."""
    return RecordStream(Source(topic=topic))


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A named graph of operators that runs as one stream, with one lease, one ledger and one audit.

    ``idle_after``: a partition read to its end for so long no longer holds the frontier back. ``max_future``: a
    timestamp further than this ahead of the batch's recorded time is dead-lettered.
    """

    name: str
    sinks: Sequence[Sink]
    health: Health = field(default_factory=Health)
    idle_after: Duration = "5 min"
    max_future: Duration = "1 h"

    def __post_init__(self) -> None:
        require(
            bool(_NAME.fullmatch(self.name)),
            "topology name",
            given=self.name,
            expected="lower-case words joined by '-'",
            remedy="it names tables, groups and DAGs: rename it like 'revenue-by-region'",
        )
        require(
            bool(self.sinks), "sinks", given=list(self.sinks), expected="at least one", remedy="end the flow with .to()"
        )
        assert self.idle_after_ms >= 0 and self.max_future_ms >= 0

    @property
    def idle_after_ms(self) -> int:
        """``idle_after`` in milliseconds."""
        return milliseconds(self.idle_after, "idle_after")

    @property
    def max_future_ms(self) -> int:
        """``max_future`` in milliseconds."""
        return milliseconds(self.max_future, "max_future")

    def nodes(self) -> Iterator[Node]:
        """Every operator once, inputs before what reads them."""
        seen: set[int] = set()

        def walk(node: Node) -> Iterator[Node]:
            if id(node) in seen:
                return
            seen.add(id(node))
            if not isinstance(node, Source):
                yield from walk(node.input)
            yield node

        for sink in self.sinks:
            yield from walk(sink)

    @property
    def sources(self) -> list[Source]:
        """The sources, one per topic."""
        by_topic = {node.topic.name: node for node in self.nodes() if isinstance(node, Source)}
        return list(by_topic.values())
