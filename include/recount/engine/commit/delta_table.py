"""A Delta table that one process appends to, each batch at most once, and the ledger table; without a JVM.

Everything that a stream does to these tables goes through delta-rs, compaction too: on a local file system two
libraries that write one table would not see each other's commits (docs/decisions/0007). Anything may read them. The
proofs in the log of a stream's state table are moved to its table ``ledger``.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Self
from uuid import uuid4

import polars as pl
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, SchemaMismatchError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import FileSystem, PyFileSystem

from recount.declare.columns import IS_NULL, ORIGIN
from recount.engine.state.graph_state import MANY
from recount.runtime.errors import Terminal
from recount.runtime.times import clock_ms
from recount.tables.batch_proofs import LEDGER_SCHEMA, ROWS_ADDED, CommitLog, Entry, moved_up_to, mover

LEDGER_PROPERTIES = {"delta.logRetentionDuration": "interval 3650 days", "delta.enableExpiredLogCleanup": "false"}
"""For a table whose commits are the only place where its proofs are: none must be cleaned away, as Delta would."""
DELTA_LOG_KEPT_MS = 3_600_000
"""How long an earlier version of a table can be read, by default; see ``AppendOnlyTable``."""
_COMMITS_BETWEEN_CHECKPOINTS = "10"
"""An append reads the log since the last checkpoint."""
_MIB = 1024 * 1024
_CONSTRAINTS, _INVARIANT = "delta.constraints.", "delta.invariants"
_UNMET = "failed validation check"
"""What delta-rs says of rows that do not meet a constraint; the text has rows in it, and its class is that of any."""
_UNTRIED = ("Invalid function", "No field named", "Unsupported table features")
"""What it says of constraints and features that it does not know; the class is that of any error."""
_MOST_CHARACTERS = 500
_AFTER_COMMIT = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Cleaning lists the whole log: it is done by ``forget_commits``, off the path of a batch."""
_FILES_WORTH_JOINING = 50
_JOINED_BYTES = 8 * 1024 * 1024
"""A file of this size or more is not rewritten: each round would otherwise leave a copy of the whole ledger."""


def rows_in(frame: pl.DataFrame) -> int:
    """How many rows it has; of a state table, how many its rows have together."""
    return int(frame[MANY].sum()) if MANY in frame.columns else frame.height


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """A Parquet file in the folder of a table that no commit names yet: ``path`` in the folder, bytes, rows.

    ``counted`` is ``rows_in`` of these.
    """

    path: str
    size: int
    rows: int
    counted: int

    @classmethod
    def write(cls, folder: str, rows: pl.DataFrame) -> Self:
        """Write ``rows``, which have the columns of the table in ``folder``, as a file that nobody else writes."""
        name, made = f"part-{uuid4()}.parquet", BytesIO()
        rows.write_parquet(made, compression="snappy")
        files, place = FileSystem.from_uri(folder if "://" in folder else str(Path(folder).absolute()))
        with files.open_output_stream(f"{place}/{name}") as file:
            file.write(made.getvalue())
        return cls(path=name, size=made.tell(), rows=rows.height, counted=rows_in(rows))

    @property
    def action(self) -> AddAction:
        """The action that adds it to its table."""
        stats = json.dumps({"numRecords": self.rows})
        return AddAction(self.path, self.size, {}, clock_ms(), data_change=True, stats=stats)


@dataclass(frozen=True, kw_only=True)
class AppendOnlyTable:
    """The table at ``path`` with the columns of ``schema``; ``partitioned_by`` names partition columns.

    ``log_kept_ms`` is how long an earlier version can be read: after that its commit may be forgotten, and files that
    compaction replaced are removed. Where the table ``carries_proofs``, commits have facts that are nowhere else, so
    ``forget_commits`` needs to know which of them are no longer needed, and Delta's own cleaning, by any writer
    of the table, is switched off. ``compact`` joins files smaller than ``joined_bytes``, once there are
    ``files_worth_joining``. ``busy`` is held by a writer that has written a file and not yet committed it, ``pending``
    while tasks may have written some that are to be committed.
    """

    path: str
    schema: Mapping[str, pl.DataType]
    partitioned_by: Sequence[str] = ()
    carries_proofs: bool = False
    log_kept_ms: int = DELTA_LOG_KEPT_MS
    joined_bytes: int = 100 * _MIB
    files_worth_joining: int = 2
    busy: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    pending: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def create(self) -> None:
        """Create the table unless it exists; one that does gets the properties that it would have been made with."""
        if not DeltaTable.is_deltatable(self.path):
            DeltaTable.create(
                self.path,
                schema=Schema.from_arrow(pl.DataFrame(schema=self.schema).to_arrow().schema),
                partition_by=list(self.partitioned_by),
                configuration=self._properties,
            )
            return
        table = DeltaTable(self.path)
        self._add_columns(table)
        self._require_columns(table)
        configured = table.metadata().configuration
        changed = {name: value for name, value in self._properties.items() if configured.get(name) != value}
        if changed:
            table.alter.set_table_properties(changed, post_commithook_properties=_AFTER_COMMIT)

    def _add_columns(self, table: DeltaTable) -> None:
        """Add the columns that a table of an earlier release may lack: its rows delete nothing, and are no record's."""
        known = {field.name for field in table.schema().fields}
        new = {name: self.schema[name] for name in (IS_NULL, ORIGIN) if name in self.schema.keys() - known}
        if new:
            fields = Schema.from_arrow(pl.DataFrame(schema=new).to_arrow().schema).fields
            table.alter.add_columns(list(fields), post_commithook_properties=_AFTER_COMMIT)

    def _require_columns(self, table: DeltaTable) -> None:
        missing = sorted(set(self.schema) - {field.name for field in table.schema().fields})
        if missing:
            raise Terminal.of(
                "table-of-another-release",
                given=f"a table without {', '.join(missing)}",
                path=self.path,
                schema=", ".join(self.schema),
            )

    def append(
        self,
        rows: pl.DataFrame,
        *,
        writer: str,
        version: int,
        metadata: str | None = None,
        files: Sequence[TableFile] = (),
    ) -> None:
        """Append ``rows``, or those of ``files``, in one commit that carries ``metadata``, without any rows as well.

        Does nothing when ``writer`` has already committed ``version`` or a later one: a replay changes nothing. Give
        each new sequence of versions a writer name of its own. Raises ``Terminal`` where the rows do not meet a
        constraint of the table, which others have given it.
        """
        table = DeltaTable(self.path)
        committed = table.transaction_version(writer)
        if committed is not None and committed >= version:
            return
        if files and any(self._set_by_others(table)):
            # what others have set is tried for rows, not for files
            rows, files = pl.concat([self._rows_of(file) for file in files]), ()
        counted = sum(file.counted for file in files) if files else rows_in(rows)
        told = {ROWS_ADDED: str(counted), **({} if metadata is None else {"userMetadata": metadata})}
        properties = CommitProperties(custom_metadata=told, app_transactions=[Transaction(writer, version)])
        with self.busy, self._refusal_told(table):
            if files:
                table.create_write_transaction(
                    [file.action for file in files],
                    mode="append",
                    schema=table.schema(),
                    commit_properties=properties,
                    post_commithook_properties=_AFTER_COMMIT,
                )
                return
            write_deltalake(
                table,
                rows.select(list(self.schema)),
                mode="append",
                commit_properties=properties,
                post_commithook_properties=_AFTER_COMMIT,
            )

    def _rows_of(self, file: TableFile) -> pl.DataFrame:
        with PyFileSystem(DeltaStorageHandler(self.path)).open_input_file(file.path) as source:
            return pl.read_parquet(source)

    @contextmanager
    def _refusal_told(self, table: DeltaTable) -> Iterator[None]:
        """``Terminal`` with what others have set on ``table``; rows of a refusal are in no message and no trace."""
        try:
            yield
        except DeltaError as error:
            text = str(error)
            is_unmet = _UNMET in text
            if not (is_unmet or isinstance(error, SchemaMismatchError) or any(one in text for one in _UNTRIED)):
                raise
            told = _UNMET if is_unmet else text[:_MOST_CHARACTERS]
            raise Terminal.of(
                "table-refuses-its-rows", given="; ".join([told, *self._set_by_others(table)]), path=self.path
            ) from None

    def _set_by_others(self, table: DeltaTable) -> Iterator[str]:
        """The constraints of ``table``, and its columns that the stream has not made."""
        for name, expression in sorted(table.metadata().configuration.items()):
            if name.startswith(_CONSTRAINTS):
                yield f"CHECK {name.removeprefix(_CONSTRAINTS)} ({expression})"
        for column in table.schema().fields:
            if column.name not in self.schema:
                yield f"a column {column.name}"
            if not column.nullable:
                yield f"{column.name} NOT NULL"
            if invariant := column.metadata.get(_INVARIANT):
                yield f"{column.name} {invariant}"

    def last_version(self, writer: str) -> int:
        """The last version that ``writer`` has committed; -1 where there is none, or no table."""
        if not DeltaTable.is_deltatable(self.path):
            return -1
        version = DeltaTable(self.path).transaction_version(writer)
        return -1 if version is None else version

    def has_rows(self) -> bool:
        return DeltaTable.is_deltatable(self.path) and not self.read().head(1).collect().is_empty()

    def read(self) -> pl.LazyFrame:
        return pl.scan_delta(self.path)

    def delete(self, predicate: str) -> None:
        """Remove the rows for which ``predicate``, SQL, holds; appends wait meanwhile. ``compact`` removes files."""
        with self.busy:
            # a file that holds none of them is not rewritten, and without any there is no commit
            DeltaTable(self.path).delete(predicate, post_commithook_properties=_AFTER_COMMIT)

    def replace(self, predicate: str, rows: pl.DataFrame) -> None:
        """Put ``rows`` in the place of those for which ``predicate``, SQL, holds; appends wait meanwhile."""
        with self.busy:
            table = DeltaTable(self.path)
            with self._refusal_told(table):
                write_deltalake(
                    table,
                    rows.select(list(self.schema)),
                    mode="overwrite",
                    predicate=predicate,
                    post_commithook_properties=_AFTER_COMMIT,
                )

    def compact(self) -> None:
        """Join small files, and remove those that no version needs any more; appends may go on meanwhile."""
        table = DeltaTable(self.path)
        if self._small_files(table) >= self.files_worth_joining:
            table.optimize.compact(target_size=self.joined_bytes, post_commithook_properties=_AFTER_COMMIT)
        # The log names a replaced file no longer than it is kept, or every checkpoint would grow by them: so files are
        # found by listing the folder (full). One that no commit names yet looks like one that none names any more, and
        # is as old when the machine has slept meanwhile. A process that sleeps between opening the table and listing
        # its folder takes for unused what another one has written since: only what is found unused twice is removed.
        with self.pending, self.busy:
            unused = self.unused()
            folder = PyFileSystem(DeltaStorageHandler(self.path))
            for file in unused & self.unused():
                folder.delete_file(file)

    def unused(self) -> set[str]:
        """The files in the folder that no version needs any more, by their path in it."""
        return set(DeltaTable(self.path).vacuum(full=True, dry_run=True))

    def forget_commits(self, *, before: int | None = None) -> None:
        """Remove commits from the log that are older than ``log_kept_ms`` and replaced by a checkpoint.

        Only those before the version ``before`` of the table, which a table that carries proofs requires.
        """
        if self.carries_proofs and before is None:
            raise ValueError(f"{self.path} carries proofs: forget_commits must be told which of them lie elsewhere")
        DeltaTable(self.path, version=before).cleanup_metadata()

    @property
    def _properties(self) -> dict[str, str]:
        kept = f"interval {self.log_kept_ms} milliseconds"
        return {
            "delta.checkpointInterval": _COMMITS_BETWEEN_CHECKPOINTS,
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
            "delta.enableExpiredLogCleanup": "false" if self.carries_proofs else "true",
        }

    def _small_files(self, table: DeltaTable) -> int:
        sizes = table.get_add_actions().column("size_bytes").to_pylist()
        return sum(size < self.joined_bytes for size in sizes)


class LedgerTable:
    """The table at ``path`` with the proofs of the table ``state``; written by the process that writes ``state``.

    At most ``most_at_once`` commits are moved together: a state table of an earlier release can have very many.
    """

    def __init__(self, path: str, state: AppendOnlyTable, *, most_at_once: int = 5_000) -> None:
        self.table = AppendOnlyTable(
            path=path,
            schema=LEDGER_SCHEMA,
            log_kept_ms=state.log_kept_ms,
            joined_bytes=_JOINED_BYTES,
            files_worth_joining=_FILES_WORTH_JOINING,
        )
        self._state = state
        self._most_at_once = most_at_once

    def move(self) -> int:
        """Append the proofs that are not here yet; returns the version of ``state`` up to which all now are.

        Each commit says in its transaction version up to where it has moved them, so a crash before it changes
        nothing and a repetition after it does nothing. Raises ``Terminal`` when a commit is missing from the log of
        ``state`` whose proof is not here: then nothing may be removed from either.
        """
        log = CommitLog(self._state.path)
        moved = moved_up_to(DeltaTable(self.table.path), log.table_id)
        while moved < log.version:
            until = min(moved + self._most_at_once, log.version)
            entries = [self._entry(log, version) for version in range(moved + 1, until + 1)]
            rows = [entry.row(log.table_id) for entry in entries if entry]
            self.table.append(pl.DataFrame(rows, schema=LEDGER_SCHEMA), writer=mover(log.table_id), version=until)
            moved = until
        return moved

    def _entry(self, log: CommitLog, version: int) -> Entry | None:
        info = log.info(version)
        if info is None:
            raise Terminal.of("proof-missing", given=f"{self._state.path}, version {version}", path=self.table.path)
        return Entry.of_commit(info, log.place(version))
