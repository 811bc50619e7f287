"""The pytest plugin, as a user's own test asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USERS_TEST = """
from recount.declare.expressions import col
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

orders = Topic(name="orders", key="order_id", value=RecordSchema.of(amount=LONG))
high = Topic(name="high", key="order_id")
routing = Topology(name="routing", sinks=[stream(orders).filter(col("amount") > 100).to(high)])

def test_only_orders_above_100_pass(topology_driver):
    driver = topology_driver(routing)
    for amount in (100, 101):
        driver.pipe("orders", key="o", value={"amount": amount}, timestamp_ms=0)
    assert [out.value["amount"] for out in driver.read("high")] == [101]
"""


def test_a_users_test_gets_a_driver_without_a_broker_or_a_jvm(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "recount.testing", "-p", "no:cacheprovider", "test_users.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout
