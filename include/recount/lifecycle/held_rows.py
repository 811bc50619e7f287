"""The rows of one key at rest: streams that can forget a key, and what goes, by table.

A key is erased from each operator whose rows have it as their key. That comes to a state that the declaration can have
as long as what remembers rows has one key all the way: between two operators that remember, none may give another.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from recount.audit.carry.snapshots import COLUMNS, snapshot_rows, stream_of
from recount.audit.carry.store import CORRECTIONS, DIFFERENCES, PLANS, RECONCILIATION, SNAPSHOTS, VERDICTS, AuditStore
from recount.audit.cut.scope import COMPLETE_PART, TRUTH_PART
from recount.audit.integrity.table_checksums import ALL_FILES
from recount.declare.columns import AUDIT
from recount.declare.expression_types import type_of
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.keys_and_fields import goes_by_key, is_key
from recount.declare.operators.nodes import Node, SelectKey, Stateful, WithFields
from recount.declare.operators.processing import Deduplicate
from recount.declare.operators.stateless import Select
from recount.declare.operators.tables import TableAggregate, is_read_as_table
from recount.declare.registry import is_audited
from recount.declare.topology import Topology, Written
from recount.engine.operators.batch_graph import Graph
from recount.engine.operators.batch_processing import key_column
from recount.engine.state.graph_state import StoredState
from recount.recompute.operators.carried import (
    CLOCKS,
    ID_NAME,
    KEY_NAME,
    NotIncremental,
    frame_name,
    names_of,
    require_incremental,
)
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import MISSES
from recount.tables.decisions import DeclarationLog
from recount.tables.places import Tables

_SAME_AS_TEXT = ("string", "long", "boolean")
"""Types of which a snapshot and a state table have the same text."""
_BY_KEY_TEXT = (VERDICTS, RECONCILIATION, CORRECTIONS, DIFFERENCES, MISSES, PLANS)
_AT_ONCE = 200


def objection_to(topology: Topology) -> str | None:
    """Why no key can be erased from ``topology``; None where one can.

    A key must be found in all that its operators remember, and in what the audit hands on for each of them. A changed
    key field below an operator that remembers is refused too: an audit says results within its look back again, under
    that key.
    """
    if not is_audited(topology):
        return "it has actions only, so that no audit says what it remembers: `recount reset` it"
    try:
        require_incremental(topology.nodes())
    except NotIncremental as refusal:
        return f"each audit of it begins at the beginning of the log, where the key is: {refusal}"
    remembered: dict[Node, bool] = {}
    changed: dict[Node, Node | None] = {}
    for node in topology.nodes():
        is_below = any(remembered[above] for above in node.inputs)
        is_new = is_below and _gives_another_key(node)
        by = next((changed[above] for above in node.inputs if changed[above] is not None), None)
        objection = _unlike(node)
        if by is not None and isinstance(node, Stateful):
            objection = (
                f"[{node}] remembers rows under a key that [{by}] gave them, and an operator above it under another:"
                " which of them were made of the key to erase is not known. Write them to a topic before"
                f" [{by}], and go on from there in a topology of its own"
            )
        elif is_new and not isinstance(node, SelectKey):
            objection = f"[{node}] changes the key of what an operator above it remembers under another: use select_key"
        if objection is not None:
            return objection
        remembered[node] = is_below or isinstance(node, Stateful)
        changed[node] = node if is_new else by
    return None


def _gives_another_key(node: Node) -> bool:
    match node:
        case SelectKey(by=by, input=above):
            return not is_key(by, above)
        case WithFields(added=added):
            return node.key in added
        case Select(chosen=chosen, input=above):
            return node.key in chosen and not is_key(chosen[node.key], above)
    return False


def _unlike(node: Node) -> str | None:
    match node:
        case Deduplicate(by=by) if not goes_by_key(node):
            kind = type_of(by, node.input.fields)
            if kind is None or kind.kind not in _SAME_AS_TEXT:
                return (
                    f"[{node}] remembers ids only, which are no texts, longs or booleans: give each record such an id"
                )
        case TableAggregate() if not goes_by_key(node) and not is_read_as_table(node.input):
            return (
                f"[{node}] has groups of rows that are no records of a topic: when a row of the key has left its group"
                " is not known. Write the rows to a topic, and group them in a topology of its own"
            )
    return None


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A kind of rows of the Delta table at ``path``, called ``name`` in reports.

    Those of the key are ``mine``. They are deleted by their values of ``column``. Rows of other keys that name it,
    which stay, are ``named``.
    """

    name: str
    path: str
    column: str
    mine: pl.Expr
    named: pl.Expr | None = None

    def count(self) -> int:
        return self._rows(self.mine).len()

    def count_named(self) -> int:
        return 0 if self.named is None else self._rows(self.named).len()

    def remove(self) -> None:
        """Delete the rows of the key. The commits name it: a purge takes them out of the log."""
        texts = self._rows(self.mine).unique(maintain_order=True).to_list()
        for start in range(0, len(texts), _AT_ONCE):
            told = ", ".join(map(quoted, texts[start : start + _AT_ONCE]))
            column = self.column.replace('"', '""')
            DeltaTable(self.path).delete(f'CAST("{column}" AS VARCHAR) IN ({told})')

    def _rows(self, which: pl.Expr) -> pl.Series:
        """The values of ``column`` in the rows ``which``; nothing where there is no such table or column."""
        table = pl.scan_delta(self.path) if DeltaTable.is_deltatable(self.path) else pl.LazyFrame()
        if not {self.column, *which.meta.root_names()} <= set(table.collect_schema().names()):
            return pl.Series(dtype=pl.String)
        found = table.filter(which).select(pl.col(self.column).cast(pl.String))
        # a filter that is pushed down would be asked of the least and largest values in the log, which are cut
        return found.collect(engine="streaming", optimizations=ALL_FILES).to_series()


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, kw_only=True)
class HeldState:
    """The rows of ``key`` in the state ``of`` the operator ``node``: ``by`` has one of ``values`` there, as text."""

    stored: StoredState
    by: str
    node: Node
    of: str
    key: str
    values: Sequence[str]
    name = "state"

    @property
    def path(self) -> str:
        return self.stored.path

    def count(self) -> int:
        return self.stored.count(self._is_mine)

    def count_named(self) -> int:
        text = pl.struct(list(self.stored.schema)).struct.json_encode()
        names = text.str.contains(json.dumps(self.key, ensure_ascii=False), literal=True)
        return self.stored.count(names & pl.col(self.by).cast(pl.String).ne_missing(pl.lit(self.key)))

    def remove(self) -> None:
        self.stored.remove(self._is_mine)

    @property
    def _is_mine(self) -> pl.Expr:
        return pl.col(self.by).cast(pl.String).is_in(list(self.values)).fill_null(value=False)


@dataclass(frozen=True, kw_only=True)
class HeldKey:
    """Everything of ``key`` that ``topology`` and its audits have at rest; ``audit`` is the newest, if there is one.

    The winners of a deduplication by something else than the key have an id only: which ids are those of a key follows
    from what that audit hands on.
    """

    tables: Tables
    topology: Topology
    audit: str | None
    key: str

    def holdings(self) -> Iterator[Holding | HeldState]:
        """The rows by table, without snapshots; a rejected record counts where its detail has the key as a word."""
        tables, stream = self.tables, self.topology.name
        for node in self.topology.written:
            yield self._of_sink(f"outputs/{node.table}", tables.output(node.table), node)
            yield self._of_sink(f"corrections/{node.table}", tables.corrections(node.table), node)
        yield from self._of_operators()
        yield self._by_column("late", tables.late(stream), "key")
        word = pl.col("detail").str.contains(rf"(^|\W){pl.escape_regex(self.key)}(\W|$)")
        yield Holding(name="rejected", path=tables.rejected(stream), column="detail", mine=word)
        for name in _BY_KEY_TEXT:
            yield self._by_column(f"audits/{name}", tables.audit(stream, name), "key")

    def counts(self) -> dict[str, int]:
        """How many rows of the key there are, by table; tables without any are left out."""
        found = self._by_table(lambda one: one.count())
        if self.handed_on is not None:
            found["audits/snapshots"] = self.handed_on.count(self.key)
        return {name: number for name, number in found.items() if number}

    def named(self) -> dict[str, int]:
        """How many rows of other keys name the key, by table; tables without any are left out."""
        return {name: number for name, number in self._by_table(lambda one: one.count_named()).items() if number}

    def _by_table(self, count: Callable[[Holding | HeldState], int]) -> Counter[str]:
        found = Counter[str]()
        for one in self.holdings():
            found[one.name] += count(one)
        return found

    @property
    def handed_on(self) -> HandedOn | None:
        """The snapshot of the newest audit; None where it has none."""
        stream = self.topology.name
        if self.audit is None or not AuditStore(self.tables, stream).has(SNAPSHOTS, self.audit):
            return None
        return HandedOn(tables=self.tables, stream=stream, audit=self.audit)

    def hindrances(self) -> Iterator[str]:
        """Where the key is that of rows by which rows of other keys are made."""
        for held in self._operator_states():
            node = held.node
            match node, held.of:
                case TableAggregate(), "groups":
                    what = "a group"
                case StreamTableJoin(), "table":
                    what = "a key of the table"
                case _:
                    continue
            if not goes_by_key(node) and held.count():
                yield (
                    f"the key is {what} of [{node}], by which rows of other keys are made: erase those"
                    " keys, or take the row out of its source and let the stream read on"
                )
        for node in names_of(self.topology):
            if isinstance(node, Deduplicate) and not goes_by_key(node):
                mine, others = self._ids(node)
                if mine & others:
                    yield (
                        f"[{node}] remembers {len(mine & others)} ids of the key that records of other keys have too:"
                        " erase when they are further back than its horizon"
                    )

    def _by_column(self, name: str, path: str, column: str) -> Holding:
        return Holding(name=name, path=path, column=column, mine=pl.col(column).cast(pl.String) == self.key)

    def _of_sink(self, name: str, path: str, node: Written) -> Holding:
        mine = self._by_column(name, path, node.key)
        known = pl.scan_delta(path).collect_schema().names() if DeltaTable.is_deltatable(path) else []
        texts = [one for one, kind in node.fields.items() if kind.kind == "string" and one != node.key and one in known]
        if not texts:
            return mine
        named = pl.any_horizontal(pl.col(texts) == self.key) & mine.mine.not_()
        return Holding(name=name, path=path, column=node.key, mine=mine.mine, named=named)

    def _of_operators(self) -> Iterator[HeldState]:
        for held in self._operator_states():
            has_ids = isinstance(held.node, Deduplicate) and held.of == "winners" and not goes_by_key(held.node)
            yield replace(held, values=sorted(self._ids(held.node)[0])) if has_ids else held

    def _operator_states(self) -> Iterator[HeldState]:
        """The rows of the key itself in each state of an operator."""
        enacted = DeclarationLog(self.tables.root, self.topology.name).last()
        graph = Graph(self.topology, added=enacted.additions) if enacted else Graph(self.topology)
        path = self.tables.state(self.topology.name)
        for name, (node, of) in graph.owners.items():
            stored = StoredState(path=path, state=name, schema=graph.states[name].schema)
            by = key_column(node, of)
            yield HeldState(stored=stored, by=by, node=node, of=of, key=self.key, values=[self.key])

    def _ids(self, node: Node) -> tuple[set[str], set[str]]:
        """The ids of the key's records in the deduplication ``node``, and those of all others."""
        if self.handed_on is None:
            return set(), set()
        return self.handed_on.ids(frame_name(names_of(self.topology)[node], "records"), self.key)


@dataclass(frozen=True, kw_only=True)
class HandedOn:
    """The snapshot of ``audit``, whose frames say by a column where keys are."""

    tables: Tables
    stream: str
    audit: str

    def count(self, key: str) -> int:
        """How many rows of ``key`` it has; raises ``Terminal`` for a frame whose rows of a key cannot be found."""
        batches = [batch for _, batch in self._batches() if batch is not None]
        return sum(batch.filter(_is_of(batch, key)).num_rows for batch in batches)

    def remove(self, key: str) -> None:
        """Rewrite it without ``key``, and drop those of all other audits."""
        kept = []
        for row, batch in self._batches():
            left = None if batch is None else batch.filter(pc.invert(_is_of(batch, key)))
            if batch is None or left is None or left.num_rows == batch.num_rows:
                kept.append(row)
            elif left.num_rows:
                numbered = left.rename_columns([str(at) for at in range(left.num_columns)])
                kept.append({**row, "rows": stream_of(numbered)})
        told = pl.DataFrame([[row[name] for name in COLUMNS] for row in kept], COLUMNS, orient="row")
        AuditStore(self.tables, self.stream).put_rows(SNAPSHOTS, self.audit, told)
        DeltaTable(self.tables.audit(self.stream, SNAPSHOTS)).delete(f"{AUDIT} <> '{self.audit}'")

    def ids(self, frame: str, key: str) -> tuple[set[str], set[str]]:
        """The ids of the records of ``key`` in the frames called ``frame``, and those of all others."""
        mine: set[str] = set()
        others: set[str] = set()
        for row, batch in self._batches():
            if batch is None or row["name"] != frame:
                continue
            is_mine, ids = _is_of(batch, key), batch.column(ID_NAME).cast(pa.string())
            mine |= set(ids.filter(is_mine).to_pylist())
            others |= set(ids.filter(pc.invert(is_mine)).to_pylist())
        return mine, others

    def _batches(self) -> Iterator[tuple[dict[str, Any], pa.Table | None]]:
        """The rows of the table, each with its batch; None: it has no rows of keys."""
        rows = list(snapshot_rows(self.tables, self.stream, self.audit))
        headers = [row for row in rows if row["schema"] is not None]
        columns = {_place(row): [field["name"] for field in json.loads(row["schema"])["fields"]] for row in headers}
        for row in rows:
            has_no_keys = row["part"] in (TRUTH_PART, COMPLETE_PART) and row["name"] == CLOCKS
            if row["rows"] is None or has_no_keys:
                yield row, None
                continue
            names = columns[_place(row)]
            if KEY_NAME not in names:
                raise Terminal.of(
                    "snapshot-without-keys",
                    given=f"{row['part']} {row['name']}, columns {', '.join(names)}",
                    key_name=KEY_NAME,
                    stream=self.stream,
                )
            yield row, pa.ipc.open_stream(row["rows"]).read_all().rename_columns(names)


def _place(row: dict[str, Any]) -> tuple[str, str]:
    return row["part"], row["name"]


def _is_of(batch: pa.Table, key: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(batch.column(KEY_NAME).cast(pa.string()), key), False)
