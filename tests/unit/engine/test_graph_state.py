"""What a graph remembers is read back from its rows, and from no more of them than are needed."""

from __future__ import annotations

import polars as pl
import pytest

from recount.declare.columns import BATCH, GENERATION
from recount.engine.state.graph_state import GraphState, since_snapshot
from recount.engine.state.keyed_rows import KeyedRows
from recount.runtime.errors import Terminal

SCHEMA: dict[str, pl.DataType] = {"key": pl.String(), "n": pl.Int64()}


def counts() -> KeyedRows:
    return KeyedRows(SCHEMA, ["key"])


def rows(first: int, end: int, n: int) -> pl.DataFrame:
    return pl.DataFrame([(f"k{key}", n) for key in range(first, end)], SCHEMA, orient="row")


def written(state: GraphState, batch: int) -> pl.DataFrame:
    order = [pl.lit(0, pl.Int32).alias(GENERATION), pl.lit(batch, pl.Int64).alias(BATCH)]
    return state.changes().with_columns(order)


def test_a_start_reads_what_was_written_since_the_last_snapshot_and_has_all() -> None:
    kept = counts()
    state = GraphState({"counts": kept})
    batches = []
    for batch in range(40):
        kept.put(rows(0, 1_000, batch))
        if batch == 20:
            kept.remove(rows(0, 10, batch))
        batches.append(written(state, batch))
    table = pl.concat(batches)
    needed = since_snapshot(table.lazy())
    assert needed[BATCH].min() > 0, "40,000 rows were written of 1,000 that are held"
    assert needed.height < table.height / 2
    found = counts()
    GraphState({"counts": found}).load(needed)
    assert found.rows.sort("key").equals(kept.rows.sort("key"))


def test_what_was_removed_after_the_snapshot_is_gone() -> None:
    kept = counts()
    state = GraphState({"counts": kept})
    kept.put(rows(0, 3, 1))
    first = written(state, 0)
    kept.remove(rows(1, 2, 1))
    second = written(state, 1)
    found = counts()
    GraphState({"counts": found}).load(since_snapshot(pl.concat([second, first]).lazy()))
    assert sorted(found.rows["key"]) == ["k0", "k2"]


def test_a_stream_of_which_nothing_is_written_begins_with_nothing() -> None:
    found = counts()
    state = GraphState({"counts": found})
    state.load(since_snapshot(written(state, 0).clear().lazy()))
    assert state.size == 0


def test_the_state_of_another_topology_is_refused_by_name() -> None:
    kept = counts()
    kept.put(rows(0, 1, 1))
    table = written(GraphState({"old": kept}), 0)
    with pytest.raises(Terminal, match="old"):
        GraphState({"counts": counts()}).load(since_snapshot(table.lazy()))
