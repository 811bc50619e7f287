"""What a runner runs: the work of one stream, apart from lease, source, status and stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from pyspark.sql import DataFrame

from recount.core.additions import NOTHING_ADDED, Additions
from recount.core.fingerprint import Declared
from recount.core.ledger import BatchProof
from recount.core.reading import Layers
from recount.core.topic_ids import TopicIds
from recount.kafka.transaction import OutputTransaction
from recount.proofs import History
from recount.spark.checkpoint import Planned
from recount.spark.state_use import StateUse

Step = Literal["mapped", "kafka committed", "delta committed"]


class Observer(Protocol):
    """Told as a batch completes a step: how the chaos tests kill a driver at a chosen point."""

    def __call__(self, step: Step, batch: int) -> None:
        """``step`` of ``batch`` is done."""


def unobserved(step: Step, batch: int) -> None:
    """The observer of every day."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of a stream: under which lease, on which checkpoint, with which producer.

    ``generation`` is the checkpoint's place in the stream's history, see ``BatchProof``. ``fingerprint`` is that of
    the declaration that is run, ``closed_ms`` the frontier at which all is closed that was before an upgrade, ``added``
    what upgrades have added to it; ``version`` counts the stream's resets from 1. ``topic_ids``
    tells the ids of the stream's topics, and raises where one that it reads has been made anew.
    ``set_aside`` are the offsets of records that the stream goes on without, by topic and partition.
    ``published`` says that Kafka has the batches of this run already.
    """

    checkpoint: Planned
    transaction: OutputTransaction
    generation: int
    lease_epoch: int
    topic_ids: Callable[[], TopicIds]
    fingerprint: str | None = None
    closed_ms: int | None = None
    added: Additions = NOTHING_ADDED
    version: int = 1
    published: bool = False
    set_aside: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    observer: Observer = unobserved


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """A committed batch: its proof and how many milliseconds its steps took.

    ``late_total`` and ``dead_letters_total`` count the records of all batches that the processor has committed, and so
    ``lookups``: of each lookup the rows that asked, and those that found none. ``newer_tables`` says of some why.
    """

    proof: BatchProof
    kafka_ms: int
    delta_ms: int
    late_total: int = 0
    dead_letters_total: int = 0
    lookups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    newer_tables: Mapping[str, str] = field(default_factory=dict)

    def after(self, former: BatchResult | None) -> BatchResult:
        """This result with the totals of the ``former`` one and its own."""
        parts = self.proof.partitions
        before = former.lookups if former else {}
        return replace(
            self,
            late_total=sum(p.late for p in parts) + (former.late_total if former else 0),
            dead_letters_total=sum(p.dead_lettered for p in parts) + (former.dead_letters_total if former else 0),
            lookups={
                name: (asked + before.get(name, (0, 0))[0], missed + before.get(name, (0, 0))[1])
                for name, (asked, missed) in self.lookups.items()
            },
        )

    @property
    def worst_lookup(self) -> tuple[str, int, int] | None:
        """The lookup of which the largest share of rows found none, with both numbers."""
        asked = [(missed / asked, name, asked, missed) for name, (asked, missed) in self.lookups.items() if asked]
        return max(asked)[1:] if asked else None


class Processor(Protocol):
    """What ``foreachBatch`` calls; ``last`` is the last batch that it committed."""

    last: BatchResult | None

    @property
    def held(self) -> Mapping[str, int]:
        """How many rows are kept between batches, by what keeps them."""

    @property
    def used(self) -> Mapping[str, StateUse]:
        """How these are used; may be asked while a batch is processed."""

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Process batch ``batch`` exactly once, however often it is called for it."""


class Work(Protocol):
    """The work of one stream: reads ``topics``, writes to the topics ``outputs``, its dead-letter topics included.

    ``layers`` are the topics in the order in which a batch reads them. ``delta_first`` says that a batch is committed
    to its table before its offsets are to Kafka.
    """

    name: str
    topics: tuple[str, ...]
    layers: Layers
    outputs: tuple[str, ...]
    with_headers: bool
    history: History
    declared: Declared
    delta_first: bool

    def require_schemas(self) -> None:
        """Have a schema registry know those of the outputs; raises ``SchemaRefused``."""

    def require_new(self) -> None:
        """Raise ``Terminal`` where somebody has written results already; asked before the first start of all."""

    def create(self) -> None:
        """Create the tables that do not exist."""

    def lacks(self, last: BatchProof, *, in_flight: bool) -> bool:
        """Whether a table lacks the rows of ``last``, the last batch of the ledger; see ``StreamTables.lack``."""

    def settle(self) -> None:
        """Wait until nothing that it began beside its batches writes to its tables any more."""

    def processor(self, attempt: Attempt) -> Processor:
        """The processor of one run; it recovers its state at its first batch."""
