from __future__ import annotations

from dataclasses import replace

from bench.jobs import REVENUE_BY_REGION
from bench.long_flow import LongFlow
from bench.long_run import Step, reported

FLOW = LongFlow(topic="orders", records=30_000_000)
STEP = Step(
    records=1_000_000,
    elapsed_ms=3_000,
    duration_ms=2_900,
    delta_ms=40,
    cpu_s=5.0,
    broker_cpu_s=0.5,
    memory_bytes=1 << 30,
)


def test_the_costs_are_told_in_ten_rows_at_most_and_judged_by_halves() -> None:
    dearer = [replace(STEP, delta_ms=40 + batch) for batch in range(29)]
    costs, trends = reported(REVENUE_BY_REGION, FLOW, dearer, counted=FLOW.on_time).tables
    assert len(costs.body) == 10
    assert costs.body[0] == ["3,000,000", "3.00", "5.00", "0.50", "41.00", "1,024.00"]
    assert costs.body[-1][0] == "29,000,000"
    assert {row[0]: row[-1] for row in trends.body} == {
        "s per million": "flat",
        "CPU s per million": "flat",
        "broker's CPU s per million": "flat",
        "Delta commit ms": "grows",
        "memory MiB": "flat",
    }


def test_a_record_that_no_result_counts_is_wrongly_dropped() -> None:
    report = reported(REVENUE_BY_REGION, FLOW, [STEP] * 8, counted=FLOW.on_time - 7)
    assert "Wrongly dropped records: 7." in report.text
