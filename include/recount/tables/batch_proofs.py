"""Readers of a stream's batch proofs, and of what its audits have released for removal; without Spark.

A proof is committed with the state of its batch, in the log of the state table. There it stays until the stream has
moved it to the table ``ledger`` beside (docs/decisions/0012); after that its commit may be removed from the log.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import polars as pl
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import PyFileSystem

from recount.certificate.document import Certificate, verify_alone
from recount.declare.columns import BATCH, GENERATION
from recount.runtime.errors import Terminal
from recount.runtime.installation import bytes_of_file
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables

ROWS_ADDED = "rowsAdded"
"""Under this name a commit of files that tasks have written says how many rows they have."""
LEDGER_SCHEMA = {
    "state_id": pl.String(),
    GENERATION: pl.Int32(),
    BATCH: pl.Int64(),
    "recorded_ms": pl.Int64(),
    "proof": pl.String(),
    "rows_added": pl.Int64(),
    "append_ms": pl.Int64(),
}
"""A row is a batch. ``state_id`` is the id of the state table whose commit carried the proof: the rows of a state
table that was deleted, and created again under the same name, say nothing about the new one."""
RUNS = "runs"
"""The audit's table of complete audits, each a JSON document."""
MISSES = "misses"
"""The audit's table of grace misses."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A batch in the ledger: its proof, the rows that it added to the state table, and how long that append took.

    ``append_ms`` is None where the writer of the table did not say.
    """

    proof: BatchProof
    rows_added: int
    append_ms: int | None

    @classmethod
    def of_commit(cls, info: dict[str, Any], place: str = "a commit") -> Self | None:
        """The entry in a Delta commit's ``commitInfo``; None where the commit, at ``place``, is no batch."""
        proof = BatchProof.from_json(info.get("userMetadata"), place)
        if proof is None:
            return None
        metrics = info.get("operationMetrics") or {}
        # Spark and delta-rs name them differently, and Spark writes numbers as texts
        by_writer = metrics.get("num_added_rows", metrics.get("numOutputRows", 0))
        rows_added = int(info.get(ROWS_ADDED) or by_writer)
        return cls(proof=proof, rows_added=rows_added, append_ms=metrics.get("execution_time_ms"))

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Self:
        """The entry in a row of the table ``ledger``."""
        place = f"a row of the table ledger, generation {row[GENERATION]}, batch {row[BATCH]}"
        proof = BatchProof.from_json(row["proof"], place)
        if proof is None:
            raise Terminal.of("ledger-row-without-proof", given=place)
        return cls(proof=proof, rows_added=row["rows_added"], append_ms=row["append_ms"])

    def row(self, state_id: str) -> dict[str, Any]:
        """The row of ``LEDGER_SCHEMA`` that says it."""
        return {
            "state_id": state_id,
            GENERATION: self.proof.generation,
            BATCH: self.proof.batch,
            "recorded_ms": self.proof.batch_timestamp_ms,
            "proof": self.proof.to_json(),
            "rows_added": self.rows_added,
            "append_ms": self.append_ms,
        }


class CommitLog:
    """The log of the Delta table at ``path`` up to ``version``, its newest when this was made.

    Each commit is read from its own file. ``DeltaTable.history`` lists the whole log, fails when a commit is removed
    meanwhile, and does not say for certain which version a commit is when another one is made meanwhile.
    """

    def __init__(self, path: str) -> None:
        table = DeltaTable(path)
        self.path = path
        self.version = table.version()
        self.table_id = str(table.metadata().id)
        self._files = PyFileSystem(DeltaStorageHandler(path))

    def place(self, version: int) -> str:
        """The name of the commit ``version`` for people who have to look at it."""
        return f"version {version} of the table {self.path}"

    def info(self, version: int) -> dict[str, Any] | None:
        """The content of the commit ``version``; None when it is no longer in the log."""
        try:
            with self._files.open_input_stream(f"_delta_log/{version:020}.json") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return None
        try:
            actions = (json.loads(line) for line in lines)
            found: dict[str, Any] = next(
                (dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {}
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise Terminal.of(
                "commit-unreadable", given=f"{self.place(version)}: {type(error).__name__}: {error}"
            ) from error
        return found


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """The ledger in the log of the table ``state`` and, where there is one, in the table ``moved_to``.

    Of that table the newest ``first_page`` rows are read alone: who looks for the last batch seldom looks further.
    """

    state: str
    moved_to: str | None = None
    first_page: int = 200

    def newest_first(self, down_to: tuple[int, int] | None = None) -> Iterator[Entry]:
        """Every batch once, read as far as it is asked for; the stream may go on, and move proofs, meanwhile.

        ``down_to`` is the first batch that is wanted, by (generation, batch): older rows of the table are not read.

        The log is read before the table. A proof leaves the log only after it has come into the table, so one that
        was moved from the log before it was read is found in the table, which is opened later. The other way round,
        one that is moved between the two would be in neither.
        """
        if not DeltaTable.is_deltatable(self.state):
            return
        log = CommitLog(self.state)
        oldest: tuple[int, int] | None = None
        for entry in self._in_log(log):
            oldest = entry.proof.order
            if down_to is not None and oldest < down_to:
                return
            yield entry
        yield from self._moved(log.table_id, oldest, down_to)

    def newest(self, before: tuple[int, int] | None = None) -> BatchProof | None:
        """The newest proof, or the newest before (generation, batch) ``before``."""
        proofs = (entry.proof for entry in self.newest_first())
        return next((proof for proof in proofs if before is None or proof.order < before), None)

    def last_recorded_by(self, at_ms: int) -> Entry | None:
        """The newest batch that was recorded at ``at_ms`` or before."""
        if not DeltaTable.is_deltatable(self.state):
            return None
        log = CommitLog(self.state)
        for entry in self._in_log(log):
            if entry.proof.batch_timestamp_ms <= at_ms:
                return entry
        rows = self._rows_of(log.table_id).filter(pl.col("recorded_ms") <= at_ms)
        return next(iter(_first(rows.sort(GENERATION, BATCH, descending=True))), None)

    def last_before(self, at_ms: int, now_ms: int) -> Entry | None:
        """The last batch that had been recorded at ``at_ms``, whatever clocks said at times.

        It is before every batch that was recorded later, and of those with no later time before it. What was recorded
        after ``now_ms`` says nothing: a clock was ahead then.
        """
        if not DeltaTable.is_deltatable(self.state):
            return None
        log = CommitLog(self.state)
        found, rows = list(self._in_log(log)), self._rows_of(log.table_id)
        is_later = pl.col("recorded_ms").is_between(at_ms, now_ms, closed="right")
        later = [entry.proof.order for entry in found if at_ms < entry.proof.batch_timestamp_ms <= now_ms]
        later += [entry.proof.order for entry in _first(rows.filter(is_later).sort(GENERATION, BATCH))]
        first = min(later, default=None)
        is_before = pl.lit(value=True) if first is None else earlier(first)
        newest = ["recorded_ms", GENERATION, BATCH]
        old = rows.filter(is_before & (pl.col("recorded_ms") <= at_ms)).sort(newest, descending=True)
        known = [entry for entry in found if first is None or entry.proof.order < first]
        known = [entry for entry in known if entry.proof.batch_timestamp_ms <= at_ms]
        return max(
            (*known, *_first(old)), key=lambda one: (one.proof.batch_timestamp_ms, one.proof.order), default=None
        )

    def _rows_of(self, state_id: str) -> pl.LazyFrame:
        table = self._table()
        rows = pl.LazyFrame(schema=LEDGER_SCHEMA) if table is None else pl.scan_delta(table)
        return rows.filter(pl.col("state_id") == state_id)

    def _in_log(self, log: CommitLog) -> Iterator[Entry]:
        """The batches that were not moved when the table was looked at, newest first: no more than a hint."""
        for version in range(log.version, moved_up_to(self._table(), log.table_id), -1):
            info = log.info(version)
            if info is None:
                return
            entry = Entry.of_commit(info, log.place(version))
            if entry:
                yield entry

    def _table(self) -> DeltaTable | None:
        return DeltaTable(self.moved_to) if self.moved_to and DeltaTable.is_deltatable(self.moved_to) else None

    def _moved(self, state_id: str, before: tuple[int, int] | None, down_to: tuple[int, int] | None) -> Iterator[Entry]:
        """The rows of the table before the batch ``before`` (None: all), newest first: a page, then the rest."""
        rows = self._rows_of(state_id)
        if down_to is not None:
            rows = rows.filter(~earlier(down_to))
        for limit in (self.first_page, None):
            older = rows if before is None else rows.filter(earlier(before))
            newest = older.sort(GENERATION, BATCH, descending=True)
            page = (newest if limit is None else newest.head(limit)).collect()
            for row in page.iter_rows(named=True):
                before = row[GENERATION], row[BATCH]
                yield Entry.of_row(row)
            if page.height < self.first_page:
                return


def _first(rows: pl.LazyFrame) -> list[Entry]:
    return [Entry.of_row(row) for row in rows.head(1).collect().iter_rows(named=True)]


def moved_up_to(table: DeltaTable | None, state_id: str) -> int:
    """The version of the state table up to which all proofs are in the table ``ledger``; -1: none has been moved."""
    version = table.transaction_version(mover(state_id)) if table else None
    return -1 if version is None else version


def mover(state_id: str) -> str:
    """The transaction name for moving the proofs of a state table: the versions of a new one begin at 0 again."""
    return f"recount/moved/{state_id}"


def earlier(before: tuple[int, int]) -> pl.Expr:
    """Whether a row was written by a batch before ``before``: what a replay of that batch may see."""
    generation, batch = before
    same_generation = (pl.col(GENERATION) == generation) & (pl.col(BATCH) < batch)
    return (pl.col(GENERATION) < generation) | same_generation


def audits_version(root: str, stream: str) -> int:
    """Another number after each audit of ``stream``; -1 before the first."""
    path = Tables(root).audit(stream, RUNS)
    return DeltaTable(path).version() if DeltaTable.is_deltatable(path) else -1


def released(root: str, stream: str) -> Released | None:
    """Rows that the audit before the newest one has released, by its row; None: nothing.

    Not the newest: another audit that began before that one ended may still look for what it released.
    """
    return released_by(complete_audits(root, stream))


def removable(root: str, reports: str, stream: str) -> Released | None:
    """The same by certificates below ``reports``: who can write a row cannot have anything deleted.

    Audits whose certificate does not hold, or is of a release that did not say it, do not count.
    """
    return next(islice(_certified(root, reports, stream), 1, None), None)


def _certified(root: str, reports: str, stream: str) -> Iterator[Released | None]:
    """Released rows of each audit, newest first."""
    audits = dict.fromkeys(str(document["audit"]) for document in reversed(complete_audits(root, stream)))
    for audit in audits:
        certificate = held_certificate(reports, stream, audit)
        if certificate is not None and "released" in certificate:
            yield Released.from_document(certificate["released"])


def held_certificate(reports: str, stream: str, audit: str) -> Certificate | None:
    """The certificate of ``audit``; None where there is none that holds. Whether it is signed is not asked."""
    path = Path(reports) / "certificates" / stream / f"{audit}.json"
    try:
        certificate: Certificate = json.loads(bytes_of_file(path).decode("utf-8"))
        verify_alone(certificate)
        is_its = (certificate["stream"], certificate["audit"]) == (stream, audit)
    except (OSError, ValueError, AttributeError, RecursionError, Terminal):
        return None
    return certificate if is_its else None


def released_by(audits: Sequence[Mapping[str, Any]]) -> Released | None:
    """The same, of these documents of ``complete_audits``."""
    return Released.from_document(audits[-2].get("released")) if len(audits) > 1 else None


def complete_audits(root: str, stream: str) -> list[Mapping[str, Any]]:
    """The documents of all complete audits of ``stream``, as ``audit.carry.store.Run`` says them, oldest first."""
    path = Tables(root).audit(stream, RUNS)
    if not DeltaTable.is_deltatable(path):
        return []
    documents = [json.loads(text) for text in pl.scan_delta(path).select("document").collect()["document"]]
    return sorted(documents, key=lambda document: int(document["finished_ms"]))
