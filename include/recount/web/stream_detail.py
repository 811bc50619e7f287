"""What the tables of one stream say for its page: its newest batch, rates, open windows, the size of its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable

from recount.core.archive import Archive
from recount.core.errors import RecountError
from recount.core.instants import told_time
from recount.core.ledger import BatchProof, PartitionProof
from recount.core.registry import Stream
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.kafka.lags import PartitionLag, StreamLag
from recount.proofs import Proofs
from recount.serve.answer import reading
from recount.serve.exposition import size_of
from recount.web.edge_rates import MOST_BATCHES, Rates, leaving
from recount.web.open_windows_now import OpenWindows, open_windows
from recount.web.operator_drawing import Drawing, drawing

_LOG_TAIL_BYTES = 20_000


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
