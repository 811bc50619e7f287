"""State and cost of a stream as measured: read from its Delta tables while it runs or after its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import median

import polars as pl
from deltalake import DeltaTable

from recount.advise.workload import NEWEST_BATCHES, event_rates
from recount.declare.changes import NOTHING_ADDED
from recount.declare.columns import TIMESTAMP
from recount.declare.operators.joins import StreamStreamJoin
from recount.declare.topology import Topology
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.delta_table import AppendOnlyTable
from recount.engine.commit.stream_tables import StreamTables
from recount.engine.operators.batch_graph import Graph
from recount.engine.stage.polars_expressions import field_column
from recount.engine.state.graph_state import MANY, GraphState, since_snapshot
from recount.tables.batch_proofs import earlier
from recount.tables.decisions import DeclarationLog
from recount.tables.ledger import BatchProof

_ROWS_THAT_TELL = 10_000
"""Reading fewer rows takes as long as opening their files."""
_OUTER = 0.005
"""Of the rows with a partner that may lie outside on each side, so that 99 % lie inside."""
_PAIRS_THAT_TELL = 100


@dataclass(frozen=True, kw_only=True)
class Held:
    rows: int
    bytes: int

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Held:
        """The bytes of the Arrow buffers: ``estimated_size`` leaves out the 16 bytes that a text has in any case."""
        return cls(rows=rows.height, bytes=rows.to_arrow(compat_level=pl.CompatLevel.newest()).nbytes)


@dataclass(frozen=True, kw_only=True)
class TableSize:
    """Delta tables as they are on disk now: the files of their last version."""

    rows: int
    bytes: int
    files: int

    @classmethod
    def of(cls, *tables: AppendOnlyTable) -> TableSize:
        sizes = [
            size for one in tables for size in DeltaTable(one.path).get_add_actions().column("size_bytes").to_pylist()
        ]
        rows = sum(_rows_of(one.read()) for one in tables)
        return cls(rows=rows, bytes=sum(sizes), files=len(sizes))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The newest batches of a stream, at most 200, and all that it remembers after them.

    Medians over these batches: ``interval_ms`` from one to the next, ``records`` read, ``emitted`` rows, ``changed``
    rows appended to the state table, ``append_ms`` that this took (None where the writer of the table did not say).
    ``rates``: records a second of event time by topic. ``read_back_s``: how long it took just now to read the state
    back, as a restart does: ``rows_read`` of the ``table``. ``restart_ms``: of the newest restart among these batches,
    from the batch before it to the one after it, standstill included. ``partners``: of joins of streams, by number.
    """

    held: Mapping[str, Held]
    table: TableSize
    outputs: TableSize
    batches: int
    interval_ms: float | None
    records: float
    emitted: float
    changed: float
    append_ms: float | None
    rates: Mapping[str, float]
    read_back_s: float
    rows_read: int
    restart_ms: int | None
    partners: Mapping[int, Partners]

    @property
    def rows_read_per_s(self) -> float | None:
        """How fast rows of the state table are read back on this machine; None where they are too few to tell."""
        return self.rows_read / self.read_back_s if self.rows_read >= _ROWS_THAT_TELL else None


def measured(topology: Topology, root: str) -> Measured | None:
    """The figures of the stream ``topology`` below ``root``; None where it has never committed a batch."""
    tables = TopologyWork(topology, root).tables
    last = tables.history.newest()
    if last is None:
        return None
    begun_s = time.monotonic()
    held, partners, read = _read_back(topology, tables, root, last)
    read_back_s = time.monotonic() - begun_s
    entries = list(islice(tables.history.newest_first(), NEWEST_BATCHES))
    proofs = [entry.proof for entry in entries]
    between = [
        (newer.batch_timestamp_ms - older.batch_timestamp_ms, newer.lease_epoch != older.lease_epoch)
        for newer, older in pairwise(proofs)
    ]
    return Measured(
        held=held,
        table=TableSize.of(tables.state),
        # that of a sink that was added is made when the stream starts again
        outputs=TableSize.of(*(one for one in tables.outputs.values() if DeltaTable.is_deltatable(one.path))),
        batches=len(proofs),
        interval_ms=_median([ms for ms, _ in between]),
        records=median(sum(part.records for part in proof.partitions) for proof in proofs),
        emitted=median(sum(proof.emitted.values()) for proof in proofs),
        changed=median(entry.rows_added for entry in entries),
        append_ms=_median([entry.append_ms for entry in entries if entry.append_ms is not None]),
        rates=event_rates(proofs),
        read_back_s=read_back_s,
        rows_read=_rows_of(read),
        # another lease epoch is another driver
        restart_ms=next((ms for ms, is_restart in between if is_restart), None),
        partners=partners,
    )


def _median(figures: Sequence[float]) -> float | None:
    return median(figures) if figures else None


def _rows_of(table: pl.LazyFrame) -> int:
    """How many rows it has; of a state table, how many its rows have together."""
    is_packed = MANY in table.collect_schema()
    return int(table.select(pl.col(MANY).sum() if is_packed else pl.len()).collect().item())


def _read_back(
    topology: Topology, tables: StreamTables, root: str, last: BatchProof
) -> tuple[dict[str, Held], dict[int, Partners], pl.LazyFrame]:
    """Return the rows held after ``last`` by state, the partners in joins, and the rows that a restart reads."""
    rows = tables.state.read().filter(earlier((last.generation, last.batch + 1)))
    enacted = DeclarationLog(root, topology.name).last()
    graph, since = Graph(topology, added=enacted.additions if enacted else NOTHING_ADDED), since_snapshot(rows)
    GraphState(graph.states, graph.clocks).load(since)
    # under the names of the estimates, which know of no upgrade
    held_by = zip(Graph(topology).states, graph.states.values(), strict=True)
    sides = {owner: graph.states[name].rows for name, owner in graph.owners.items()}
    partners = {
        number: Partners.of(node, sides[node, "left"], sides[node, "right"])
        for number, node in enumerate(topology.nodes(), start=1)
        if isinstance(node, StreamStreamJoin)
    }
    return {name: Held.of(state.rows) for name, state in held_by}, partners, since.lazy()


@dataclass(frozen=True, kw_only=True)
class Partners:
    """Distances of the rows held on both sides to the nearest of their key on the other: right less left time, in ms.

    ``near`` have it within the declared window, ``far`` have one outside of it, ``alone`` have none that is held. 99 %
    of the near and far lie from ``first_ms`` to ``last_ms``, all from ``least_ms`` to ``most_ms``; None where there are
    too few. Rows are held for before + after + grace: what is further apart is not seen.
    """

    near: int
    far: int
    alone: int
    first_ms: int | None = None
    last_ms: int | None = None
    least_ms: int | None = None
    most_ms: int | None = None

    @classmethod
    def of(cls, node: StreamStreamJoin, left: pl.DataFrame, right: pl.DataFrame) -> Partners:
        """Return the partners among these rows, which the join ``node`` holds."""
        sides = [
            rows.select(pl.col(field_column(side.key)).alias("key"), TIMESTAMP).sort(TIMESTAMP)
            for side, rows in zip(node.inputs, (left, right), strict=True)
        ]
        found = pl.concat([_nearest(*sides), -_nearest(*reversed(sides))])
        distances = found.drop_nulls().sort()
        near, count = int(distances.is_between(-node.before_ms, node.after_ms).sum()), len(distances)
        bounds = {}
        if count >= _PAIRS_THAT_TELL:
            places = {
                "first_ms": int(_OUTER * count),
                "last_ms": -1 - int(_OUTER * count),
                "least_ms": 0,
                "most_ms": -1,
            }
            bounds = {name: distances[place] for name, place in places.items()}
        return cls(near=near, far=count - near, alone=found.null_count(), **bounds)


def _nearest(own: pl.DataFrame, other: pl.DataFrame) -> pl.Series:
    """Return for each row of ``own`` how much later the nearest of its key in ``other`` is; null where none is."""
    partner = other.with_columns(pl.col(TIMESTAMP).alias("partner_ms"))
    joined = own.join_asof(partner, on=TIMESTAMP, by="key", strategy="nearest", check_sortedness=False)
    return joined.select(pl.col("partner_ms") - pl.col(TIMESTAMP)).to_series()
