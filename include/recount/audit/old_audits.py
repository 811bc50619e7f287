"""An audit takes out of the audit's own tables what no later one builds on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from deltalake import DeltaTable

from recount.audit.certified_runs import removed_by_now
from recount.audit.store import CORRECTIONS, PARTIALS, PUBLISHED, RECONCILIATION, VERDICTS, Run
from recount.core.kept_files import Keeping
from recount.core.nodes import WINDOW_END
from recount.core.own_columns import AUDIT
from recount.core.tables import Tables

_LOG = logging.getLogger(__name__)

_BUILT_ON = (PARTIALS, PUBLISHED, VERDICTS, CORRECTIONS)
"""The tables with a row per result of which later audits and backfills read what their lineage has left.

Nobody reads the ``reconciliation`` of another audit. The other tables are small and stay.
"""
_FILES_KEPT_H = 24
"""For whoever reads an earlier version."""


def trim_audits(tables: Tables, stream: str, keeping: Keeping, runs: Sequence[Run]) -> None:
    """Remove rows of old ``runs`` on which none builds, and of windows that are judged no more; then unused files.

    Raises nothing: the audit is complete, and the next one tries again.
    """
    try:
        old = _old(runs, keeping.milliseconds("verdicts"))
        unneeded = old - {audit for run in runs if run.audit not in old for audit in run.lineage}
        released = removed_by_now(runs)
        # of the newest all stays: its expectations are still to be compared with its verdicts
        gone = f"{WINDOW_END} < {released.before_ms} AND {AUDIT} <> '{runs[-1].audit}'" if released else None
        for name in _BUILT_ON:
            _trim(tables.audit(stream, name), unneeded, gone)
        _trim(tables.audit(stream, RECONCILIATION), old, None)
    except Exception:
        _LOG.warning("removing old rows of the audits of %s failed", stream, exc_info=True)


def _old(runs: Sequence[Run], kept_ms: int | None) -> set[str]:
    """The audits that were older than ``kept_ms`` when the newest ended; None: none ever is."""
    if kept_ms is None:
        return set()
    return {run.audit for run in runs if runs[-1].finished_ms - run.finished_ms > kept_ms}


def _trim(path: str, unneeded: set[str], gone: str | None) -> None:
    if not DeltaTable.is_deltatable(path):
        return
    table = DeltaTable(path)
    there = {str(partition[AUDIT]) for partition in table.partitions()}
    if there & unneeded:
        names = ", ".join(f"'{audit}'" for audit in sorted(there & unneeded))
        table.delete(f"{AUDIT} IN ({names})")
    if gone and WINDOW_END in {field.name for field in table.schema().fields}:
        table.delete(gone)
    table.vacuum(retention_hours=_FILES_KEPT_H, enforce_retention_duration=False, dry_run=False)
