"""The table ``ledger`` of a stream, to which the proofs in the log of its state table are moved."""

from __future__ import annotations

import polars as pl
from deltalake import DeltaTable

from recount.core.errors import Terminal
from recount.proofs import LEDGER_SCHEMA, CommitLog, Entry, moved_up_to, mover
from recount.spark.delta_table import AppendOnlyTable

_FILES_WORTH_JOINING = 50
_JOINED_BYTES = 8 * 1024 * 1024
"""A file that has grown to this is not written anew: each round would otherwise leave a copy of the whole ledger."""


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
            raise Terminal(
                "a proof is neither in the log of the state table nor in the ledger",
                given=f"{self._state.path}, version {version}",
                expected=f"every version after those that {self.table.path} says it has",
                remedy="bring back the folder of the ledger, or the removed commit, from a backup",
            )
        return Entry.of_commit(info, log.place(version))
