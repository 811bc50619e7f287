"""Tables of one stream as its page shows them: newest batch, rates, open windows, size of state.

Rates are rows a second between the operators of a stream, as far as its newest batches say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from deltalake import DeltaTable

from recount.declare.groups import Archive
from recount.declare.operators.nodes import Filter, Node, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.declare.operators.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.declare.registry import Stream
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows
from recount.kafka.lags import PartitionLag, StreamLag
from recount.pages.charts import Drawing, drawing
from recount.runtime.errors import RecountError
from recount.runtime.times import told_time
from recount.serve.answer import reading
from recount.serve.exposition import size_of
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof, PartitionProof
from recount.tables.places import Tables

MOST_BATCHES, SPAN_MS = 60, 600_000
"""Rates are of so many batches at most, recorded within ten minutes."""
_ONE_TO_ONE = (WithFields, SelectKey, Select, Peek, Repartition, Through)
_LOG_TAIL_BYTES = 20_000
_AT_ONCE = (Source, Filter, WithFields, SelectKey, Select, FlatMap, Merge, Peek, Repartition, Through)
"""Operators that hold no record back."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Rows a second in the batches that were recorded after ``since_ms`` and up to ``until_ms``.

    ``read`` are by topic the records that were processed, not those that were dead-lettered or had no value;
    ``written`` the rows that went to a table and its topic.
    """

    since_ms: int
    until_ms: int
    read: Mapping[str, float]
    written: Mapping[str, float]

    @classmethod
    def of(cls, newest_first: Iterable[BatchProof]) -> Rates | None:
        """Rates of the newest batches; None where there are no two, or they were recorded at one time."""
        proofs = _recent(newest_first)
        if len(proofs) < 2:
            return None
        until_ms, since_ms = proofs[0].batch_timestamp_ms, proofs[-1].batch_timestamp_ms
        if since_ms >= until_ms:
            return None
        counted = proofs[:-1]  # what the oldest one read came before the time that is measured
        read: dict[str, float] = {}
        written: dict[str, float] = {}
        for proof in counted:
            for part in proof.partitions:
                processed = part.records - part.dead_lettered - part.null_value
                read[part.topic] = read.get(part.topic, 0) + processed
            for table, rows in proof.emitted.items():
                written[table] = written.get(table, 0) + rows
        seconds = (until_ms - since_ms) / 1_000
        return cls(
            since_ms=since_ms,
            until_ms=until_ms,
            read={topic: rows / seconds for topic, rows in read.items()},
            written={table: rows / seconds for table, rows in written.items()},
        )


def leaving(topology: Topology, rates: Rates) -> dict[Node, float]:
    """Rows a second that leave an operator, for the operators of which this is known.

    Known are the sources and what a sink writes. From there it is known of all operators that hand each row on as one
    row; what a filter, a window or a join lets through is known only where it is written, or handed on to that.
    """
    found: dict[Node, float] = {}
    nodes = list(topology.nodes())
    for node in nodes:
        if isinstance(node, Source):
            found[node] = rates.read.get(node.topic.name, 0.0)
        elif isinstance(node, Sink | Through):
            found[node.input] = rates.written.get(node.table, 0.0)
    for node in nodes:
        if isinstance(node, _ONE_TO_ONE) and node.input in found:
            found.setdefault(node, found[node.input])
        elif isinstance(node, Merge) and all(one in found for one in node.inputs):
            found.setdefault(node, sum(found[one] for one in node.inputs))
    for node in reversed(nodes):
        if isinstance(node, _ONE_TO_ONE) and node in found:
            found.setdefault(node.input, found[node])
    return found


def _recent(newest_first: Iterable[BatchProof]) -> Sequence[BatchProof]:
    proofs: list[BatchProof] = []
    for proof in islice(newest_first, MOST_BATCHES + 1):
        if len(proofs) > 1 and proofs[0].batch_timestamp_ms - proof.batch_timestamp_ms > SPAN_MS:
            break
        proofs.append(proof)
    return proofs


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of the newest version of a table; ``rows`` None: its writer noted none."""

    rows: int | None
    bytes: int
    files: int


@dataclass(frozen=True, kw_only=True)
class ReadPartition:
    """A source partition after the newest batch, and how far the stream is behind in it, where the brokers said it."""

    proof: PartitionProof
    lag: PartitionLag | None

    @property
    def read(self) -> int:
        return self.proof.end if self.lag is None else self.lag.read


@dataclass(frozen=True, kw_only=True)
class TablesSay:
    """``problem`` says why the tables could not be read; without a ``newest`` batch there is no more to say."""

    newest: BatchProof | None = None
    rates: Rates | None = None
    windows: Sequence[OpenWindows] = field(default_factory=tuple)
    state: Size | None = None
    problem: str | None = None

    def partitions(self, lag: StreamLag | None) -> list[ReadPartition]:
        """The partitions that the newest batch knows, and the ``lag`` in each."""
        lags = lag.partitions if lag else {}
        parts = self.newest.partitions if self.newest else ()
        known = sorted(parts, key=lambda part: (part.topic, part.partition))
        return [ReadPartition(proof=part, lag=lags.get((part.topic, part.partition))) for part in known]

    def results_wait(self, limit_ms: int) -> str | None:
        """Which partition holds results back by more than ``limit_ms`` of event time; None where none does."""
        if self.newest is None or self.newest.frontier_ms is None:
            return None
        parts = [(part.stream_time_ms, part) for part in self.newest.partitions if not part.idle]
        known = sorted(((at_ms, part) for at_ms, part in parts if at_ms is not None), key=lambda one: one[0])
        if not known or known[-1][0] - max(known[0][0], self.newest.frontier_ms) <= limit_ms:
            return None
        (slow_ms, slow), (fast_ms, fast) = known[0], known[-1]
        number = slow.topic == fast.topic
        names = (f"{part.topic}-{part.partition}" if number else part.topic for part in (slow, fast))
        said = (f"{name} is at {told_time(at_ms)}" for name, at_ms in zip(names, (slow_ms, fast_ms), strict=True))
        return f"Results wait: {', '.join(said)}."

    def drawing(self, stream: Stream) -> Drawing | None:
        """The operators with their rates; an archive has none."""
        if isinstance(stream, Archive):
            return None
        return drawing(stream, leaving(stream, self.rates) if self.rates else {})


def tables_say(tables: Tables, stream: Stream) -> TablesSay:
    """The current figures from the tables of ``stream``."""
    try:
        with reading(stream.name):
            return _read(tables, stream)
    except RecountError as error:
        return TablesSay(problem=str(error))


def _read(tables: Tables, stream: Stream) -> TablesSay:
    is_archive = isinstance(stream, Archive)
    path = tables.archive(stream.topic.name) if isinstance(stream, Archive) else tables.state(stream.name)
    proofs = Proofs(state=path, moved_to=None if is_archive else tables.ledger(stream.name), first_page=MOST_BATCHES)
    entries = proofs.newest_first()
    newest = next(entries, None)
    if newest is None:
        return TablesSay()
    rates = Rates.of([newest.proof, *(entry.proof for entry, _ in zip(entries, range(MOST_BATCHES), strict=False))])
    rows, size, files = size_of(DeltaTable(path))
    return TablesSay(
        newest=newest.proof,
        rates=rates,
        windows=open_windows(stream, newest.proof) if isinstance(stream, Topology) else (),
        state=Size(rows=rows, bytes=size, files=files),
    )


def log_tail(log: Path) -> str | None:
    """The end of ``log``; None where there is none on this machine."""
    if not log.exists():
        return None
    with log.open("rb") as content:
        content.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        return content.read().decode(errors="replace")


@dataclass(frozen=True, kw_only=True)
class OpenWindows:
    """Open windows of an aggregation: their ``number``, first start ``first_ms`` and last end ``last_end_ms``.

    ``reason`` says why they are not known; then there is no number.
    """

    operator: str
    reason: str | None = None
    number: int | None = None
    first_ms: int | None = None
    last_end_ms: int | None = None


def open_windows(topology: Topology, newest: BatchProof) -> list[OpenWindows]:
    """Open windows of every windowed aggregation of ``topology``, after the batch ``newest``."""
    return [_of(node, newest) for node in topology.nodes() if isinstance(node, WindowedAggregate) and node.has_bounds]


def _of(node: WindowedAggregate, newest: BatchProof) -> OpenWindows:
    times = [part.stream_time_ms for part in newest.partitions if part.stream_time_ms is not None]
    reason = _why_not(node, newest)
    if reason or not isinstance(node.windows, TimeWindows) or newest.frontier_ms is None or not times:
        return OpenWindows(operator=str(node), reason=reason)
    windows, advance = node.windows, node.windows.advance_ms
    # the first start at which a window is open: its end and the grace lie beyond the frontier
    first = max(windows.first_start_ms, newest.frontier_ms - windows.size_ms - windows.grace_ms + 1)
    first += -(first - windows.first_start_ms) % advance
    last = max(times) - (max(times) - windows.first_start_ms) % advance
    if last < first:
        return OpenWindows(operator=str(node), number=0)
    number = (last - first) // advance + 1
    return OpenWindows(operator=str(node), number=number, first_ms=first, last_end_ms=last + windows.size_ms)


def _why_not(node: WindowedAggregate, newest: BatchProof) -> str | None:
    if not isinstance(node.windows, TimeWindows):
        return "the records of each key decide which windows there are."
    if not all(isinstance(above, _AT_ONCE) for above in _above(node)):
        return "an operator above holds records back, so that they are not counted here."
    if newest.frontier_ms is None:
        return "a partition has not had a record yet, so time has not come anywhere."
    return None


def _above(node: Node) -> Iterator[Node]:
    for one in node.inputs:
        yield one
        yield from _above(one)
