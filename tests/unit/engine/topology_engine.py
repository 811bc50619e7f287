"""The engine's general way without Spark, Kafka and Delta: its stage and graph on Arrow batches in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
from tests.unit.engine.engine import NOW_MS, LogRecord, arrow_batch

from recount.declare.aggregates import SumTooLarge
from recount.declare.columns import BATCH, GENERATION
from recount.declare.topology import Topology
from recount.engine.exchange.dealing import Sent
from recount.engine.exchange.graph_computation import RAW, GraphComputation, RawStage
from recount.engine.exchange.graph_part import GraphPart
from recount.engine.exchange.work import Computed, Stage
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.intake import from_ipc
from recount.engine.stage.record_stage import TOTALS, RecordStage
from recount.engine.state.graph_state import STATE_SCHEMA, Part, since_snapshot

Log = Mapping[str, Sequence[LogRecord]]
"""By topic its records, each partition's in offset order."""


@dataclass
class TopologyEngine:
    """Runs ``topology`` batch by batch over topics of ``partitions`` and keeps all that was made.

    Where its keys can be dealt out there are ``parts`` of them.
    """

    topology: Topology
    partitions: Mapping[str, int]
    computation: GraphComputation = field(init=False)
    clock: PartitionClock = field(default_factory=lambda: PartitionClock.after(None))
    computed: list[Computed] = field(default_factory=list)
    state: pl.DataFrame = field(init=False)
    now_ms: int = NOW_MS
    parts: int = 1

    def __post_init__(self) -> None:
        self.computation = GraphComputation(self.topology)
        order = {GENERATION: pl.Int32(), BATCH: pl.Int64()}
        self.state = pl.DataFrame(schema={**STATE_SCHEMA, **order})
        self._begin()
        self._ends = {(topic, p): 0 for topic, count in self.partitions.items() for p in range(count)}

    def batch(self, log: Log, now_ms: int = NOW_MS) -> Computed:
        """Process the next records of each topic."""
        start = dict(self._ends)
        end = {place: start[place] + len(_in(log, place)) for place in start}
        span = BatchRange(batch=len(self.computed), timestamp_ms=now_ms, start=start, end=end)
        stage = self.computation.plan.stage(span, self.clock)
        batches = [arrow_batch(*place, first, _in(log, place)) for place, first in start.items()]
        self._ends = end
        try:
            made = self._made(stage, batches, span)
        except SumTooLarge as error:
            raise self.computation.with_its_record(
                error, lambda stage: _tables(stage, batches), span, self.clock
            ) from None
        computed = self.computation.computed(
            made, span, self.clock, lambda places: _tables(RawStage.of(places), batches)[RAW]
        )
        self.clock = computed.after
        order = [pl.lit(0, pl.Int32).alias(GENERATION), pl.lit(span.batch, pl.Int64).alias(BATCH)]
        self.state = pl.concat([self.state, computed.state.with_columns(order)])
        self.computed.append(computed)
        return computed

    def restart(self, parts: int | None = None) -> None:
        """Forget all but what is written; go on with so many ``parts``."""
        self.parts = parts or self.parts
        self.computation = GraphComputation(self.topology)
        self.computation.load(self.state.lazy())
        self._begin()

    def _begin(self) -> None:
        many = self.parts if self.computation.plan.dealing is not None else 1
        numbers = range(many) if many > 1 else ()
        self._parts = [GraphPart(self.computation.plan, Part(number=n, parts=many)) for n in numbers]
        for part in self._parts:
            part.load(since_snapshot(self.state.lazy()))

    def _made(
        self, stage: RecordStage, batches: Sequence[pa.RecordBatch], span: BatchRange
    ) -> Mapping[str, pl.DataFrame]:
        """The tables of all parts."""
        if not self._parts:
            return self.computation.processed(_tables(stage, batches), span, self.clock, self._published)
        dealing = self.computation.plan.dealing
        assert dealing is not None
        sent = [
            one
            for task, batch in enumerate(batches)
            for one in dealing.dealt(stage.tables(iter([batch])), len(self._parts), task)
        ]
        made = {name: list(parts) for name, parts in stage.empty_tables().items()}
        made |= {name: [pl.DataFrame(schema=schema)] for name, schema in self.computation.plan.made_schemas.items()}
        for number, part in enumerate(self._parts):
            schemas = part.input_schemas
            tables = {
                name: pl.concat([pl.DataFrame(schema=schema), *_of(sent, number, name)])
                for name, schema in schemas.items()
            }
            for name, rows in part.process(
                tables, span, self.clock, whole=self.computation._is_much, published=self._published
            ).items():
                made[name].append(rows)
            for name in made.keys() - schemas.keys():
                made[name] += _of(sent, number, name)
        made[TOTALS] += _of(sent, 0, TOTALS)
        return {name: pl.concat(parts) for name, parts in made.items()}

    def _published(self, table: str) -> pl.LazyFrame:
        return self.emitted(table).lazy()

    def emitted(self, table: str) -> pl.DataFrame:
        """All rows of an output table so far."""
        return pl.concat([computed.emitted[table] for computed in self.computed])

    @property
    def late(self) -> pl.DataFrame:
        """The late ledger."""
        return pl.concat([computed.late for computed in self.computed])


def _tables(stage: Stage, batches: Sequence[pa.RecordBatch]) -> dict[str, pl.DataFrame]:
    """What ``stage`` makes of ``batches``, of which each goes to a task of its own."""
    tables = stage.empty_tables()
    for batch in batches:
        for sent in stage(iter([batch])):
            for name, payload in zip(*sent.to_pydict().values(), strict=True):
                tables[name].append(from_ipc(payload))
    return {name: pl.concat(parts) for name, parts in tables.items()}


def _of(sent: Sequence[Sent], part: int, name: str) -> list[pl.DataFrame]:
    return [rows for number, table, rows in sent if (number, table) == (part, name)]


def _in(log: Log, place: tuple[str, int]) -> list[LogRecord]:
    topic, partition = place
    return [record for record in log.get(topic, ()) if record.partition == partition]
