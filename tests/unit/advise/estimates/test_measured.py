"""What is measured of a stream is what lies in its tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.advise.estimates.steady_flow import Flow, clicks, held_by, processed, topology_of, views
from tests.unit.engine.engine import NOW_MS, Engine, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.advise.estimate_report import Report
from recount.advise.measured import Measured, measured
from recount.advise.state_estimate import OPEN_WINDOWS
from recount.advise.workload import workload
from recount.declare.aggregates import count
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.stream_tables import BatchRows
from recount.tables.ledger import BatchProof

JOINED = topology_of(stream(clicks).join(stream(views), before="2 s", after="2 s", grace="0 s"))
COUNTED = topology_of(stream(clicks).windowed_by(tumbling("10 s", grace="5 s")).aggregate(n=count()).emit_final())
FLOW = Flow(per_s=20, keys=10, seconds=20)
BATCH_S = 2


def proof_of(topology: Topology, batch: int, engine: Engine | TopologyEngine, emitted: int) -> BatchProof:
    """A batch every 2 s."""
    return BatchProof(
        stream=topology.name,
        generation=0,
        batch=batch,
        checkpoint_id="checkpoint",
        lease_epoch=1,
        batch_timestamp_ms=NOW_MS + batch * BATCH_S * 1_000,
        partitions=tuple(engine.clock.partitions.values()),
        frontier_ms=engine.clock.frontier_ms,
        emitted={"out": emitted},
    )


def found(topology: Topology, root: Path) -> Measured:
    """What is measured, which is something."""
    figures = measured(topology, str(root))
    assert figures is not None
    return figures


@pytest.fixture
def joined(tmp_path: Path) -> TopologyEngine:
    """A join that has run, its tables below ``tmp_path``."""
    tables = TopologyWork(JOINED, str(tmp_path)).tables
    tables.create()
    engine = processed(JOINED, FLOW, BATCH_S)
    clocked = TopologyEngine(JOINED, engine.partitions)
    for batch, computed in enumerate(engine.computed):
        clocked.clock = computed.after
        rows = BatchRows(state=computed.state, late=computed.late, rejected=computed.rejected, emitted=computed.emitted)
        tables.append(rows, proof_of(JOINED, batch, clocked, computed.emitted["out"].height))
    return engine


@pytest.fixture
def counted(tmp_path: Path) -> Engine:
    """A short-way stream of two batches: five windows of which one closes, its tables below ``tmp_path``."""
    tables = TopologyWork(COUNTED, str(tmp_path)).tables
    tables.create()
    engine = Engine(COUNTED)
    for batch, seconds in enumerate([(1, 2, 11), (16, 31)]):
        log = [LogRecord(timestamp_ms=second * 1_000, key=b"ann", value=b"{}") for second in seconds]
        emitted = engine.batch(*log)
        rows = BatchRows(
            state=engine.last["partials"],
            late=engine.last["late"],
            rejected=engine.last["rejected"],
            emitted={"out": emitted},
        )
        tables.append(rows, proof_of(COUNTED, batch, engine, emitted.height))
    return engine


def test_the_state_of_every_operator_is_read_back(joined: TopologyEngine, tmp_path: Path) -> None:
    assert found(JOINED, tmp_path).held == held_by(joined)


def test_the_table_and_the_batches_are_as_they_were_written(joined: TopologyEngine, tmp_path: Path) -> None:
    figures = found(JOINED, tmp_path)
    emitted = [computed.emitted["out"].height for computed in joined.computed]
    assert figures.table.rows == figures.rows_read == joined.state.height
    assert figures.table.files == figures.batches == len(joined.computed) == 10
    assert figures.table.bytes == sum(file.stat().st_size for file in tmp_path.glob("streams/*/state/*.parquet"))
    assert figures.outputs.rows == sum(emitted)
    assert figures.interval_ms == BATCH_S * 1_000
    assert figures.append_ms is not None and figures.append_ms >= 0
    assert min(emitted) <= figures.emitted <= max(emitted)
    assert figures.rates == {name: pytest.approx(FLOW.per_s, rel=0.2) for name in ("clicks", "views")}, "of event time"


def test_of_the_short_way_the_open_windows_are_read(counted: Engine, tmp_path: Path) -> None:
    figures = found(COUNTED, tmp_path)
    assert counted.windows.rows["window_start"].to_list() == [30_000]
    assert figures.held[OPEN_WINDOWS].rows == 1
    assert (figures.rows_read, figures.table.rows) == (1, 4), "a restart leaves the partials of closed windows out"


def test_a_restart_takes_its_rows_at_the_measured_rate(joined: TopologyEngine, tmp_path: Path) -> None:
    few = found(JOINED, tmp_path)
    many = replace(few, rows_read=50_000, read_back_s=0.5, table=replace(few.table, rows=20_000))
    report = Report.of(JOINED, workload(JOINED), measured=many)
    assert report.restart_s == 0.2, "20,000 rows at 100,000/s"
    assert replace(report, measured=few).restart_s is None, "too few rows say nothing of a rate"
    assert replace(report, measured=None).restart_s is None
