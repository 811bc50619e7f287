"""The stream unpaid-orders with orders and payments that were planted, in real Delta tables, and a driver's word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.unit.engine.engine import NOW_MS, Engine, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.stream_tables import BatchRows
from recount.kafka.status import StreamStatus
from recount.tables.ledger import BatchProof

UNPAID = declared().topology("unpaid-orders")
PAID, PAID_LATE, NEVER_PAID = 200, 5, 10
STATUS = StreamStatus(
    stream="unpaid-orders",
    driver_id="driver",
    lease_epoch=2,
    host="host",
    pid=1,
    state="running",
    started_at_ms=0,
    heartbeat_ms=0,
    batch_records=40_000,
    batch_duration_ms=630,
    commit_duration_ms=210,
)
"""The last batch took 0.0105 ms a record and 210 ms for its commit."""


def proof_of(topology: Topology, batch: int, engine: Engine | TopologyEngine, emitted: int) -> BatchProof:
    """A batch every 2 s."""
    return BatchProof(
        stream=topology.name,
        generation=0,
        batch=batch,
        checkpoint_id="checkpoint",
        lease_epoch=1,
        batch_timestamp_ms=NOW_MS + batch * 2_000,
        partitions=tuple(engine.clock.partitions.values()),
        frontier_ms=engine.clock.frontier_ms,
        emitted={"out": emitted},
    )


def write_paid_orders(root: Path) -> None:
    """Order n comes at second n and is paid n s later; the last of them 8 min later, or never.

    Of two batches the second is that of another driver; between them lie 2 s.
    """
    count = PAID + PAID_LATE + NEVER_PAID
    orders = [_record(n, {"order_id": f"o{n:03}", "amount": 1}, n) for n in range(count)]
    payments = [
        _record(n, {"payment_id": f"p{n}", "order_id": f"o{n:03}", "amount": 1, "method": "card"}, at)
        for n, at in enumerate([*(2 * n for n in range(PAID)), *(n + 480 for n in range(PAID, PAID + PAID_LATE))])
    ]
    tables = TopologyWork(UNPAID, str(root)).tables
    tables.create()
    engine = TopologyEngine(UNPAID, {"orders": 1, "payments": 1})
    for number, log in enumerate(({"orders": orders}, {"payments": payments})):
        computed = engine.batch(log, now_ms=1_000_000_000)
        rows = BatchRows(state=computed.state, late=computed.late, rejected=computed.rejected, emitted=computed.emitted)
        proof = proof_of(UNPAID, number, engine, computed.emitted["unpaid_orders"].height)
        tables.append(rows, replace(proof, lease_epoch=1 + number))


def _record(number: int, value: dict[str, object], second: int) -> LogRecord:
    return LogRecord(timestamp_ms=second * 1_000, key=f"o{number:03}".encode(), value=json.dumps(value).encode())
