"""A state table of the release before, with a row as JSON for each row of a state, is read on from."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.batch_proofs import a_proof
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count, total
from recount.declare.columns import BATCH, GENERATION, IS_NULL, ORIGIN, RESULT_TIME
from recount.declare.flow import RecordStream
from recount.declare.schema import RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session, tumbling
from recount.engine.commit.former_windows import bring_up_windows
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.stage.intake import from_ipc
from recount.engine.state.graph_state import HEAD, MANY, PART, SNAPSHOT, STATE_SCHEMA, bring_up
from recount.engine.state.keyed_rows import DELETED

PAID = Topic(name="paid", key="user", value=RecordSchema.of(amount=decimal(10, 2)))
SUMS = Topology(
    name="sums",
    sinks=[
        stream(PAID)
        .windowed_by(session("1 s", grace="1 s"))
        .aggregate(n=count(), amount=total("amount"))
        .emit_final()
        .to(Topic(name="sums", key="user"))
    ],
)


def paid(at_ms: int, amount: str, partition: int = 0) -> LogRecord:
    return LogRecord(partition=partition, key=b"ada", value=f'{{"amount": "{amount}"}}'.encode(), timestamp_ms=at_ms)


def in_the_former_way(state: pl.DataFrame, *, with_parts: bool) -> pl.DataFrame:
    """The rows of ``state`` as the releases before wrote them; the first of these knew no parts."""
    rows = []
    for name, blob, many, snapshot, part, *order in state.select(*STATE_SCHEMA, GENERATION, BATCH).iter_rows():
        if name == HEAD:
            rows.append(("" if many == 1 else "parts", "", str(many), True, snapshot, part, *order))
            continue
        found = from_ipc(blob)
        texts = found.select(pl.struct(pl.exclude(DELETED)).struct.json_encode().alias("row"), DELETED)
        rows += [(name, "{}", text, deleted, snapshot, part, *order) for text, deleted in texts.iter_rows()]
    columns = ["state", "identity", "row", DELETED, SNAPSHOT, PART, GENERATION, BATCH]
    made = pl.DataFrame(rows, columns, orient="row").cast({PART: pl.Int32, GENERATION: pl.Int32})
    return made if with_parts else made.drop(PART)


@pytest.mark.parametrize("with_parts", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_the_state_of_the_release_before_is_read_on_from(tmp_path: Path, *, with_parts: bool, whole: bool) -> None:
    path = str(tmp_path / "state")
    former, straight = (TopologyEngine(SUMS, {"paid": 1}) for _ in range(2))
    for engine in (former, straight):
        engine.batch({"paid": [paid(1, "1.10"), paid(5_000, "2.20")]})
        engine.batch({"paid": [paid(5_100, "3.30")]})
    if whole:
        snapshot = former.computation._part._state.changes(whole=True)  # type: ignore[union-attr]
        order = [pl.lit(0, pl.Int32).alias(GENERATION), pl.lit(1, pl.Int64).alias(BATCH)]
        former.state = pl.concat([former.state.filter(pl.col(BATCH) == 0), snapshot.with_columns(order)])
    write_deltalake(path, in_the_former_way(former.state, with_parts=with_parts))
    bring_up(path)
    bring_up(path)
    assert DeltaTable(path).version() == 1, "once"
    brought = pl.read_delta(path)
    assert (brought[MANY].sum(), brought.schema) == (former.state[MANY].sum(), former.state.schema)
    former.state = brought.sort(GENERATION, BATCH)
    former.restart()
    for engine in (former, straight):
        engine.batch({"paid": [paid(5_200, "0.01"), paid(60_000, "1")]})
    assert former.emitted("sums").equals(straight.emitted("sums"))
    assert former.emitted("sums")["n"].to_list() == [1, 3]


def test_a_table_of_today_and_none_at_all_stay_as_they_are(tmp_path: Path) -> None:
    bring_up(str(tmp_path / "none"))
    engine = TopologyEngine(SUMS, {"paid": 1})
    engine.batch({"paid": [paid(1, "1.10")]})
    write_deltalake(str(tmp_path / "state"), engine.state)
    bring_up(str(tmp_path / "state"))
    assert DeltaTable(str(tmp_path / "state")).version() == 0


WINDOWS = stream(PAID).windowed_by(tumbling("10 s", grace="1 s")).aggregate(n=count(), amount=total("amount"))
PARTIALS = {
    **{name: pl.String() if name == "__key" else pl.Int64() for name in ("__key", "window_start", "window_end", "n")},
    "amount": pl.Decimal(38, 2),
    RESULT_TIME: pl.Int64(),
}
BATCHES = [
    ([paid(1, "1.10"), paid(5_000, "2.20")], [("ada", 0, 10_000, 2, Decimal("3.30"), 5_000)]),
    (
        [paid(5_100, "3.30"), paid(20_000, "1")],
        [("ada", 0, 10_000, 1, Decimal("3.30"), 5_100), ("ada", 20_000, 30_000, 1, Decimal(1), 20_000)],
    ),
]
"""Records, and what they add to each window: the rows of the state table in earlier releases."""


@pytest.mark.parametrize("flow", [WINDOWS.emit_final(), WINDOWS.emit_each_batch()], ids=["final", "each batch"])
def test_the_windows_of_a_single_aggregation_go_on(tmp_path: Path, flow: RecordStream) -> None:
    topology = Topology(name="sums", sinks=[flow.to(Topic(name="sums", key="user"))])
    engine, straight = (TopologyEngine(topology, {"paid": 2}) for _ in range(2))
    today = {"sums": engine.computation.output_schema(topology.sinks[0])}
    narrow = {name: kind for name, kind in today["sums"].items() if name not in (IS_NULL, ORIGIN)}
    before = StreamTables("sums", str(tmp_path), state=PARTIALS, outputs={"sums": narrow})
    before.create()
    for number, (records, partials) in enumerate(BATCHES):
        made, _ = (one.batch({"paid": records}) for one in (engine, straight))
        rows = BatchRows(
            state=pl.DataFrame(partials, PARTIALS, orient="row"),
            late=made.late,
            rejected=made.rejected,
            emitted={"sums": made.emitted["sums"].select(list(narrow))},
        )
        said = {"partitions": tuple(made.after.partitions.values()), "frontier_ms": made.after.frontier_ms}
        before.append(rows, replace(a_proof(number, generation=0), stream="sums", **said))
    tables = StreamTables("sums", str(tmp_path), state=STATE_SCHEMA, outputs=today)
    for _ in range(2):
        bring_up_windows(topology, tables)
        tables.create()
    engine.state = tables.state.read().collect().select(engine.state.columns)
    engine.restart()
    for one in (engine, straight):
        for more in ([paid(9_000, "7"), paid(21_000, "0.01")], [paid(60_000, "1"), paid(5, "1", 1)]):
            one.batch({"paid": more})
    assert engine.emitted("sums").equals(straight.emitted("sums"))
    assert engine.late.equals(straight.late)
