"""Streams that have run, in real Delta tables: orders and payments that were planted, and a driver's word."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.batch_proofs import a_proof
from tests.unit.engine.engine import NOW_MS, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.registry import declared
from recount.declare.topology import Topology
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.stream_tables import BatchRows
from recount.engine.exchange.work import Computed
from recount.engine.operators.partition_clock import PartitionClock
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


def _proof(topology: Topology, batch: int, after: PartitionClock, emitted: int, lease_epoch: int = 1) -> BatchProof:
    """A batch every 2 s."""
    said = {"batch_timestamp_ms": NOW_MS + batch * 2_000, "frontier_ms": after.frontier_ms, "lease_epoch": lease_epoch}
    return a_proof(batch, *after.partitions.values(), stream=topology.name, emitted={"out": emitted}, **said)


def write(topology: Topology, root: Path, computed: Sequence[Computed], *, is_relaunched: bool = False) -> None:
    """The batches that were ``computed``; the second by another driver if it ``is_relaunched``."""
    tables = TopologyWork(topology, str(root)).tables
    tables.create()
    for batch, one in enumerate(computed):
        rows = BatchRows(state=one.state, late=one.late, rejected=one.rejected, emitted=one.emitted)
        [emitted] = one.emitted.values()
        tables.append(rows, _proof(topology, batch, one.after, emitted.height, 1 + batch * is_relaunched))


def write_paid_orders(root: Path) -> None:
    """Order n comes at second n and is paid n s later; the last of them 8 min later, or never.

    Of two batches the second is that of another driver; between them lie 2 s.
    """
    orders = [_record(n, {"order_id": f"o{n:03}", "amount": 1}, n) for n in range(PAID + PAID_LATE + NEVER_PAID)]
    payments = [
        _record(n, {"payment_id": f"p{n}", "order_id": f"o{n:03}", "amount": 1, "method": "card"}, at)
        for n, at in enumerate([*(2 * n for n in range(PAID)), *(n + 480 for n in range(PAID, PAID + PAID_LATE))])
    ]
    engine = TopologyEngine(UNPAID, {"orders": 1, "payments": 1})
    logs = ({"orders": orders}, {"payments": payments})
    write(UNPAID, root, [engine.batch(log, now_ms=1_000_000_000) for log in logs], is_relaunched=True)


def _record(number: int, value: dict[str, object], second: int) -> LogRecord:
    return LogRecord(timestamp_ms=second * 1_000, key=f"o{number:03}".encode(), value=json.dumps(value).encode())
