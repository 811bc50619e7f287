"""State of a single aggregation over time windows as earlier releases kept it: a row for each batch, key and window."""

import polars as pl
from deltalake import DeltaTable, write_deltalake

from recount.declare.columns import BATCH, GENERATION, RESULT_TIME, REVISION, TIMESTAMP
from recount.declare.operators.nodes import WINDOW_END, WindowedAggregate
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows
from recount.engine.commit.stream_tables import StreamTables
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_graph import Graph
from recount.engine.operators.batch_operator import FRONTIER, time_frame
from recount.engine.operators.batch_rows import META
from recount.engine.operators.windowed_state import BOUNDS, HELD, LATEST, NOT_EMITTED
from recount.engine.stage.polars_expressions import field_column
from recount.engine.state.graph_state import HEAD, STATE_SCHEMA, packed
from recount.engine.state.keyed_rows import DELETED
from recount.tables.batch_proofs import earlier

_BATCHES = "batches"


def bring_up_windows(topology: Topology, tables: StreamTables) -> None:
    """Give the state of ``topology`` the form of today, in one commit, where it has that of an earlier release.

    What becomes of it is a snapshot after the last batch of the ledger: the windows that are open. The stream must be
    the only one that writes the tables.
    """
    path = tables.state.path
    if not DeltaTable.is_deltatable(path) or WINDOW_END not in pl.scan_delta(path).collect_schema():
        return
    graph = Graph(topology)
    [(node, _), *_] = graph.owners.values()
    assert isinstance(node, WindowedAggregate)
    last = tables.history.newest()
    made = []
    if last is not None:
        until = earlier((last.generation, last.batch + 1))
        windows = _open(node, pl.scan_delta(path).filter(until), tables, last.frontier_ms, until)
        by_name = {
            **{name: windows.select(list(graph.states[name].schema)) for name in graph.owners},
            **dict.fromkeys(
                graph.clocks,
                time_frame(
                    {(one.topic, one.partition): one.stream_time_ms for one in last.partitions}
                    | {FRONTIER: last.frontier_ms}
                ).drop_nulls(),
            ),
        }
        made = [(HEAD, b"", 1, True, 0, *last.order)]
        for name, rows in by_name.items():
            kept = rows.with_columns(pl.lit(value=False).alias(DELETED))
            made.append((name, packed(kept), kept.height, True, 0, *last.order))
    schema = {**STATE_SCHEMA, GENERATION: pl.Int32(), BATCH: pl.Int64()}
    write_deltalake(path, pl.DataFrame(made, schema, orient="row"), mode="overwrite", schema_mode="overwrite")


def _open(
    node: WindowedAggregate, partials: pl.LazyFrame, tables: StreamTables, frontier_ms: int | None, until: pl.Expr
) -> pl.DataFrame:
    """The windows of ``node`` that are open after the batches ``until``, with accumulators and last revision.

    A final result that has left belongs to a closed window. Of the others each batch that touched one has emitted it.
    """
    assert isinstance(node.windows, TimeWindows)
    key, by = field_column(node.key), [field_column(node.key), *BOUNDS]
    accumulators = Accumulators(node.aggregates, node.input.fields)
    if frontier_ms is not None:
        partials = partials.filter(pl.col(WINDOW_END) > frontier_ms - node.windows.closes_ms(0))
    rows = accumulators.of_results(partials.with_columns(pl.col(RESULT_TIME).alias(TIMESTAMP)).collect())
    rows = rows.rename({node.key: key})
    merged = accumulators.merged(rows, by, **LATEST, **{_BATCHES: pl.len().cast(META[REVISION])})
    is_final = node.emission.kind == "final"
    if is_final and not merged.is_empty():
        [output] = tables.outputs.values()
        emitted = output.read().filter(until & (pl.col(WINDOW_END) >= merged[WINDOW_END].min()))
        merged = merged.join(emitted.rename({node.key: key}).select(by).collect(), on=by, how="anti")
    return merged.with_columns(
        (pl.lit(NOT_EMITTED, META[REVISION]) if is_final else pl.col(_BATCHES) - 1).alias(REVISION),
        pl.lit(is_final).alias(HELD),
    )
