"""Metrics of every declared stream in Prometheus' text format: its last status, ledger, tables, lag and audits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from recount.declare.groups import Archive
from recount.declare.registry import Stream
from recount.declare.topology import Topology
from recount.kafka.status import gauge, of_status
from recount.runtime.errors import RecountError
from recount.serve.answer import reading
from recount.serve.broker_reading import BrokerReading
from recount.serve.moment import Audits, JudgedTo
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

_LOG = logging.getLogger(__name__)
_PARTITION = ("stream", "topic", "partition")


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
        """The families."""
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
                newest = next(self._proofs(stream).newest_first(), None)
                sizes = {
                    name: size_of(DeltaTable(path))
                    for name, path in self._paths(stream).items()
                    if DeltaTable.is_deltatable(path)
                }
                judged = None
                if isinstance(stream, Topology) and newest is not None:
                    judged = Audits.of(self.tables, stream).judged_to(newest.proof.order)
                return StreamTablesReading(newest=None if newest is None else newest.proof, judged=judged, sizes=sizes)
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
