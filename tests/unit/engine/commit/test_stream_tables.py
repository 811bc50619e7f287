"""The stream's Delta tables: each batch once, with its proof, and enough to go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.unit.engine.engine import NOW_MS, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count, total
from recount.declare.schema import STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.commit.delta_table import AppendOnlyTable
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.driver.stream_command import work_of
from recount.engine.exchange.work import Computed
from recount.runtime.errors import Terminal
from recount.tables.ledger import BatchProof

SALES = Topic(name="sales", key="shop", value=RecordSchema.of(item=STRING, price=decimal(9, 2)))
_WINDOWED = stream(SALES).windowed_by(tumbling("10 s", grace="2 s")).aggregate(sales=count(), revenue=total("price"))
_OUT = Topic(name="shop-revenue", key="shop")
REVENUE = Topology(name="shop-revenue", sinks=[_WINDOWED.emit_final().to(_OUT)], idle_after="60 s")
IDLE_AFTER_MS = 60_000


def sale(second: int, price: str = "0.10", partition: int = 0, shop: bytes = b"north") -> LogRecord:
    value = b"{" if price == "bad" else f'{{"item": "tea", "price": {price}}}'.encode()
    return LogRecord(timestamp_ms=second * 1_000, partition=partition, key=shop, value=value)


BATCHES: list[tuple[list[LogRecord], int]] = [
    ([sale(1), sale(2, shop=b"south"), sale(1, partition=1)], 0),
    ([sale(13, "1.05"), sale(5, "bad"), sale(14, partition=1), sale(1)], 0),
    ([sale(40)], IDLE_AFTER_MS),
    ([sale(15, "2.00", partition=1), sale(9, partition=1)], 0),
    ([sale(16, "3.00", partition=1)], 0),
    ([sale(0)], 0),
]
"""Finals, late and bad records, a partition that falls idle and speaks again."""

REPLAYED = {1, 3}


def proof_of(engine: TopologyEngine, batch: int) -> BatchProof:
    return BatchProof(
        stream=REVENUE.name,
        generation=0,
        batch=batch,
        checkpoint_id="checkpoint",
        lease_epoch=1,
        batch_timestamp_ms=NOW_MS,
        partitions=tuple(engine.clock.partitions.values()),
        frontier_ms=engine.clock.frontier_ms,
    )


def tables_of(engine: TopologyEngine, root: Path) -> StreamTables:
    computation = engine.computation
    outputs = {sink.table: computation.output_schema(sink) for sink in computation.sinks}
    return StreamTables(REVENUE.name, str(root), state=computation.state_schema, outputs=outputs)


def rows_of(made: Computed) -> BatchRows:
    return BatchRows(state=made.state, late=made.late, rejected=made.rejected, emitted=made.emitted)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[StreamTables, TopologyEngine]:
    """All batches in the tables, some of them twice."""
    engine = TopologyEngine(REVENUE, {"sales": 2})
    tables = tables_of(engine, tmp_path_factory.mktemp("tables"))
    tables.create()
    tables.create()
    now_ms = NOW_MS
    for batch, (records, later_ms) in enumerate(BATCHES):
        now_ms += later_ms
        made = engine.batch({"sales": records}, now_ms=now_ms)
        rows = rows_of(made)
        for _ in range(2 if batch in REPLAYED else 1):
            tables.append(rows, proof_of(engine, batch))
    return tables, engine


def rows_in(table: AppendOnlyTable) -> pl.DataFrame:
    return table.read().collect()


def test_a_batch_that_is_written_twice_is_there_once(written: tuple[StreamTables, TopologyEngine]) -> None:
    tables, engine = written
    assert rows_in(tables.state).height == engine.state.height
    assert rows_in(tables.late).height == engine.late.height > 0
    assert rows_in(tables.rejected).height == sum(made.rejected.height for made in engine.computed) > 0
    assert rows_in(tables.outputs["shop_revenue"]).height == engine.emitted("shop_revenue").height > 0


def test_results_of_another_stream_are_seen_before_a_first_start(
    written: tuple[StreamTables, TopologyEngine], tmp_path: Path
) -> None:
    tables, engine = written
    with pytest.raises(Terminal, match="outputs/shop_revenue"):
        tables.require_new()
    empty = tables_of(engine, tmp_path)
    empty.require_new()
    empty.create()
    empty.require_new()


def test_the_proof_before_a_batch_is_found(written: tuple[StreamTables, TopologyEngine]) -> None:
    tables, _ = written
    found = {order: tables.history.newest(order) for order in [(0, 0), (0, 3), (1, 0)]}
    assert {order: proof and proof.batch for order, proof in found.items()} == {(0, 0): None, (0, 3): 2, (1, 0): 5}


def test_a_new_writer_name_starts_a_new_sequence_of_versions(tmp_path: Path) -> None:
    numbers = AppendOnlyTable(path=str(tmp_path), schema={"n": pl.Int64()})
    numbers.create()
    for writer, version in [("one", 0), ("one", 1), ("one", 1), ("one", 0), ("two", 0)]:
        numbers.append(pl.DataFrame({"n": [version]}), writer=writer, version=version)
    assert sorted(rows_in(numbers)["n"]) == [0, 0, 1]


def test_compaction_leaves_rows_ledger_and_writers_as_they_are(tmp_path: Path) -> None:
    engine = TopologyEngine(REVENUE, {"sales": 1})
    tables = tables_of(engine, tmp_path)
    tables.create()
    for batch in (1, 2, 3):
        made = engine.batch({"sales": [sale(1)]})
        rows = rows_of(made)
        tables.append(rows, proof_of(engine, batch))
    before = rows_in(tables.state)
    tables.state.compact()
    tables.append(rows, proof_of(engine, 3))
    assert len(DeltaTable(tables.state.path).file_uris()) == 1
    assert sorted(rows_in(tables.state).rows()) == sorted(before.rows())
    assert [entry.proof.batch for entry in tables.history.newest_first()] == [3, 2, 1]


def test_a_table_that_is_not_there_has_no_history(tmp_path: Path) -> None:
    tables = tables_of(TopologyEngine(REVENUE, {"sales": 1}), tmp_path)
    assert tables.history.newest() is None


def test_how_long_earlier_versions_are_kept_is_told_to_every_table(tmp_path: Path) -> None:
    no_spark: Any = None
    work_of(no_spark, REVENUE, str(tmp_path), delta_log_kept_ms=120_000).create()
    tables = [log.parent for log in tmp_path.rglob("_delta_log")]
    assert len(tables) == 5
    for table in tables:
        properties = DeltaTable(table).metadata().configuration
        assert properties["delta.logRetentionDuration"] == "interval 120000 milliseconds", table
        assert properties["delta.deletedFileRetentionDuration"] == "interval 120000 milliseconds", table
