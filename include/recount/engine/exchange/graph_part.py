"""One part of a stream's keys: the operators of its graph, their state, and what a batch makes of the part's rows.

The driver holds the only part of a stream whose keys are not dealt out; else tasks hold the parts, each the same keys
from batch to batch. Tables come in and tables go out, by name, so that both can cross processes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import polars as pl

from recount.declare.changes import NOTHING_ADDED, Additions
from recount.declare.columns import STREAM_TIME
from recount.declare.operators.keys_and_fields import topics_needing_a_key
from recount.declare.operators.nodes import Node
from recount.declare.operators.processing import Deduplicate
from recount.declare.topology import Topology
from recount.engine.commit.output_records import RECORD_SCHEMA, encoded_values, record_columns, records_as
from recount.engine.commit.stream_tables import FILES, FILES_SCHEMA, STATE, Order, filed, output_name
from recount.engine.exchange.dealing import Dealing, dealing_of, refused_table
from recount.engine.operators.batch_graph import Graph, Made
from recount.engine.operators.batch_operator import FATE, FATE_SCHEMA, FATES, TIMES_SCHEMA, Batch, Published, time_frame
from recount.engine.operators.batch_processing import key_column
from recount.engine.operators.batch_rows import (
    ENTRY,
    META,
    OFFSET,
    ORDER,
    PARTITION,
    REACHED,
    TOPIC,
    as_written,
    origin,
    written_schema,
)
from recount.engine.operators.batch_suppression import IDENTITY
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.operators.set_aside import RAISED_SCHEMA
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.intake import IN_SECONDS, LATE_SCHEMA
from recount.engine.stage.record_stage import (
    GOOD,
    SET_ASIDE,
    TIMES,
    TOTALS,
    TOTALS_SCHEMA,
    VALUE,
    WRITTEN,
    RecordStage,
    RecordSteps,
)
from recount.engine.state.graph_state import STATE_SCHEMA, WHOLE, GraphState, Part

LATE, RAISED, FATES_OF, LOOKUPS, USE = "late", "raised", "fates", "lookups", "use"
RECORDS = "records"
_PARTITION = [TOPIC, PARTITION]
_FATES_SCHEMA: dict[str, pl.DataType] = {**FATE_SCHEMA, RECORDS: pl.Int64()}
_LOOKUPS_SCHEMA = {"lookup": pl.String(), "asked": pl.Int64(), "missed": pl.Int64()}
_USE_SCHEMA = {"state": pl.String(), **dict.fromkeys(("rows", "bytes", "puts", "gets", "written"), pl.Int64())}


NOWHERE: Mapping[str, str] = MappingProxyType({})
"""Tasks write no tables."""


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """The work on ``topology``, to which upgrades ``added`` something: what tasks do, and what parts go on with.

    For ``closed_ms`` see ``WindowedOperator``.
    """

    topology: Topology
    added: Additions = NOTHING_ADDED
    closed_ms: int | None = None

    @cached_property
    def steps(self) -> RecordSteps:
        """The operators that need nothing but a row."""
        return RecordSteps(self.topology)

    @cached_property
    def dealing(self) -> Dealing | None:
        """How rows are dealt out to parts; None where there can be one part only."""
        return dealing_of(self.topology, self.steps)

    def stage(
        self, span: BatchRange, clock: PartitionClock, order: Order = (0, 0), outputs: Mapping[str, str] = NOWHERE
    ) -> RecordStage:
        """The work of the tasks on the batch ``span``, before which ``clock`` stood; see ``RecordStage``."""
        return RecordStage(
            stood=clock.stream_times,
            steps=self.steps,
            sources={source.topic.name: source for source in self.topology.sources},
            keyed=topics_needing_a_key(self.topology),
            latest_ms=span.timestamp_ms + self.topology.max_future_ms,
            set_aside=span.set_aside,
            order=order,
            outputs=outputs,
        )

    def advanced(self, clock: PartitionClock, span: BatchRange, totals: pl.DataFrame) -> PartitionClock:
        """The ``clock`` after the batch ``span``, of whose partitions tasks have said the ``totals``."""
        stood = time_frame(clock.stream_times).rename({STREAM_TIME: "stood"})
        records = (pl.col(GOOD) + pl.col("dead_lettered")).alias(RECORDS)
        counted = totals.join(stood, on=_PARTITION, how="left").select(
            *_PARTITION, pl.max_horizontal(REACHED, "stood").alias(STREAM_TIME), *(IN_SECONDS, "dead_lettered", records)
        )
        return clock.advanced(span, counted, self.topology.idle_after_ms, self.topology.layers)

    @property
    def made_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        own = {STATE: STATE_SCHEMA, LATE: LATE_SCHEMA, RAISED: RAISED_SCHEMA}
        counts = {FILES: FILES_SCHEMA, FATES_OF: _FATES_SCHEMA, LOOKUPS: _LOOKUPS_SCHEMA, USE: _USE_SCHEMA}
        sinks = [sink for sink in self.topology.written if sink not in self.steps.nodes]
        written = {emitted_as(sink.table): {**written_schema(sink.fields), VALUE: pl.Binary()} for sink in sinks}
        records = {records_as(sink.table): RECORD_SCHEMA for sink in sinks}
        return {**own, **counts, **written, **records}


def emitted_as(table: str) -> str:
    """The name under which the rows of the output ``table`` leave a part, each with its encoded ``VALUE``."""
    return f"emitted {table}"


class GraphPart:
    """The ``part`` of the keys of ``plan``: takes its rows batch by batch. After an error it is of no use any more."""

    def __init__(self, plan: GraphPlan, part: Part = WHOLE) -> None:
        self._plan = plan
        self.graph = Graph(plan.topology, done_before=plan.steps.nodes, added=plan.added, closed_ms=plan.closed_ms)
        self._part = Part(number=part.number, parts=part.parts, by=self._keys) if part.parts > 1 else part
        self._state = GraphState(self.graph.states, self.graph.clocks, self._part)
        self._numbers = dict(enumerate(plan.topology.nodes()))
        self._must_write_whole = False
        # a record of which several rows leave a task may go to several parts: only the driver sees all of its fates
        self._sees_all_fates = max(Counter(plan.steps.topics.values()).values(), default=1) == 1

    @property
    def input_schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """The columns of the tables of tasks that a part reads; others pass it by."""
        steps, own = self._plan.steps, {TOTALS: TOTALS_SCHEMA, TIMES: TIMES_SCHEMA, SET_ASIDE: RAISED_SCHEMA}
        rows = {name: handed_on.schema for name, handed_on in steps.handed_on.items()}
        begun = {name: one.schema for name, one in steps.reduced.items()}
        sent = self._plan.dealing.schemas if self._plan.dealing and self._part.parts > 1 else {}
        return {**own, WRITTEN: {name: META[name] for name in ENTRY}, **rows, **begun, **sent}

    @property
    def size(self) -> int:
        return self._state.size

    def load(self, since: pl.DataFrame) -> None:
        """Start from the rows ``since`` the last snapshot in the state table."""
        self._must_write_whole = not self._state.load(since)

    def process(
        self,
        tables: Mapping[str, pl.DataFrame],
        span: BatchRange,
        clock: PartitionClock,
        *,
        whole: bool,
        published: Published,
    ) -> dict[str, pl.DataFrame]:
        """The tables that the part makes of its ``tables`` of the batch ``span``, before which ``clock`` stood.

        ``whole``: the batch writes a snapshot. ``published``: see ``Batch``.
        """
        steps, totals = self._plan.steps, tables[TOTALS]
        after = self._plan.advanced(clock, span, totals)
        reached = totals.filter(pl.col(REACHED).is_not_null())
        batch = Batch(
            reached={(row[TOPIC], row[PARTITION]): row[REACHED] for row in reached.iter_rows(named=True)},
            stood=clock.stream_times,
            times=tables[TIMES],
            known=after.partitions.keys(),
            awake={partition for partition, proof in after.partitions.items() if not proof.idle},
            published=published,
        )
        given = {rows.node: rows.rows(tables[name]) for name, rows in steps.handed_on.items()}
        refused = {
            node: tables[refused_table(number)]
            for number, node in self._numbers.items()
            if refused_table(number) in tables
        }
        reduced: dict[Node, pl.DataFrame] = {one.node: tables[name] for name, one in steps.reduced.items()}
        made = self.graph.process(batch, given, tables[SET_ASIDE], tables[WRITTEN], refused, reduced)
        went_on = pl.concat(rows.select(ENTRY) for rows in (*given.values(), tables[WRITTEN]))
        state = self._state.changes(whole=whole or self._must_write_whole)
        self._must_write_whole = False
        return {
            STATE: state,
            LATE: made.late,
            RAISED: made.raised,
            FATES_OF: self._fates(made, went_on),
            LOOKUPS: pl.DataFrame(
                [(name, *counts) for name, counts in made.lookups.items()], _LOOKUPS_SCHEMA, orient="row"
            ),
            USE: self._use(),
            **dict(self._emitted(made)),
        }

    def written(
        self, made: Mapping[str, pl.DataFrame], order: Order, state: str, outputs: Mapping[str, str]
    ) -> dict[str, pl.DataFrame]:
        """The tables that it ``made`` of the batch ``order``, once state and results are in files.

        These lie in the folders of the tables, ``state`` and ``outputs`` by name, and are named in ``FILES``; of the
        results there remain the ``record_columns``.
        """
        left = dict(made)
        rows = {STATE: (STATE, state, left.pop(STATE))}
        for sink in self._plan.topology.written:
            if (results := left.pop(emitted_as(sink.table), None)) is not None:
                left[records_as(sink.table)] = record_columns(sink, results, results[VALUE])
                rows[sink.table] = (output_name(sink.table), outputs[sink.table], results.drop(VALUE))
        return {**left, FILES: filed(rows.values(), order)}

    @property
    def _keys(self) -> dict[str, str]:
        """The column by which each state's rows are dealt out, by the state's name."""
        return {
            name: IDENTITY if isinstance(node, Deduplicate) else key_column(node, state)
            for name, (node, state) in self.graph.owners.items()
        }

    def _fates(self, made: Made, went_on: pl.DataFrame) -> pl.DataFrame:
        """How many records met which fate; each by itself where other parts may know another fate of it."""
        noted = made.fates(went_on if self._sees_all_fates else went_on.unique())
        if not made.raised.is_empty():
            noted = noted.join(made.raised, on=ENTRY, how="anti")
        if not self._sees_all_fates:
            return noted.with_columns(pl.lit(1, pl.Int64).alias(RECORDS)).select(list(_FATES_SCHEMA))
        counted = noted.group_by(*_PARTITION, FATE).agg(pl.len().cast(pl.Int64).alias(RECORDS))
        return counted.with_columns(pl.lit(None, pl.Int64).alias(OFFSET)).select(list(_FATES_SCHEMA))

    def _use(self) -> pl.DataFrame:
        """How the operators use what they remember, and as "" how many rows a start would read."""
        uses = [
            (name, use.rows, use.bytes, use.puts, use.gets, 0)
            for name, use in ((name, state.use) for name, state in self.graph.states.items())
            if self._part.number == 0 or name not in self.graph.clocks
        ]
        return pl.DataFrame([*uses, ("", 0, 0, 0, 0, self._state.written)], _USE_SCHEMA, orient="row")

    def _emitted(self, made: Made) -> Iterator[tuple[str, pl.DataFrame]]:
        for sink, rows in made.written.items():
            written = as_written(rows, sink, origin=pl.lit(origin(rows[ORDER])))
            yield emitted_as(sink.table), written.with_columns(encoded_values(sink, written).alias(VALUE))


def counts_of(fates: pl.DataFrame, raised: pl.DataFrame) -> pl.DataFrame:
    """Per partition how many records met which fate, from the ``fates`` of all parts; what was ``raised`` has none."""
    alone = fates.filter(pl.col(OFFSET).is_not_null())
    first = alone.group_by(ENTRY).agg(pl.col(FATE).to_physical().min().cat.to(fates[FATE].dtype))
    each = first.join(raised, on=ENTRY, how="anti").with_columns(pl.lit(1, pl.Int64).alias(RECORDS))
    met = pl.concat([each.select(*_PARTITION, FATE, RECORDS), fates.filter(pl.col(OFFSET).is_null()).drop(OFFSET)])
    return met.group_by(_PARTITION).agg(
        pl.col(RECORDS).filter(pl.col(FATE) == each).sum().alias(each) for each in FATES
    )
