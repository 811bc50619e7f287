"""The parts that have effects: each way in which the engine, the archive, the audit and the commands write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.integration.engine.purchases import (
    deliveries,
    deliveries_topic,
    journeys,
    purchases,
    purchases_topic,
    revenue,
)

from recount.declare.groups import Archive
from recount.declare.registry import Stream
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.kafka.transaction import KafkaRecord

RECORDS, MAX_OFFSETS = 240, 120
"""Of a round: two batches."""
_STEP_MS = 500
"""Between two records of a partition: a round closes four windows."""

OF_A_COMMAND = ("restart", "zombie", "broker lost", "clock +1 min", "clock -1 min", "disk full")
OF_TRANSACTIONS = ("transaction timed out",)
OF_A_GROUP = ("offsets expired",)
OF_A_STREAM = ("restart", "checkpoint lost", *OF_A_GROUP, "ledger restored", *OF_A_COMMAND[1:], *OF_TRANSACTIONS)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is struck: the ``step`` of a round, which follows the steps ``before`` and comes ahead of those ``after``.

    ``faults`` are those that can concern it.
    """

    told: str
    kind: Literal["windowed", "topology", "archive"] = "windowed"
    before: Sequence[str] = ()
    step: str = "stream"
    after: Sequence[str] = ()
    faults: Sequence[str] = OF_A_STREAM
    is_upgraded: bool = False
    only: Sequence[str] = ("",)
    """How the effects begin that are struck: the others are those of another part."""

    def strikes_at(self, effect: str) -> bool:
        """Whether this effect is struck in this part."""
        return effect.startswith(tuple(self.only))

    def declared(self, name: str, round_: int = 0) -> Stream:
        """The stream ``name`` as it is declared when ``round_`` begins."""
        source = _source(name)
        match self.kind:
            case "windowed":
                return revenue(name, source, grace=f"{2 + round_ * self.is_upgraded} s")
            case "topology":
                return journeys(name, source, deliveries_topic(f"{name}-deliveries"))
            case "archive":
                return Archive(topic=source)

    def topics_as(self, name: str) -> Topology:
        """A topology with all topics of the stream ``name``."""
        declared = self.declared(name)
        return revenue(name, _source(name)) if isinstance(declared, Archive) else declared

    def records(self, name: str, round_: int) -> Iterator[KafkaRecord]:
        """What is produced for round ``round_``, the same for every ``name``."""
        bought = list(purchases(f"{name}-purchases", round_ * RECORDS, RECORDS, step_ms=_STEP_MS))
        yield from bought
        if self.kind == "topology":
            yield from deliveries(f"{name}-deliveries", bought)


def _source(name: str) -> Topic:
    return purchases_topic(f"{name}-purchases")


_OF_A_BATCH = (
    "checkpoint",
    "kafka first record recount.*.0",
    "kafka offsets",
    "kafka commit recount.*.0",
    "delta append data/s",
)

PARTS = {
    "windowed": Part(told="a windowed stream: partial aggregation, late ledger, rejected records, output"),
    "topology": Part(
        told="a topology: two topics, a join, sessions, two sinks, the operators' state",
        kind="topology",
        only=_OF_A_BATCH,
    ),
    "archive": Part(
        told="an archive, which Spark writes to Delta",
        kind="archive",
        only=(
            "checkpoint",
            "kafka first record recount.archive",
            "kafka offsets",
            "kafka commit recount.archive",
            "spark",
        ),
    ),
    "upkeep": Part(
        told="the upkeep of a stream's tables, their files two hours old",
        before=("stream",),
        step="upkeep",
        faults=("restart", "zombie", "disk full"),
    ),
    "audit": Part(
        told="an audit: its tables, certificate, head",
        before=("stream",),
        step="audit",
        faults=(*OF_A_COMMAND, *OF_TRANSACTIONS),
    ),
    "backfill": Part(
        told="a backfill: corrections in Delta and Kafka",
        before=("stream", "audit"),
        step="backfill",
        after=("audit",),
        faults=(*OF_A_COMMAND, *OF_A_GROUP, *OF_TRANSACTIONS),
    ),
    "reset": Part(
        told="a reset, and the new version read from the beginning",
        before=("stream",),
        step="reset",
        after=("stream",),
        faults=OF_A_COMMAND,
    ),
    "upgrade": Part(
        told="an upgrade to a longer grace, and the stream after it",
        before=("stream", "audit"),
        step="upgrade",
        after=("next_stream",),
        faults=OF_A_COMMAND,
        is_upgraded=True,
    ),
}
