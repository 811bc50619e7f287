"""What the tables of one stream say for its page: its newest batch, rates, open windows, the size of its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from recount.core.archive import Archive
from recount.core.errors import RecountError
from recount.core.instants import told_time
from recount.core.ledger import BatchProof, PartitionProof
from recount.core.nodes import Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.registry import Stream
from recount.core.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.core.windows import TimeWindows
from recount.kafka.lags import PartitionLag, StreamLag
from recount.proofs import Proofs
from recount.serve.answer import reading
from recount.serve.exposition import size_of
from recount.web.edge_rates import MOST_BATCHES, Rates, leaving
from recount.web.operator_drawing import Drawing, drawing

_LOG_TAIL_BYTES = 20_000
_AT_ONCE = (Source, Filter, WithFields, SelectKey, Select, FlatMap, Merge, Peek, Repartition, Through)
"""Operators that hold no record back."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of the newest version of a table; ``rows`` None: its writer noted none."""

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
        """Up to which offset it is read."""
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
    """What the tables of ``stream`` say now."""
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
    """Of one aggregation: ``number`` windows, the first starting at ``first_ms``, the last ending at ``last_end_ms``.

    ``reason`` says why they cannot be told; then there is no number.
    """

    operator: str
    reason: str | None = None
    number: int | None = None
    first_ms: int | None = None
    last_end_ms: int | None = None


def open_windows(topology: Topology, newest: BatchProof) -> list[OpenWindows]:
    """Of every windowed aggregation of ``topology``, after the batch ``newest``."""
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
