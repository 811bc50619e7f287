"""Where a stream and its audits keep rows of a key: Delta tables, each with the column that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from deltalake import DeltaTable

from recount.audit.shape import flow_of
from recount.audit.store import (
    CORRECTIONS,
    DIFFERENCES,
    PARTIALS,
    PLANS,
    PUBLISHED,
    RECONCILIATION,
    SNAPSHOTS,
    VERDICTS,
)
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.erasure.erasable import text_in
from recount.released import MISSES, RUNS
from recount.spark.plan import plan_of

_BY_KEY_TEXT = (VERDICTS, RECONCILIATION, CORRECTIONS, DIFFERENCES, MISSES)
_BY_KEY_FIELD = (PARTIALS, PUBLISHED, PLANS)


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The Delta table at ``path``, told as ``name``, whose rows have keys in ``column``."""

    name: str
    path: str
    column: str

    @property
    def is_there(self) -> bool:
        """Whether the table exists and has the column."""
        if not DeltaTable.is_deltatable(self.path):
            return False
        return self.column in {field.name for field in DeltaTable(self.path).schema().fields}

    def count(self, text: str) -> int:
        """How many rows have the key ``text``."""
        if not self.is_there:
            return 0
        rows = pl.scan_delta(self.path).filter(pl.col(self.column).cast(pl.String) == text)
        return int(rows.select(pl.len()).collect().item())

    def remove(self, text: str) -> None:
        """Delete these rows. The commit names the key: ``purged`` takes it out of the log."""
        if self.count(text):
            DeltaTable(self.path).delete(predicate(self.column, text))


def predicate(column: str, text: str) -> str:
    """Which rows have ``text`` in ``column``, as SQL."""
    quoted_column = column.replace('"', '""')
    return f'CAST("{quoted_column}" AS VARCHAR) = {quoted(text)}'


def quoted(text: str) -> str:
    """``text`` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def of_stream(tables: Tables, topology: Topology, key: str) -> list[Holding]:
    """The tables that the stream and its backfills write and that can hold ``key``; state of operators apart."""
    plan, found = plan_of(topology), []
    for node in topology.written:
        if text_in(node, key) is not None:
            for folder, path in (("outputs", tables.output), ("corrections", tables.corrections)):
                found.append(Holding(name=f"{folder}/{node.table}", path=path(node.table), column=node.key))
    if plan is not None:
        found.append(Holding(name="state", path=tables.state(topology.name), column=plan.aggregate.key))
    return [*found, Holding(name="late", path=tables.late(topology.name), column="key")]


def of_audits(tables: Tables, topology: Topology) -> list[Holding]:
    """The tables of the audits that have a row for a key."""
    flow = flow_of(topology)
    columns = dict.fromkeys(_BY_KEY_TEXT, "key")
    columns |= dict.fromkeys(_BY_KEY_FIELD, "key" if flow is None else flow.key)
    return [
        Holding(name=f"audits/{name}", path=tables.audit(topology.name, name), column=column)
        for name, column in columns.items()
    ]


def all_paths(tables: Tables, topology: Topology, key: str) -> Sequence[str]:
    """Every table whose files or log can hold ``key``, but for the state table, whose log is a ledger."""
    found = [one.path for one in (*of_stream(tables, topology, key), *of_audits(tables, topology))]
    found += [tables.rejected(topology.name), *(tables.audit(topology.name, name) for name in (SNAPSHOTS, RUNS))]
    state = tables.state(topology.name)
    return [path for path in dict.fromkeys(found) if path != state and DeltaTable.is_deltatable(path)]
