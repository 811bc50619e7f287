"""The work of one stream that a runner runs, and the computation of a batch, chosen by the topology's shape.

Lease, source, status and stop are the runner's. A computation does not commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recount.declare.changes import NOTHING_ADDED, Additions
from recount.declare.fingerprint import Declared
from recount.declare.operators.event_time import Layers
from recount.engine.commit.delta_table import TableFile
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import Planned
from recount.engine.stage.intake import HEADERS, INPUT_COLUMNS, OUTPUT_SCHEMA, from_ipc, map_function
from recount.engine.state.keyed_rows import StateUse
from recount.engine.upkeep.memory import DriverMemory
from recount.kafka.transaction import OutputTransaction
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof, TopicIds

Step = Literal["mapped", "kafka committed", "delta committed"]
_HEADERS = "array<struct<key: string, value: binary>>"


class Observer(Protocol):
    """Called as a batch completes a step: so the chaos tests kill a driver at a chosen point."""

    def __call__(self, step: Step, batch: int) -> None: ...


def unobserved(step: Step, batch: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of a stream: under which lease, on which checkpoint, with which producer.

    ``generation`` is the checkpoint's place in the stream's history, see ``BatchProof``. ``fingerprint`` is that of
    the declaration that is run, ``closed_ms`` the frontier at which all is closed that was before an upgrade, ``added``
    what upgrades have added to it; ``version`` counts the stream's resets from 1. ``topic_ids``
    returns the ids of the stream's topics, and raises where one that it reads has been recreated.
    ``set_aside`` are the offsets of records that the stream goes on without, by topic and partition.
    ``published`` says that Kafka has the batches of this run already. ``memory`` is that of the driver now.
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
    memory: Callable[[], DriverMemory] = DriverMemory.now


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
    """The function that ``foreachBatch`` calls; ``last`` is the last batch that it committed."""

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
    history: Proofs
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


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The results of a batch, before anything of it is written.

    ``emitted`` holds by table the rows that a sink writes, with the columns of its output table, unless tasks have
    written them to ``files`` (``BatchRows.files``); ``records`` the ``record_columns`` of all. ``lookups`` says how
    many rows asked each lookup, and how many of them found none.
    """

    after: PartitionClock
    state: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame
    emitted: Mapping[str, pl.DataFrame]
    records: Mapping[str, pl.DataFrame]
    files: Mapping[str, Sequence[TableFile]] = field(default_factory=dict)
    lookups: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Stage(Protocol):
    """The work of the tasks on a batch's records: tables leave each task, under the names of ``empty_tables``."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]: ...

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The tables without rows, to which those of the tasks are added."""


def given(records: DataFrame) -> DataFrame:
    # never null: Arrow counts a batch's rows again for each null list, see ``recompute.raw_log.headers_never_null``
    headers = [F.coalesce(HEADERS, F.array().cast(_HEADERS))] if HEADERS in records.columns else []
    return records.select(*INPUT_COLUMNS, *(one.alias(HEADERS) for one in headers))


def staged(records: DataFrame, stage: Stage) -> dict[str, pl.DataFrame]:
    """The tables that ``stage`` makes of ``records``, those of all tasks together."""
    sent = given(records).mapInArrow(map_function(stage), OUTPUT_SCHEMA).collect()
    tables = stage.empty_tables()
    for row in sent:
        tables[row.name].append(from_ipc(row.ipc))
    return {name: pl.concat(parts) for name, parts in tables.items()}
