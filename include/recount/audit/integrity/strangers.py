"""Rows of a stream's tables that no batch of the stream wrote, and tables that somebody has damaged.

An audit leaves out what batches after its cut wrote, for the stream goes on meanwhile, and the next audit judges that.
So a writer to a table could hide a row from all audits by naming a batch that never comes, or none.

A single aggregation withdraws nothing, so its tables have no column that says so, and no audit reads one. A writer that
adds it could hide rows from readers.

Whether the rows that audits and backfills go on from are those that certificates vouch for is said by one digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import msgspec
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import CORRECTIONS, PARTIALS, PUBLISHED, AuditStore, Run, Seed
from recount.audit.compare.published import written_after
from recount.audit.cut.audited_ledger import LEDGER, Ledger, Order
from recount.audit.findings.finding_register import certified
from recount.audit.integrity.table_checksums import ALL_FILES, KeptRows, LineageChecksums
from recount.audit.integrity.table_files import correction_places, output_places, side_places
from recount.certificate.finding import Difference
from recount.declare.columns import BATCH, GENERATION, IS_NULL
from recount.declare.topology import Topology
from recount.recompute.single_flow import flow_of
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.tables.batch_proofs import removable
from recount.tables.places import Released, Tables

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


def hidden_rows(tables: Tables, topology: Topology) -> list[Difference]:
    """A difference for each table of a single aggregation with rows that are marked as withdrawn."""
    if flow_of(topology) is None:
        return []
    paths = output_places(tables, topology) | correction_places(tables, topology)
    found = {place: _withdrawn(path) for place, path in paths.items()}
    return [
        Difference(
            kind=LEDGER,
            place=place,
            verdict="extra",
            expected="no row that is withdrawn",
            actual=f"{rows} rows",
            cause="an aggregation withdraws nothing: somebody else has marked them, for readers to pass over",
            evidence=(f"column {IS_NULL}",),
        )
        for place, rows in found.items()
        if rows
    ]


def _withdrawn(path: str) -> int:
    if not DeltaTable.is_deltatable(path):
        return 0
    rows = pl.scan_delta(path)
    # Delta and Spark do not tell Id and id apart
    own = {name: kind for name, kind in rows.collect_schema().items() if name.lower() == IS_NULL}
    marked = [
        pl.col(name).fill_null(value=False) if kind == pl.Boolean() else pl.col(name).is_not_null()
        for name, kind in own.items()
    ]
    return int(rows.select(pl.any_horizontal(marked).sum()).collect().item()) if marked else 0


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


_OF_AGGREGATIONS = (PARTIALS, PUBLISHED)


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Rows that the audits of ``stream`` have left for those to come; ``erased`` keys are removed from them."""

    settings: Settings
    stream: str
    erased: ErasedKeys

    @classmethod
    def of(cls, settings: Settings, stream: str) -> Self:
        """Read it with the keys that are erased now."""
        return cls(settings=settings, stream=stream, erased=ErasedKeys.of(settings, stream))

    def differences(self, seed: Run | None) -> list[Difference]:
        """The tables in which somebody has written to the rows that an audit which begins at ``seed`` goes on from."""
        return [
            Difference(
                kind=LEDGER,
                place=f"table audits/{self.stream}/{table}",
                verdict="altered",
                expected=f"the rows that the audit {part.audit} and those before it left",
                actual="other rows",
                cause="somebody wrote to the table, and results of late records follow from it: see who can, and audit "
                "--from-the-beginning; where the log is not there any more, restore the table and accept this",
                evidence=(f"audit {part.audit}",),
            )
            for part, rows in (self._sections(seed) if seed else ())
            for table in part.altered(rows)
        ]

    def require_unaltered(self, audit: str) -> None:
        """Raise ``Terminal`` where somebody has written to what the complete ``audit`` has left."""
        found = self.differences(self._store.seed_of(audit).run)
        if found:
            raise Terminal(
                f"what the audits of {self.stream} go on from is not what they left",
                given="; ".join(f"other rows in {one.place}, {', '.join(one.evidence)}" for one in found),
                expected="the rows that their certificates vouch for",
                remedy=f"see who can write to these tables, and run `recount audit --stream {self.stream} "
                "--from-the-beginning`; where the log is not there any more, restore the tables",
            )

    def built_on(
        self, seed: Seed, audit: str, released: Released | None, *, is_altered: bool
    ) -> tuple[LineageChecksums, ...]:
        """Return what the certificate of ``audit``, which began at ``seed``, says.

        Where ``is_altered`` it goes on saying what the rows before were, so that every night finds them altered.
        """
        before = self._told_by(seed.run) if is_altered and seed.run else ()
        audits = [audit] if before else [*seed.lineage, audit]
        rows = rows_of(self._store, audits, _OF_AGGREGATIONS)
        return (*before, LineageChecksums.of(audit, rows, KeptRows.of("window", released)))

    def _told_by(self, run: Run) -> tuple[LineageChecksums, ...]:
        """Return what the certificate of ``run`` says; behind an erasure what its row says, signed by the erasure."""
        newest = self.erased.newest
        told = certified(self.settings, self.stream, f"{run.audit}.json")
        if told is None or (newest is not None and newest.audit == run.audit):
            return run.built_on
        # certificates of earlier releases say nothing
        return msgspec.convert(told.get("built_on") or [], tuple[LineageChecksums, ...])

    def _sections(self, run: Run) -> Iterator[tuple[LineageChecksums, Mapping[str, pl.LazyFrame]]]:
        """Yield what is said of the lineage of ``run``, each with its rows; nothing where some may be removed."""
        gone = removable(self.settings.data, self.settings.reports, self.stream)
        begin = 0
        for part in self._told_by(run):
            end = run.lineage.index(part.audit) + 1 if part.audit in run.lineage else begin
            is_there = gone is None or (part.kept is not None and part.kept.since_ms >= gone.before_ms)
            if is_there or CORRECTIONS in part.tables:
                yield part, rows_of(self._store, run.lineage[begin:end], part.tables)
            begin = end

    @property
    def _store(self) -> AuditStore:
        return AuditStore(None, Tables(self.settings.data), self.stream)


def corrections_kept(store: AuditStore, audit: str) -> LineageChecksums:
    """Return what the certificate of ``audit``, of any topology, says of rows that a backfill would publish."""
    return LineageChecksums.of(audit, rows_of(store, [audit], (CORRECTIONS,)), None)


def rows_of(store: AuditStore, audits: Sequence[str], tables: Iterable[str]) -> dict[str, pl.LazyFrame]:
    """Return by table the rows that ``audits`` have left for others to go on from; of corrections, the last audit's."""
    return {table: store.rows(table, audits[-1:] if table == CORRECTIONS else audits) for table in tables}


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
