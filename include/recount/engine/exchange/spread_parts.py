"""The parts of a stream's keys in Spark's tasks: an exchange brings each part the rows of its keys.

Spark runs a task on the executor that has a cached row of it. The frame ``homes`` has one row for each part and is
cached. A batch is grouped together with it, so that the task of a part runs on the executor with its row, batch after
batch. Where that executor is lost, another one makes the row again, and the part moves there.
"""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import uuid4

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from recount.engine.commit.stream_tables import Order, StreamTables
from recount.engine.exchange.dealing import Dealing
from recount.engine.exchange.graph_part import GraphPlan
from recount.engine.exchange.part_hosts import FAILED, Request, ask
from recount.engine.exchange.work import given
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.intake import from_ipc, map_function, to_ipc
from recount.engine.stage.record_stage import TOTALS, RecordStage
from recount.runtime.errors import Transient

_SENT = "part int, task int, name string, ipc binary"
_SENT_SCHEMA = pa.schema([("part", pa.int32()), ("task", pa.int32()), ("name", pa.string()), ("ipc", pa.binary())])
_MADE = "part int, name string, ipc binary"
_MADE_SCHEMA = pa.schema([("part", pa.int32()), ("name", pa.string()), ("ipc", pa.binary())])


@dataclass(frozen=True, kw_only=True)
class DealtStage:
    """The ``stage`` of a batch, whose tables leave each task dealt out to ``parts``."""

    stage: RecordStage
    dealing: Dealing
    parts: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition in, blobs for parts out."""
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context else 0
        for part, name, rows in self.dealing.dealt(self.stage.tables(batches), self.parts, task):
            yield pa.record_batch([[part], [task], [name], [to_ipc(rows, "lz4")]], schema=_SENT_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class PartTask:
    """The work of the task that has one part: passes its rows to the process that holds the part."""

    request: Request

    def __call__(self, home: pa.Table, sent: pa.Table) -> pa.Table:
        """The part's row of ``homes`` and what was ``sent`` to it in; the tables that it makes out."""
        number = home.column("part")[0].as_py()
        in_order = sent.sort_by("task").to_pydict()
        tables = tuple(zip(in_order["name"], in_order["ipc"], strict=True))
        made = ask(replace(self.request, number=number, tables=tables))
        return pa.table([[number] * len(made), [name for name, _ in made], [ipc for _, ipc in made]], _MADE_SCHEMA)


def tasks_see(session: SparkSession, path: str, tasks: int) -> bool:
    """Whether each of so many ``tasks`` finds the table at ``path`` that is there for the driver.

    On a cluster they do on storage that all share.
    """
    table = DeltaTable(path).metadata().id

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sees = DeltaTable.is_deltatable(path) and DeltaTable(path).metadata().id == table
            yield pa.record_batch([[sees] * batch.num_rows], names=["sees"])

    return all(row.sees for row in _numbers(session, tasks).mapInArrow(look, "sees boolean").collect())


def _numbers(session: SparkSession, parts: int) -> DataFrame:
    """A row for each part, in the task of that part."""
    return session.range(parts).selectExpr("cast(id as int) part").repartitionById(parts, "part")


class SpreadParts:
    """The ``parts`` of the keys of ``plan``, held by tasks, which read and write files of its ``tables``."""

    def __init__(self, plan: GraphPlan, parts: int, tables: StreamTables) -> None:
        assert plan.dealing is not None, "there can be one part only"
        self._plan, self._dealing, self._parts = plan, plan.dealing, parts
        self._state = tables.state.path
        self._outputs = tables.folders
        self._run = uuid4().hex
        self._homes: DataFrame | None = None

    @cached_property
    def _pickled(self) -> bytes:
        return bytes(cloudpickle.dumps(self._plan))  # type: ignore[no-untyped-call]

    def process(
        self, records: DataFrame, span: BatchRange, clock: PartitionClock, before: Order, *, whole: bool
    ) -> dict[str, pl.DataFrame]:
        """The tables of all parts for the batch ``span`` of ``records``, before which ``clock`` stood.

        Raises what a part raised, of several the first; ``Transient`` where one has not answered.
        """
        request = Request(
            run=self._run,
            parts=self._parts,
            plan=self._pickled,
            state=self._state,
            before=before,
            span=span,
            clock=clock,
            whole=whole,
            outputs=self._outputs,
        )
        stage = self._plan.stage(span, clock, before, self._outputs)
        dealt = DealtStage(stage=stage, dealing=self._dealing, parts=self._parts)
        sent = given(records).mapInArrow(map_function(dealt), _SENT).repartitionById(self._parts, "part")
        homes = self._homes_of(records.sparkSession)
        together = homes.groupBy("part").cogroup(sent.groupBy("part"))
        task = PartTask(request=request)
        made = together.applyInArrow(lambda home, rows: task(home, rows), _MADE).collect()
        return self._joined(stage, sorted(made, key=lambda row: row.part))

    def _homes_of(self, session: SparkSession) -> DataFrame:
        if self._homes is None:
            self._homes = _numbers(session, self._parts).persist()
        return self._homes

    def _joined(self, stage: RecordStage, made: Sequence) -> dict[str, pl.DataFrame]:  # type: ignore[type-arg]
        missing = set(range(self._parts)) - {row.part for row in made}
        if missing:
            raise Transient.of("parts-unanswered", given=f"no answer of the parts {sorted(missing)}", parts=self._parts)
        for row in made:
            if row.name == FAILED:
                raise pickle.loads(row.ipc)  # noqa: S301 - from our own tasks
        schemas = {name: parts[0].schema for name, parts in stage.empty_tables().items()}
        tables = {
            name: [pl.DataFrame(schema=schema)] for name, schema in {**schemas, **self._plan.made_schemas}.items()
        }
        for row in made:
            # all parts have the totals alike
            if row.name != TOTALS or row.part == 0:
                tables[row.name].append(from_ipc(row.ipc))
        return {name: pl.concat(parts) for name, parts in tables.items()}
