"""A Delta table that one process appends to, each batch at most once; a commit takes milliseconds, and no JVM.

Everything that a stream does to these tables goes through delta-rs, compaction too: on a local file system two
libraries that write one table would not see each other's commits (docs/decisions/0007). Anything may read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
    write_deltalake,
)

LEDGER_PROPERTIES = {
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}
"""The commits of the state table are the batch ledger: Delta must not clean them away after its usual 30 days."""

_SHORT_LOG = {"delta.logRetentionDuration": "interval 1 days", "delta.enableExpiredLogCleanup": "true"}
_HOUSEKEEPING = {"delta.checkpointInterval": "10", "delta.deletedFileRetentionDuration": "interval 2 days"}
"""An append reads the log since the last checkpoint, and lists all of it: both are kept short. A file that compaction
replaced is named by the log for longer than it is kept for its readers, or nobody would know to remove it."""

REPLACED_FILES_KEPT_H = 24
"""How long a reader has that began before a compaction, in hours."""


@dataclass(frozen=True, kw_only=True)
class AppendOnlyTable:
    """The table at ``path`` with the columns of ``schema``; ``partitioned_by`` names partition columns.

    Its commits are forgotten after a day, unless it ``is_ledger``: then all of them are kept, for what they carry.
    """

    path: str
    schema: Mapping[str, pl.DataType]
    partitioned_by: Sequence[str] = ()
    is_ledger: bool = False

    def create(self) -> None:
        """Create the table unless it exists."""
        DeltaTable.create(
            self.path,
            schema=Schema.from_arrow(pl.DataFrame(schema=self.schema).to_arrow().schema),
            mode="ignore",
            partition_by=list(self.partitioned_by),
            configuration={**_HOUSEKEEPING, **(LEDGER_PROPERTIES if self.is_ledger else _SHORT_LOG)},
        )

    def append(self, rows: pl.DataFrame, *, writer: str, version: int, metadata: str | None = None) -> None:
        """Append ``rows`` in one commit that carries ``metadata``; without rows the commit is made all the same.

        Does nothing when ``writer`` has already committed ``version`` or a later one: a replay changes nothing. Give
        each new sequence of versions a writer name of its own.
        """
        table = DeltaTable(self.path)
        committed = table.transaction_version(writer)
        if committed is not None and committed >= version:
            return
        write_deltalake(
            table,
            rows.select(list(self.schema)),
            mode="append",
            commit_properties=CommitProperties(
                custom_metadata=None if metadata is None else {"userMetadata": metadata},
                app_transactions=[Transaction(writer, version)],
            ),
            post_commithook_properties=self._after_commit,
        )

    def read(self) -> pl.LazyFrame:
        """All rows."""
        return pl.scan_delta(self.path)

    def compact(self, *, replaced_files_kept_h: int = REPLACED_FILES_KEPT_H) -> None:
        """Join small files and remove those that were replaced long enough ago; appends may go on meanwhile."""
        table = DeltaTable(self.path)
        table.optimize.compact(post_commithook_properties=self._after_commit)
        table.vacuum(
            retention_hours=replaced_files_kept_h,
            enforce_retention_duration=False,  # shorter than the log names them, see _HOUSEKEEPING
            dry_run=False,
            post_commithook_properties=self._after_commit,
        )

    @property
    def _after_commit(self) -> PostCommitHookProperties:
        return PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=not self.is_ledger)
