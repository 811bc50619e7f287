"""Rows of a stream's tables that no batch of the stream wrote, and tables that somebody has damaged.

An audit leaves out what batches after its cut wrote, for the stream goes on meanwhile, and the next audit judges that.
So a writer to a table could hide a row from all audits by naming a batch that never comes, or none.

Whether the rows that backfills go on from are those that certificates vouch for is said by one digest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import duckdb
import msgspec
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import CORRECTIONS, AuditStore, Run, Seed
from recount.audit.compare.published import written_after
from recount.audit.cut.audited_ledger import LEDGER, Ledger, Order
from recount.audit.findings.finding_register import certified
from recount.audit.integrity.table_checksums import ALL_FILES, Checksum, LeftRows
from recount.audit.integrity.table_files import output_places, side_places
from recount.certificate.finding import Difference
from recount.declare.columns import BATCH, GENERATION
from recount.declare.topology import Topology
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.tables.places import Tables

MAX_STRANGERS = 100
"""So many batches are named per table."""
_Named = tuple[int | None, int | None]
_DAMAGE = (
    DeltaError,
    pl.exceptions.PolarsError,
    # at a Parquet file that was cut off; it is no Exception, and would end the audits of all other streams as well
    pl.exceptions.PanicException,
    pa.ArrowException,
    FileNotFoundError,
    AnalysisException,
    # at a column that is not there any more, or has a type that the declared one does not take
    duckdb.BinderException,
    duckdb.ConversionException,
)
_SHOWN = 500
"""Characters of the first line of what a library says: it can name a whole schema."""


def strange_rows(tables: Tables, topology: Topology, ledger: Ledger, settled: Callable[[], Ledger]) -> list[Difference]:
    """A difference for each batch that rows of ``topology``'s tables name and that is none of the stream's.

    Rows of batches up to the last in ``ledger`` are judged by what they say. ``settled`` gives the ledger that holds
    all that Kafka has when it is asked. A batch is committed to Kafka before its rows are written: so rows that were
    there before that call are of no batch, unless it is in that ledger. It is not asked where there is no such row.
    """
    last = ledger.proofs[-1].order
    paths = output_places(tables, topology) | side_places(tables, topology)
    named = {place: _named_after(path, last) for place, path in paths.items()}
    if not any(named.values()):
        return []
    known = {proof.order for proof in settled().proofs}
    return [_difference(place, batch, rows) for place, found in named.items() for batch, rows in _first(found, known)]


def overfull_batches(tables: Tables, topology: Topology, ledger: Ledger) -> list[Difference]:
    """A difference for each batch in ``ledger`` of which a table of results has more rows than the batch wrote.

    Where no row is wrong by what it says, one of these is of another batch: ``recount query --at`` would show it at
    another time than readers saw it. Fewer rows there may be, for retention removes some. Rows that came to name a
    batch that an earlier audit has judged change the checksum of the table.
    """
    found = []
    for node in topology.written:
        place, path = f"table outputs/{node.table}", tables.output(node.table)
        wrote = {proof.order: proof.emitted[node.table] for proof in ledger.proofs if node.table in proof.emitted}
        if wrote and DeltaTable.is_deltatable(path):
            rows = pl.scan_delta(path).group_by(GENERATION, BATCH).len().sort(GENERATION, BATCH)
            for generation, batch, number in rows.collect(optimizations=ALL_FILES).iter_rows():
                if number > wrote.get((generation, batch), number):
                    found.append(_overfull(place, (generation, batch), number, wrote[generation, batch]))
    return found[:MAX_STRANGERS]


def _overfull(place: str, batch: Order, rows: int, wrote: int) -> Difference:
    return Difference(
        kind=LEDGER,
        place=place,
        verdict="altered",
        expected=f"{wrote} rows of batch {batch[0]}/{batch[1]}",
        actual=f"{rows} rows",
        cause="more rows name the batch than it wrote: somebody has changed which batch some of them name",
        evidence=(f"batch {batch[0]}/{batch[1]}",),
    )


def _named_after(path: str, last: Order) -> Mapping[_Named, int]:
    """How many rows name which batch after ``last``, or none; the table of a sink that is new may not be there yet."""
    if not DeltaTable.is_deltatable(path):
        return {}
    is_none = pl.col(GENERATION).is_null() | pl.col(BATCH).is_null()
    rows = pl.scan_delta(path).filter(is_none | written_after(last))
    counted = rows.group_by(GENERATION, BATCH).len().sort(GENERATION, BATCH).collect(optimizations=ALL_FILES)
    return {(generation, batch): number for generation, batch, number in counted.iter_rows()}


def _first(found: Mapping[_Named, int], known: Iterable[Order]) -> list[tuple[_Named, int]]:
    batches = set(known)
    return [(batch, rows) for batch, rows in found.items() if batch not in batches][:MAX_STRANGERS]


def _difference(place: str, batch: _Named, rows: int) -> Difference:
    generation, number = ("?" if part is None else part for part in batch)
    return Difference(
        kind=LEDGER,
        place=place,
        verdict="extra",
        expected=f"no row of batch {generation}/{number}",
        actual=f"{rows} rows",
        cause="the stream has no such batch: somebody else wrote to its table",
        evidence=(f"batch {generation}/{number}",),
    )


@contextmanager
def damage_told(stream: str, command: str = "recount audit") -> Iterator[None]:
    """Raise ``Terminal`` where a table of ``stream`` cannot be read: it has been altered, lacks files, or is removed.

    Unlike the answers of ``recount.serve``, which take it for passing, since a stream may remove files meanwhile: an
    audit reads what no stream removes before it is released.
    """
    try:
        yield
    except RecountError:
        raise
    except _DAMAGE as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise Terminal(
            f"a table of {stream} cannot be read",
            given=f"{type(error).__name__}: {first}"[:_SHOWN],
            expected="tables as the stream and its audits left them",
            remedy=f"restore the table from a backup, or delete what was added to its _delta_log; `{command}` again",
        ) from error


@dataclass(frozen=True, kw_only=True)
class LeftForBackfills:
    """Rows that the audits of ``stream`` have left for backfills; ``erased`` keys are removed from them."""

    settings: Settings
    stream: str
    erased: ErasedKeys

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """Read it with the keys that are erased now."""
        return cls(settings=settings, stream=stream, erased=ErasedKeys.of(settings, stream))

    def is_altered(self, run: Run) -> bool:
        """Whether somebody has written to what ``run`` has left."""
        store = AuditStore(Tables(self.settings.data), self.stream)
        return any(
            part.is_altered(CORRECTIONS, store.rows(CORRECTIONS, [part.audit]))
            for part in self._told_by(run)
            if CORRECTIONS in part.tables
        )

    def require_unaltered(self, run: Run) -> None:
        """Raise ``Terminal`` where somebody has written to it."""
        if self.is_altered(run):
            raise Terminal(
                f"what the audits of {self.stream} have left for a backfill is not what they left",
                given=f"other rows in table audits/{self.stream}/{CORRECTIONS}, audit {run.audit}",
                expected="the rows that their certificates vouch for",
                remedy=f"see who can write to this table, and run `recount audit --stream {self.stream}`",
            )

    def _told_by(self, run: Run) -> tuple[LeftRows, ...]:
        """Return what the certificate of ``run`` says; behind an erasure what its row says, signed by the erasure."""
        newest = self.erased.newest
        told = certified(self.settings, self.stream, f"{run.audit}.json")
        if told is None or (newest is not None and newest.audit == run.audit):
            return run.built_on
        # certificates of earlier releases say nothing
        return msgspec.convert(told.get("built_on") or [], tuple[LeftRows, ...])


def corrections_kept(store: AuditStore, audit: str) -> LeftRows:
    """Return what the certificate of ``audit`` says of the rows that a backfill would publish."""
    return LeftRows(audit=audit, tables={CORRECTIONS: Checksum.of(store.rows(CORRECTIONS, [audit]))})


def written_since(table: str, seed: Seed) -> Difference:
    """The difference where ``table`` has other rows than the audit at ``seed`` judged, and the log is not there."""
    assert seed.run is not None
    return Difference(
        kind=LEDGER,
        place=f"table outputs/{table}",
        verdict="altered",
        expected=f"the rows that the audit {seed.run.audit} judged",
        actual="other rows",
        cause="somebody wrote to the table; which rows, an audit --from-the-beginning would say, if the log were there",
        evidence=(f"batch {seed.run.generation}/{seed.run.batch}",),
    )
