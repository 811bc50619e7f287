"""The stream's Delta tables: each batch once, with its proof, and enough to go on from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.unit.engine.engine import NOW_MS, Engine, LogRecord

from recount.declare.aggregates import count, total
from recount.declare.columns import BATCH, REVISION
from recount.declare.schema import STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.commit.delta_table import AppendOnlyTable
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.driver.stream_command import work_of
from recount.engine.exchange.aggregation import AggregationComputation
from recount.runtime.errors import Terminal
from recount.tables.ledger import BatchProof

SALES = Topic(name="sales", key="shop", value=RecordSchema.of(item=STRING, price=decimal(9, 2)))
_WINDOWED = stream(SALES).windowed_by(tumbling("10 s", grace="2 s")).aggregate(sales=count(), revenue=total("price"))
_OUT = Topic(name="shop-revenue", key="shop")
REVENUE = Topology(name="shop-revenue", sinks=[_WINDOWED.emit_final().to(_OUT)], idle_after="60 s")
UPDATED_REVENUE = Topology(name="shop-revenue", sinks=[_WINDOWED.emit_each_batch().to(_OUT)], idle_after="60 s")
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
"""Finals, late and bad records, a partition that falls idle and speaks again, and a batch that adds no state."""

REPLAYED = {1, 3}


def proof_of(engine: Engine, batch: int) -> BatchProof:
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


def in_order(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return sorted(frame.select(sorted(frame.columns)).rows(), key=str)


def tables_of(engine: Engine, root: Path) -> tuple[StreamTables, AggregationComputation]:
    computation = AggregationComputation(engine.plan)
    outputs = {sink.table: computation.output_schema(sink) for sink in computation.sinks}
    return StreamTables(REVENUE.name, str(root), state=computation.state_schema, outputs=outputs), computation


def output_of(tables: StreamTables) -> AppendOnlyTable:
    [output] = tables.outputs.values()
    return output


def rows_of(engine: Engine) -> BatchRows:
    last = engine.last
    emitted = {engine.plan.sink.table: last["emitted"]}
    return BatchRows(state=last["partials"], late=last["late"], rejected=last["rejected"], emitted=emitted)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[StreamTables, Engine]:
    """All batches in the tables, some of them twice; before each, what would be recovered is what is in memory."""
    engine = Engine(REVENUE, partitions=2)
    tables, computation = tables_of(engine, tmp_path_factory.mktemp("tables"))
    tables.create()
    tables.create()
    now_ms = NOW_MS
    for batch, (records, later_ms) in enumerate(BATCHES):
        now_ms += later_ms
        before = (0, batch)
        recovered = computation.open_windows(tables, before, engine.clock.frontier_ms)
        assert in_order(recovered.rows) == in_order(engine.windows.rows), f"open windows before batch {batch}"
        engine.batch(*records, now_ms=now_ms)
        rows = rows_of(engine)
        for _ in range(2 if batch in REPLAYED else 1):
            tables.append(rows, proof_of(engine, batch))
    return tables, engine


def rows_in(table: AppendOnlyTable) -> pl.DataFrame:
    return table.read().collect()


def test_a_batch_that_is_written_twice_is_there_once(written: tuple[StreamTables, Engine]) -> None:
    tables, engine = written
    assert rows_in(tables.state).height == engine.made["partials"].height
    assert rows_in(tables.late).height == engine.made["late"].height > 0
    assert rows_in(tables.rejected).height == engine.made["rejected"].height > 0
    assert rows_in(output_of(tables)).height == engine.emitted.height > 0


def test_results_of_another_stream_are_seen_before_a_first_start(
    written: tuple[StreamTables, Engine], tmp_path: Path
) -> None:
    tables, engine = written
    with pytest.raises(Terminal, match=f"outputs/{engine.plan.sink.table}"):
        tables.require_new()
    empty, _ = tables_of(engine, tmp_path)
    empty.require_new()
    empty.create()
    empty.require_new()


def test_every_batch_has_one_proof_even_one_that_adds_no_state(written: tuple[StreamTables, Engine]) -> None:
    tables, _ = written
    assert [proof.batch for proof in tables.history.newest_first()] == [5, 4, 3, 2, 1, 0]
    assert rows_in(tables.state).filter(pl.col(BATCH) == 5).is_empty()


def test_the_proof_before_a_batch_is_found(written: tuple[StreamTables, Engine]) -> None:
    tables, _ = written
    found = {order: tables.history.last_before(order) for order in [(0, 0), (0, 3), (1, 0)]}
    assert {order: proof and proof.batch for order, proof in found.items()} == {(0, 0): None, (0, 3): 2, (1, 0): 5}


def test_a_replay_sees_what_was_emitted_before_its_batch_and_nothing_later(
    written: tuple[StreamTables, Engine],
) -> None:
    tables, engine = written
    wanted = engine.emitted.filter((pl.col("window_start") == 10_000) & (pl.col(REVISION) == 0))
    computation = AggregationComputation(engine.plan)
    prices = {
        batch: computation.emitted_before(tables, (0, batch), wanted).select("sales", REVISION).rows()
        for batch in (3, 4, 5)
    }
    assert prices == {3: [(2, 0)], 4: [(3, 1)], 5: [(4, 2)]}


def test_a_restart_knows_how_often_an_open_result_was_emitted(tmp_path: Path) -> None:
    engine = Engine(UPDATED_REVENUE)
    tables, computation = tables_of(engine, tmp_path)
    tables.create()
    for batch, sales in enumerate([[sale(1), sale(2, shop=b"south")], [sale(3), sale(3)], [sale(4)]]):
        engine.batch(*sales)
        tables.append(rows_of(engine), proof_of(engine, batch))
    recovered = computation.open_windows(tables, (0, 3), engine.clock.frontier_ms)
    assert sorted(recovered.rows[REVISION]) == [0, 2]
    assert in_order(recovered.rows) == in_order(engine.windows.rows)


def test_a_new_writer_name_starts_a_new_sequence_of_versions(tmp_path: Path) -> None:
    numbers = AppendOnlyTable(path=str(tmp_path), schema={"n": pl.Int64()})
    numbers.create()
    for writer, version in [("one", 0), ("one", 1), ("one", 1), ("one", 0), ("two", 0)]:
        numbers.append(pl.DataFrame({"n": [version]}), writer=writer, version=version)
    assert sorted(rows_in(numbers)["n"]) == [0, 0, 1]


def test_compaction_leaves_rows_ledger_and_writers_as_they_are(tmp_path: Path) -> None:
    engine = Engine(REVENUE)
    tables, _ = tables_of(engine, tmp_path)
    tables.create()
    for _ in range(3):
        engine.batch(sale(1))
        rows = rows_of(engine)
        tables.append(rows, replace(proof_of(engine, engine.batches), batch=engine.batches))
    before = rows_in(tables.state)
    tables.state.compact()
    tables.append(rows, replace(proof_of(engine, engine.batches), batch=engine.batches))
    assert len(DeltaTable(tables.state.path).file_uris()) == 1
    assert in_order(rows_in(tables.state)) == in_order(before)
    assert [proof.batch for proof in tables.history.newest_first()] == [3, 2, 1]


def test_a_table_that_is_not_there_has_no_history(tmp_path: Path) -> None:
    tables, _ = tables_of(Engine(REVENUE), tmp_path)
    assert tables.history.last_before() is None


def test_how_long_earlier_versions_are_kept_is_told_to_every_table(tmp_path: Path) -> None:
    no_spark: Any = None
    work_of(no_spark, REVENUE, str(tmp_path), delta_log_kept_ms=120_000).create()
    tables = [log.parent for log in tmp_path.rglob("_delta_log")]
    assert len(tables) == 5
    for table in tables:
        properties = DeltaTable(table).metadata().configuration
        assert properties["delta.logRetentionDuration"] == "interval 120000 milliseconds", table
        assert properties["delta.deletedFileRetentionDuration"] == "interval 120000 milliseconds", table
