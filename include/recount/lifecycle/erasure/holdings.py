"""Erasable streams, the text of a key in each, and the Delta tables and columns that hold the key.

A key is erased from each operator whose rows have it as their key. That comes to a state that the declaration can have
as long as what remembers rows has one key all the way: between two operators that remember, none may give another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from deltalake import DeltaTable

from recount.audit.audit_shape import flow_of
from recount.audit.carry.store import (
    CORRECTIONS,
    DIFFERENCES,
    PARTIALS,
    PLANS,
    PUBLISHED,
    RECONCILIATION,
    SNAPSHOTS,
    VERDICTS,
)
from recount.declare.expression_types import type_of
from recount.declare.expressions import Column, Expression
from recount.declare.operators.joins import StreamTableJoin
from recount.declare.operators.nodes import Filter, Node, SelectKey, Sink, Stateful, WithFields
from recount.declare.operators.processing import Deduplicate, InOrder
from recount.declare.operators.stateless import Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable, is_read_as_table
from recount.declare.registry import is_audited
from recount.declare.schema import LONG_MAX, LONG_MIN
from recount.declare.topology import Topology, Written
from recount.engine.stage.partials import plan_of
from recount.recompute.operators.carried import NotIncremental, require_incremental
from recount.tables.batch_proofs import MISSES, RUNS
from recount.tables.places import Tables

_PASSING = (Filter, Peek, Repartition, Through, Sink, InOrder, Deduplicate, ToTable, TableFilter, Suppress)
_SAME_AS_TEXT = ("string", "long", "boolean")
"""Types of which a snapshot and a state table have the same text."""
_LONG = re.compile(r"0|-?[1-9][0-9]{0,18}")
_BY_KEY_TEXT = (VERDICTS, RECONCILIATION, CORRECTIONS, DIFFERENCES, MISSES)
_BY_KEY_FIELD = (PARTIALS, PUBLISHED, PLANS)


def objection_to(topology: Topology) -> str | None:
    """Why no key can be erased from ``topology``; None where one can.

    A key must be found in all that its operators remember, and in what the audit hands on for each of them.
    """
    if not is_audited(topology):
        return "it has actions only, so that no audit says what it remembers: `recount reset` it"
    if flow_of(topology) is not None:
        return None
    found = (_judged_from_the_beginning(topology), *map(_unlike, topology.nodes()), _rekeyed(topology))
    return next((objection for objection in found if objection is not None), None)


def goes_by_key(node: Deduplicate | StreamTableJoin | TableAggregate) -> bool:
    """Whether ``node`` tells records apart, looks up or groups by the very key of the records."""
    above = node.left if isinstance(node, StreamTableJoin) else node.input
    return node.by is None or _is_one_of(node.by, _holding_the_key(above))


def _judged_from_the_beginning(topology: Topology) -> str | None:
    try:
        require_incremental(topology.nodes())
    except NotIncremental as refusal:
        return f"each audit of it begins at the beginning of the log, where the key is: {refusal}"
    return None


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


def _rekeyed(topology: Topology) -> str | None:
    """The first operator that remembers rows under another key than the operators above it do.

    A changed key field below them is refused too: an audit says results within its look back again, under that key.
    """
    changed: dict[Node, Node | None] = {}
    remembered: dict[Node, bool] = {}
    for node in topology.nodes():
        remembered[node] = isinstance(node, Stateful) or any(remembered[above] for above in node.inputs)
        found = next((changed[above] for above in node.inputs if changed[above] is not None), None)
        if found is not None and isinstance(node, Stateful):
            return (
                f"[{node}] remembers rows under a key that [{found}] gave them, and an operator above it under another:"
                " which of them were made of the key to erase is not known. Write them to a topic before"
                f" [{found}], and go on from there in a topology of its own"
            )
        is_new = _gives_another_key(node) and any(remembered[above] for above in node.inputs)
        if is_new and not isinstance(node, SelectKey):
            return f"[{node}] changes the key of what an operator above it remembers under another: use select_key"
        changed[node] = node if is_new else found
    return None


def _gives_another_key(node: Node) -> bool:
    match node:
        case SelectKey(by=by, input=above):
            return not _is_one_of(by, _holding_the_key(above))
        case WithFields(added=added):
            return node.key in added
        case Select(chosen=chosen, input=above):
            return node.key in chosen and not _is_one_of(chosen[node.key], _holding_the_key(above))
    return False


def _holding_the_key(node: Node) -> frozenset[str]:
    """The fields of what leaves ``node`` that always have its key as value."""
    match node:
        case SelectKey(key=key, by=by, input=above):
            known = _holding_the_key(above)
            if _is_one_of(by, known):
                return known | {key}
            return frozenset({key, by.name}) if isinstance(by, Column) else frozenset({key})
        case WithFields(added=added, input=above):
            return frozenset({node.key}) | (
                frozenset() if node.key in added else _holding_the_key(above) - added.keys()
            )
        case Select(chosen=chosen, input=above):
            return frozenset({node.key}) | _kept(chosen, above)
        case _ if isinstance(node, _PASSING):
            return _holding_the_key(node.input)
    return frozenset({node.key})


def _kept(chosen: Mapping[str, Expression], above: Node) -> frozenset[str]:
    """The ``chosen`` fields that hold the key unchanged; none where the key itself is computed by the selection."""
    known = _holding_the_key(above)
    if above.key in chosen and not _is_one_of(chosen[above.key], known):
        return frozenset()
    return frozenset(name for name, tree in chosen.items() if _is_one_of(tree, known))


def _is_one_of(tree: Expression, fields: frozenset[str]) -> bool:
    return isinstance(tree, Column) and tree.name in fields


def text_in(written: Written, key: str) -> str | None:
    """``key`` as the text of the key of ``written``, which is a text or a long; None where it can have no such key.

    Spark, Polars, Delta and Kafka have the same text of either. ``007`` is no text of a long.
    """
    if written.fields[written.key].kind != "long":
        return key
    is_long = _LONG.fullmatch(key) is not None and LONG_MIN <= int(key) <= LONG_MAX
    return key if is_long else None


@dataclass(frozen=True, kw_only=True)
class Holding:
    """The Delta table at ``path``, named ``name`` in reports, whose rows have keys in ``column``."""

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
