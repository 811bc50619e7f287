"""The rows of a key in what the operators of a stream remember: JSON in its state table, under names of states.

``operator_states`` says of the declaration which column of each state has the key. The winners of a deduplication by
something else have an id only: which ids are those of a key follows from what the newest audit hands on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl
from deltalake import DeltaTable

from recount.audit.shape import flow_of
from recount.core.changelogs import TableAggregate
from recount.core.joins import StreamTableJoin
from recount.core.nodes import Node
from recount.core.processing import Deduplicate
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.declarations import DeclarationLog
from recount.erasure.erasable import goes_by_key
from recount.erasure.holdings import quoted
from recount.erasure.snapshot_rows import ids_in_snapshot, shared_ids_in_snapshot
from recount.recompute.graph.carrying import frame_name, names_of
from recount.spark.operators.graph import Graph
from recount.spark.operators.state_keys import key_column
from recount.spark.plan import plan_of

_AT_ONCE = 200


@dataclass(frozen=True, kw_only=True)
class OperatorState:
    """One ``state`` of ``node``, called ``name`` in the state table: its rows have the key, or an id, in ``column``."""

    name: str
    node: Node
    state: str
    column: str
    kind: pl.DataType

    @property
    def has_ids(self) -> bool:
        """Whether the column has ids that say nothing of a key."""
        return isinstance(self.node, Deduplicate) and self.state == "winners" and not goes_by_key(self.node)

    @property
    def has_other_keys(self) -> bool:
        """Whether it has rows of another key than that of the records which the operator makes results of."""
        match self.node, self.state:
            case (StreamTableJoin() as node, "table") | (TableAggregate() as node, "groups"):
                return not goes_by_key(node)
        return False

    def of(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """The ``row`` of each row that the state ``table`` has of it, and its key as text in ``value``."""
        decoded = pl.col("row").str.json_decode(pl.Struct({self.column: self.kind})).struct.field(self.column)
        return table.filter(pl.col("state") == self.name).select("state", "row", decoded.cast(pl.String).alias("value"))


def operator_states(topology: Topology, root: str) -> list[OperatorState]:
    """Those of the stream whose tables are below ``root``; none where it keeps its windows in columns of a table."""
    if plan_of(topology) is not None:
        return []
    enacted = DeclarationLog(root, topology.name).all()
    graph = Graph(topology, added=enacted[-1].additions) if enacted else Graph(topology)
    found = []
    for name, (node, state) in graph.owners.items():
        column = key_column(node, state)
        kind = graph.states[name].schema[column]
        found.append(OperatorState(name=name, node=node, state=state, column=column, kind=kind))
    return found


@dataclass(frozen=True, kw_only=True)
class StateRows:
    """The rows of ``key`` in the state of ``topology``; ``audit`` is the newest, which hands ids on."""

    tables: Tables
    topology: Topology
    audit: str | None
    key: str

    def count(self) -> int:
        """How many there are, those included that later ones have replaced."""
        return sum(self._of(one).select(pl.len()).collect().item() for one in self._states)

    def remove(self) -> None:
        """Delete them. The commits name them: ``purge_state`` takes these out of the log."""
        for one in self._states:
            texts = self._of(one).select("row").unique(maintain_order=True).collect()["row"].to_list()
            for start in range(0, len(texts), _AT_ONCE):
                told = ", ".join(map(quoted, texts[start : start + _AT_ONCE]))
                DeltaTable(self._path).delete(f'state = {quoted(one.name)} AND "row" IN ({told})')

    def hindrances(self) -> Iterator[str]:
        """Where the key is that of rows by which rows of other keys are made."""
        for one in self._states:
            if one.has_other_keys and self._with(one, [self.key]).head(1).collect().height:
                what = "a group" if isinstance(one.node, TableAggregate) else "a key of the table"
                yield (
                    f"the key is {what} of [{one.node}], by which rows of other keys are made: erase those"
                    " keys, or take the row out of its source and let the stream read on"
                )
        for operator in self._by_id:
            shared = shared_ids_in_snapshot(self.tables, self.topology.name, self.audit, operator, self.key)
            if shared:
                yield (
                    f"[{self._by_id[operator]}] remembers {shared} ids of the key that records of other keys have too:"
                    " erase when they are further back than its horizon"
                )

    @cached_property
    def _states(self) -> list[OperatorState]:
        is_there = DeltaTable.is_deltatable(self._path)
        return operator_states(self.topology, self.tables.root) if is_there else []

    def _of(self, one: OperatorState) -> pl.LazyFrame:
        return self._with(one, self._ids(one.node) if one.has_ids else [self.key])

    def _with(self, one: OperatorState, values: list[str]) -> pl.LazyFrame:
        return one.of(pl.scan_delta(self._path)).filter(pl.col("value").is_in(values))

    def _ids(self, node: Node) -> list[str]:
        [operator] = (name for name, one in self._by_id.items() if one is node)
        return ids_in_snapshot(self.tables, self.topology.name, self.audit, operator, self.key)

    @cached_property
    def _by_id(self) -> Mapping[str, Node]:
        """The deduplications by something else than the key, by the name of their frame in a snapshot."""
        if flow_of(self.topology) is not None:
            return {}
        named = names_of(self.topology).items()
        by_id = [(node, name) for node, name in named if isinstance(node, Deduplicate) and not goes_by_key(node)]
        return {frame_name(name, "records"): node for node, name in by_id}

    @property
    def _path(self) -> str:
        return self.tables.state(self.topology.name)
