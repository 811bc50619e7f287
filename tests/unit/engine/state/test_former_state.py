"""A state table of the release before, with a row as JSON for each row of a state, is read on from."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count, total
from recount.declare.columns import BATCH, GENERATION
from recount.declare.schema import RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.engine.stage.map_stage import from_ipc
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


def paid(at_ms: int, amount: str) -> LogRecord:
    return LogRecord(key=b"ada", value=f'{{"amount": "{amount}"}}'.encode(), timestamp_ms=at_ms)


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
