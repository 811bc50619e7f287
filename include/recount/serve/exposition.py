"""Metrics of every declared stream in Prometheus' text format: its last status, ledger, tables, lag and audits.

Kafka's client waits long for brokers that do not answer. A scrape does not: its calls run in threads of their own, and
what has not come in time is left out.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Generic, TypeVar

from confluent_kafka import KafkaException
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recount.declare.groups import Archive
from recount.declare.registry import Stream
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.lags import LagWatch, StreamLag, lags_of
from recount.kafka.offsets import Partition
from recount.kafka.positions import last_position, position_key
from recount.kafka.status import StatusBoard, StreamStatus, gauge, of_status
from recount.runtime.errors import RecountError
from recount.serve.answer import Audits, JudgedTo, reading
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

_LOG = logging.getLogger(__name__)
_PARTITION = ("stream", "topic", "partition")
Result = TypeVar("Result")
_POSITION_KEPT_S = 300.0
_POSITION_PATIENCE_S = 2.0


class PatientCall(Generic[Result]):
    """Makes one call at a time and waits for at most ``patience_s`` seconds; ``what`` names whom it asks.

    While a call that took longer still runs, nobody waits for another one.
    """

    def __init__(self, what: str, patience_s: float) -> None:
        self.problem: str | None = None
        self._what = what
        self._patience_s = patience_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=what)
        self._overdue: Future[Result] | None = None

    def __call__(self, call: Callable[[], Result]) -> Result | None:
        """The result of ``call``; None where it did not come in time or failed, and then ``problem`` says why."""
        if self._overdue is not None and not self._overdue.done():
            return None
        asked = self._pool.submit(call)
        try:
            found = asked.result(self._patience_s)
        except Late:
            if not asked.cancel():
                self._overdue = asked
            self.problem = f"the {self._what} have not answered within {self._patience_s:g} s"
        except (RecountError, KafkaException) as error:
            self.problem = f"the {self._what} cannot be asked: {error}"
        else:
            self.problem = None
            return found
        _LOG.warning("%s", self.problem)
        return None


@dataclass(frozen=True, kw_only=True)
class BrokerReading:
    """``statuses`` and ``lags`` by stream; a status has the lag that is given here, not the driver's.

    Of lags that the brokers did not say in time there are none.
    """

    statuses: Mapping[str, StreamStatus] = field(default_factory=dict)
    lags: Mapping[str, StreamLag] = field(default_factory=dict)


class BrokerReader:
    """Asks the brokers in threads of its own, one question at a time, for at most ``patience_s`` seconds.

    ``topics`` are those that each stream reads. All who ask within seconds get the same lags.
    """

    def __init__(self, connection: Connection, topics: Mapping[str, Collection[str]], patience_s: float = 5.0) -> None:
        self._connection = connection
        self._ask: PatientCall[Mapping[str, StreamStatus]] = PatientCall("brokers", patience_s)
        self._ask_lags: PatientCall[Mapping[str, StreamLag]] = PatientCall("leaders of partitions", patience_s)
        self._lags = LagWatch(lambda asked: lags_of(connection, asked, self._read_to))
        for stream, read in topics.items():
            self._lags.follow(stream, read)
        self._board: StatusBoard | None = None
        self._statuses: Mapping[str, StreamStatus] = {}
        self._positions: dict[str, tuple[float, Mapping[Partition, int]]] = {}

    @property
    def problem(self) -> str | None:
        return self._ask.problem

    @property
    def lag_problem(self) -> str | None:
        return self._ask_lags.problem

    def __call__(self) -> BrokerReading | None:
        """The newest reading; None where the brokers have not answered in time."""
        statuses = self._ask(self._read)
        if statuses is None:
            return None
        self._statuses = statuses
        lags = self._ask_lags(self._lags.now) or {}
        told = {
            name: replace(status, lag=lags[name].records, lag_at_ms=lags[name].at_ms) if name in lags else status
            for name, status in statuses.items()
        }
        return BrokerReading(statuses=told, lags=lags)

    def _read(self) -> Mapping[str, StreamStatus]:
        if self._board is None:
            self._board = StatusBoard(self._connection)
        try:
            return self._board.latest()
        except BaseException:
            self._board.close()
            self._board = None
            raise

    def _read_to(self, stream: str) -> Mapping[Partition, int]:
        """Where a stream stands whose group has no offsets: Kafka forgets them some days after the last commit."""
        if stream not in self._statuses:
            return {}
        asked_s, found = self._positions.get(stream, (float("-inf"), {}))
        if time.monotonic() - asked_s > _POSITION_KEPT_S:
            found = self._last_position(stream)
            self._positions[stream] = time.monotonic(), found
        return found

    def _last_position(self, stream: str) -> Mapping[Partition, int]:
        key = position_key(self._connection, self._connection.group(stream))
        try:
            position = last_position(self._connection, key, patience_s=_POSITION_PATIENCE_S)
        except RecountError:
            return {}
        return {} if position is None else {place: end for place, (_, end) in position.spans.items()}


Ask = Callable[[], BrokerReading | None]


@dataclass(frozen=True, kw_only=True)
class StreamTablesReading:
    """Readings of a stream's tables: its newest batch and audit, and by table rows (None: unknown), bytes, files."""

    newest: BatchProof | None
    judged: JudgedTo | None
    sizes: Mapping[str, tuple[int | None, int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposition(Collector):
    """Metrics of ``streams``, whose tables are below ``tables``; ``ask`` asks the brokers.

    ``recount_source_up`` says which of the two could be read. What could not is left out, and no old value is shown.
    """

    tables: Tables
    streams: Sequence[Stream]
    ask: Ask
    _lock: Lock = field(default_factory=Lock)

    def rendered(self) -> bytes:
        """All of it. One scrape at a time: they would read the same."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        with self._lock:
            return generate_latest(registry)

    def describe(self) -> Iterator[Metric]:
        """Nothing: to know the names the tables would be read."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        found = {stream.name: self._read(stream) for stream in self.streams}
        known = {stream: one for stream, one in found.items() if one is not None}
        ends = {
            (stream, part.topic, part.partition): part.end
            for stream, one in known.items()
            for part in (one.newest.partitions if one.newest else ())
        }
        broker = self.ask()
        sources = [(["tables"], len(known) == len(found)), (["kafka"], broker is not None)]
        yield gauge("source_up", "Whether it could be read", ["source"], sources)
        yield from _of_tables(known)
        yield gauge("partition_read_offset", "Where the last batch ended", _PARTITION, ends.items())
        if broker is not None:
            yield from of_status({name: broker.statuses[name] for name in found if name in broker.statuses})
            lags = {
                (stream, *place): part.lag
                for stream in found
                if stream in broker.lags
                for place, part in broker.lags[stream].partitions.items()
            }
            help_text = "Offsets from what is committed to the end of the log, as kafka-consumer-groups tells"
            yield gauge("partition_lag_offsets", help_text, _PARTITION, lags.items())

    def _read(self, stream: Stream) -> StreamTablesReading | None:
        try:
            with reading(stream.name):
                newest = self._proofs(stream).newest()
                sizes = {
                    name: size_of(DeltaTable(path))
                    for name, path in self._paths(stream).items()
                    if DeltaTable.is_deltatable(path)
                }
                judged = None
                if isinstance(stream, Topology) and newest is not None:
                    judged = Audits.of(self.tables, stream).judged_to(newest.order)
                return StreamTablesReading(newest=newest, judged=judged, sizes=sizes)
        except RecountError as error:
            _LOG.warning("the tables of %s cannot be read: %s", stream.name, error)
            return None

    def _proofs(self, stream: Stream) -> Proofs:
        if isinstance(stream, Archive):
            return Proofs(state=self.tables.archive(stream.topic.name))
        return Proofs(state=self.tables.state(stream.name), moved_to=self.tables.ledger(stream.name))

    def _paths(self, stream: Stream) -> Mapping[str, str]:
        of, name = self.tables, stream.name
        if isinstance(stream, Archive):
            return {f"archive/{stream.topic.name}": of.archive(stream.topic.name)}
        paths = {"state": of.state(name), "ledger": of.ledger(name)}
        paths |= {"late": of.late(name), "rejected": of.rejected(name)}
        for written in stream.written:
            paths[f"outputs/{written.table}"] = of.output(written.table)
            paths[f"corrections/{written.table}"] = of.corrections(written.table)
        return paths


def size_of(table: DeltaTable) -> tuple[int | None, int, int]:
    """Rows, bytes and files of the newest version. Spark notes no rows, and then they are unknown."""
    files = table.get_add_actions()
    rows, sizes = (files.column(name).to_pylist() for name in ("num_records", "size_bytes"))
    return None if None in rows else sum(rows), sum(sizes), len(sizes)


def _of_tables(known: Mapping[str, StreamTablesReading]) -> Iterator[Metric]:
    sizes = {(stream, table): size for stream, one in known.items() for table, size in one.sizes.items()}
    for number, (name, text) in enumerate(
        {"rows": "Rows", "bytes": "Bytes of data files", "files": "Data files"}.items()
    ):
        text = f"{text} in the newest version of a table"
        told = [(place, size[number]) for place, size in sizes.items()]
        yield gauge(f"table_{name}", text, ["stream", "table"], told)
    batches = [((stream,), one.newest) for stream, one in known.items() if one.newest is not None]
    recorded = [(place, proof.batch_timestamp_ms / 1_000) for place, proof in batches]
    yield gauge("stream_batch", "Number of the newest batch", ["stream"], [(p, proof.batch) for p, proof in batches])
    yield gauge("stream_batch_timestamp_seconds", "When the newest batch was recorded", ["stream"], recorded)
    judged = [((stream,), one.judged) for stream, one in known.items() if one.judged is not None]
    match = [(place, one.outcome == "match") for place, one in judged]
    finished = [(place, one.finished_ms / 1_000) for place, one in judged]
    yield gauge("audit_match", "Whether the newest audit is a match", ["stream"], match)
    yield gauge("audit_timestamp_seconds", "When the newest audit ended", ["stream"], finished)
