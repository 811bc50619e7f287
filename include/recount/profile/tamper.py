"""Tampers with an output, to prove the prover: whatever it does, the next audit must find.

It writes where the stream writes (the sink's topic and Delta table), never to anything of the audit. Each kind:

* ``duplicate``: a result is published a second time.
* ``loss``: a result is deleted from the Delta table. (From the middle of a Kafka topic nobody can delete.)
* ``alter``: a result is published again with another value, and changed in the table.
* ``extra``: a result that no record makes is published and appended.
* ``replay``: a batch is counted twice in one result: published again and changed in the table.
* ``boundary``: a result's window is moved by one millisecond: published again and changed in the table.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Literal, Self, get_args

import typer
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.kept_log import log_of, sources_of
from recount.audit.explain.causes import shares_of
from recount.declare.columns import RESULT_TIME, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, Sink
from recount.declare.output import kafka_time_ms, output_record
from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows
from recount.formats.registry_encoders import encoder_of
from recount.kafka.connection import Connection
from recount.recompute.operators.recomputed import recomputed
from recount.recompute.registry_parsing import is_with_headers
from recount.recompute.rules.result_rules import adds_up
from recount.recompute.spark_columns import named
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.places import Tables

Kind = Literal["duplicate", "loss", "alter", "extra", "replay", "boundary"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_FAR_WINDOWS = 10_000
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """The kind of a change, and the result before it."""

    kind: Kind
    key: str
    window_start: int
    window_end: int


@dataclass(frozen=True, kw_only=True)
class _Tampered:
    """The one sink of a topology, which has the results of one aggregation over time windows."""

    topology: Topology
    sink: Sink
    aggregates: Sequence[str]
    windows: TimeWindows

    @classmethod
    def of(cls, topology: Topology) -> Self:
        [sink] = topology.sinks
        made_by = sink.input
        assert adds_up(made_by) and isinstance(made_by.windows, TimeWindows)
        return cls(topology=topology, sink=sink, aggregates=list(made_by.aggregates), windows=made_by.windows)

    @property
    def group(self) -> list[str]:
        return [self.sink.input.key, WINDOW_START, WINDOW_END]


def mutate(session: SparkSession, settings: Settings, topology: Topology, kind: Kind) -> Mutation:
    """Tamper with one result of ``topology``; each kind has a victim of its own.

    Raises ``Terminal`` when the stream has written fewer results than there are kinds.
    """
    flow = _Tampered.of(topology)
    tables = Tables(settings.data)
    output = DeltaTable.forPath(session, tables.output(flow.sink.table))
    victim = _victim(output.toDF(), flow, KINDS.index(kind))
    connection = Connection.of(settings)
    match kind:
        case "duplicate":
            _publish(connection, flow, victim)
        case "loss":
            output.delete(_is(victim, flow))
        case "alter":
            _replace(connection, output, flow, victim, {name: _changed(victim[name]) for name in flow.aggregates})
        case "extra":
            rogue = _moved(victim, _FAR_WINDOWS * flow.windows.size_ms)
            _publish(connection, flow, rogue)
            _append(session, output, rogue, tables.output(flow.sink.table))
        case "replay":
            share = _share_of_a_batch(session, settings, flow, victim)
            added = {name: victim[name] + value for name, value in share.items()}
            _replace(connection, output, flow, victim, added)
        case "boundary":
            _replace(connection, output, flow, victim, _bounds(_moved(victim, 1)))
    return Mutation(
        kind=kind,
        key=str(victim[flow.sink.input.key]),
        window_start=victim[WINDOW_START],
        window_end=victim[WINDOW_END],
    )


def main(
    stream: Annotated[str, typer.Option(help="The stream whose output is tampered with.")],
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")],
) -> None:
    """Tamper with one result of a stream, and say which."""
    from recount.tables.spark_session import spark_session

    chosen = next((known for known in KINDS if known == kind), None)
    if chosen is None:
        raise Terminal.of("no-such-mutation", given=kind, kinds=", ".join(KINDS))
    settings = Settings.from_environment(os.environ)
    session = spark_session(settings, f"recount mutation {kind}")
    try:
        print(mutate(session, settings, declared(settings.topologies).topology(stream), chosen))
    finally:
        session.stop()


def _victim(rows: DataFrame, flow: _Tampered, place: int) -> Row:
    found = rows.orderBy(*map(named, flow.group[1:]), named(flow.sink.input.key), REVISION).limit(place + 1).collect()
    if len(found) <= place:
        raise Terminal.of("too-few-results", given=len(found), least=place + 1)
    return found[place].asDict()


def _is(row: Row, flow: _Tampered) -> Column:
    condition: Column = _in_group(row, flow) & (F.col(REVISION) == row[REVISION])
    return condition


def _in_group(row: Row, flow: _Tampered) -> Column:
    equal: list[Column] = [named(name) == F.lit(row[name]) for name in flow.group]
    condition: Column = reduce(lambda one, other: one & other, equal)
    return condition


def _replace(connection: Connection, output: DeltaTable, flow: _Tampered, victim: Row, changed: Row) -> None:
    _publish(connection, flow, {**victim, **changed})
    output.update(_is(victim, flow), {name: F.lit(value) for name, value in changed.items()})


def _publish(connection: Connection, flow: _Tampered, row: Row) -> None:
    record = output_record(
        row,
        key=flow.sink.key,
        fields=flow.sink.fields,
        timestamp_ms=row[RESULT_TIME],
        revision=row[REVISION],
        origin="stream",
        encode=encoder_of(flow.sink),
    )
    producer = connection.producer()
    producer.produce(
        flow.sink.topic.name,
        value=record.value,
        key=record.key,
        headers=list(record.headers),
        timestamp=kafka_time_ms(record.timestamp_ms),
    )
    producer.flush(30)


def _append(session: SparkSession, output: DeltaTable, row: Row, path: str) -> None:
    schema = output.toDF().schema
    session.createDataFrame([tuple(row[name] for name in schema.names)], schema).write.format("delta").mode(
        "append"
    ).save(path)


def _moved(row: Row, by_ms: int) -> Row:
    return {**row, WINDOW_START: row[WINDOW_START] + by_ms, WINDOW_END: row[WINDOW_END] + by_ms}


def _bounds(row: Row) -> Row:
    return {name: row[name] for name in (WINDOW_START, WINDOW_END)}


def _changed(value: Any) -> Any:
    return f"{value}'" if isinstance(value, str) else 1 if value is None else value + 1


def _share_of_a_batch(session: SparkSession, settings: Settings, flow: _Tampered, victim: Row) -> Row:
    """Counts and sums that the first batch has added to the victim, by the log."""
    topology, [source] = flow.topology, flow.topology.sources
    tables, connection = Tables(settings.data), Connection.of(settings)
    ledger, log = Ledger.read(tables, topology.name), log_of(settings, sources_of(connection, tables, topology, "auto"))
    ranges, topic = ledger.ranges, source.topic.name
    raw = log.read(session, topic, ranges[topic], with_headers=is_with_headers(source))
    found = recomputed(session, topology, {topic: raw})
    try:
        group = (str(victim[flow.sink.input.key]), victim[WINDOW_START], victim[WINDOW_END])
        return shares_of([group], flow.sink, found, ledger)[group][0].added
    finally:
        found.release()


if __name__ == "__main__":
    typer.run(main)
