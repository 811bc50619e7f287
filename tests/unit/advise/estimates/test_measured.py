"""Measurements of a stream are what lies in its tables, and what is recommended follows from them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from tests.unit.advise.estimates.measured_streams import STATUS, UNPAID, write, write_paid_orders
from tests.unit.advise.estimates.steady_flow import Flow, clicks, held_by, processed, topology_of, views
from tests.unit.engine.topology_engine import TopologyEngine

from recount.advise.estimate_command import page
from recount.advise.estimate_report import BatchTime, benchmark_figures, document
from recount.advise.measured import Measured, Partners, measured
from recount.advise.workload import workload
from recount.declare.operators.joins import StreamStreamJoin
from recount.declare.topology import Topology, stream
from recount.engine.stage.polars_expressions import field_column
from recount.engine.state.graph_state import MANY
from recount.profile.home import Project
from recount.runtime.console import print_whole
from recount.runtime.errors import RecountError

JOINED = topology_of(stream(clicks).join(stream(views), before="2 s", after="2 s", grace="0 s"))
FLOW = Flow(per_s=20, keys=10, seconds=20)
BATCH_S = 2


def found(topology: Topology, root: Path) -> Measured:
    """What is measured, which is something."""
    figures = measured(topology, str(root))
    assert figures is not None
    return figures


@pytest.fixture
def joined(tmp_path: Path) -> TopologyEngine:
    """A join that has run, its tables below ``tmp_path``."""
    engine = processed(JOINED, FLOW, BATCH_S)
    write(JOINED, tmp_path, engine.computed)
    return engine


@pytest.fixture
def paid(tmp_path: Path) -> Measured:
    write_paid_orders(tmp_path)
    return found(UNPAID, tmp_path)


def test_the_state_of_every_operator_is_read_back(joined: TopologyEngine, tmp_path: Path) -> None:
    assert found(JOINED, tmp_path).held == held_by(joined)


def test_the_table_and_the_batches_are_as_they_were_written(joined: TopologyEngine, tmp_path: Path) -> None:
    figures = found(JOINED, tmp_path)
    emitted = [computed.emitted["out"].height for computed in joined.computed]
    assert figures.table.rows == figures.rows_read == joined.state[MANY].sum()
    assert figures.table.files == figures.batches == len(joined.computed) == 10
    assert figures.table.bytes == sum(file.stat().st_size for file in tmp_path.glob("streams/*/state/*.parquet"))
    assert figures.outputs.rows == sum(emitted)
    assert figures.interval_ms == BATCH_S * 1_000
    assert figures.append_ms is not None and figures.append_ms >= 0
    assert min(emitted) <= figures.emitted <= max(emitted)
    assert figures.rates == {name: pytest.approx(FLOW.per_s, rel=0.2) for name in ("clicks", "views")}, "of event time"


LAST = BatchTime(records=40_000, batch_ms=630, commit_ms=210)
[JOIN] = [node for node in UNPAID.nodes() if isinstance(node, StreamStreamJoin)]
KEY = field_column(JOIN.key)


def test_a_longer_batch_is_recommended_only_where_the_assumed_one_does_not_keep_up() -> None:
    rates = {rate: workload(UNPAID, rate=[rate]) for rate in ("1000", "40000", "60000")}
    told = {rate: document(UNPAID, given, status=STATUS)["recommended"] for rate, given in rates.items()}
    # both topics together 80,000/s of at most 95,238/s: 210 ms / (1 - 0.84)
    assert {rate: one["target_batch_ms"] for rate, one in told.items()} == {
        "1000": 1_000,
        "40000": 1_313,
        "60000": None,
    }
    assert document(UNPAID, rates["1000"])["recommended"]["target_batch_ms"] is None


def test_the_published_run_is_told_by_its_medians_and_its_spread(tmp_path: Path) -> None:
    def row(contender: str, seconds: float) -> dict[str, object]:
        return {"contender": contender, "job": "revenue", "flow": "orders", "records": 1_000, "seconds": seconds}

    rows = [row("Recount", 4.0), row("Recount", 5.0), row("Recount", 2.0), row("Recount with a plain producer", 2.5)]
    rows.append({"contender": "Kafka Streams", "job": "revenue", "records": 5, "seconds": 1.0})
    recovery = [{"contender": "Recount", "keys": 10_000, "seconds": 12.34}]
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"throughput": rows, "latency": [], "recovery": recovery}))
    assert benchmark_figures(file) == {
        "throughput": ["250 records/s (revenue, 1,000 records)"],
        "exactly once": ["250 records/s, with a plain producer 400 (revenue, 1,000 records, single runs 200 to 500)"],
        "restart": ["12.3 s (restart with 10,000 keys)"],
    }
    file.write_text('{"throughput": 3}')
    with pytest.raises(RecountError) as refused:
        benchmark_figures(file)
    assert "make bench" in refused.value.expected


def test_the_recommended_window_holds_99_percent() -> None:
    left = pl.DataFrame({KEY: [f"o{n}" for n in range(1, 1_001)], "timestamp_ms": [0] * 1_000})
    right = left.with_columns(timestamp_ms=pl.int_range(1, 1_001, dtype=pl.Int64) * 1_000)
    partners = Partners.of(JOIN, left, right)
    assert (partners.first_ms, partners.last_ms) == (6_000, 995_000)
    assert (partners.near, partners.far) == (600, 1_400), "5 min"
    few = Partners.of(JOIN, left.head(40), right.head(40))
    assert (few.near, few.first_ms, few.last_ms) == (80, None, None)


def test_the_example_in_the_documentation_is_what_is_printed(
    paid: Measured, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (project.root / "docs" / "estimates.md").read_text()
    [example] = re.findall(r"```\n(   window .*?)```", text, re.DOTALL)
    given = workload(UNPAID, rate=["1000"])
    print_whole(*page(document(UNPAID, given, measured=paid, status=STATUS)))
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    places = [shown.index(line) for line in example.splitlines()]
    assert places == sorted(places)
