"""What is recommended and what it costs: batches, exactly once, restarts, the window of a join."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.unit.advise.estimates.paid_orders import NEVER_PAID, PAID, PAID_LATE, STATUS, UNPAID, write_paid_orders

from recount.advise.estimates.estimate_command import document, page
from recount.advise.estimates.measured import Measured, Partners, measured
from recount.advise.estimates.report import BatchTime, Benchmark, Report
from recount.advise.estimates.workload import workload
from recount.declare.operators.joins import StreamStreamJoin
from recount.declare.registry import declared
from recount.engine.stage.polars_expressions import field_column
from recount.profile.project import Project
from recount.runtime.console import print_whole

LAST = BatchTime(records=40_000, batch_ms=630, commit_ms=210)
[JOIN] = [node for node in UNPAID.nodes() if isinstance(node, StreamStreamJoin)]
KEY = field_column(JOIN.key)


@pytest.fixture
def found(tmp_path: Path) -> Measured:
    write_paid_orders(tmp_path)
    figures = measured(UNPAID, str(tmp_path))
    assert figures is not None
    return figures


def test_a_batch_is_its_commit_and_its_records() -> None:
    assert LAST.ms_per_record == 0.0105
    assert LAST.records_within(630) == 40_000
    assert LAST.records_within(200) == 0
    assert LAST.most_per_s == pytest.approx(95_238, rel=1e-4)


@pytest.mark.parametrize("per_s", [1, 10_000, 47_619, 90_000])
def test_the_shortest_batch_that_keeps_up_takes_as_long_as_it_spans(per_s: float) -> None:
    shortest_ms = LAST.shortest_ms(per_s)
    assert shortest_ms is not None

    def takes_ms(spans_ms: float) -> float:
        return LAST.commit_ms + LAST.ms_per_record * per_s * spans_ms / 1_000

    assert takes_ms(shortest_ms) <= shortest_ms
    assert takes_ms(shortest_ms - 1) > shortest_ms - 1


def test_beyond_the_most_no_batch_keeps_up_and_nothing_is_caught_up() -> None:
    assert LAST.shortest_ms(96_000) is None
    assert LAST.caught_up_s(96_000, 60) is None
    assert LAST.caught_up_s(LAST.most_per_s / 2, 60) == pytest.approx(60)


@pytest.mark.parametrize(
    "said",
    [
        {"batch_duration_ms": None},
        {"commit_duration_ms": None},
        {"batch_records": 999},
        {"commit_duration_ms": 630},
    ],
)
def test_a_batch_that_does_not_tell_is_not_measured(said: dict[str, int | None]) -> None:
    assert BatchTime.of(STATUS) == LAST
    assert BatchTime.of(replace(STATUS, **said)) is None  # type: ignore[arg-type]
    assert BatchTime.of(None) is None


def test_a_longer_batch_is_recommended_only_where_the_assumed_one_does_not_keep_up() -> None:
    rates = {rate: workload(UNPAID, rate=[rate]) for rate in ("1000", "40000", "60000")}
    targets = {rate: Report.of(UNPAID, given, status=STATUS).target_ms for rate, given in rates.items()}
    # both topics together 80,000/s of at most 95,238/s: 210 ms / (1 - 0.84)
    assert targets == {"1000": 1_000, "40000": 1_313, "60000": None}
    assert Report.of(UNPAID, rates["1000"]).target_ms is None


def test_a_transaction_marks_each_partition_that_it_writes_to_its_offsets_and_its_position() -> None:
    topology = declared().topology("revenue-by-region")
    one_batch = {
        trigger: Report.of(topology, workload(topology, trigger=trigger, keys=["region=7"])).exactly_once
        for trigger in ("1 s", "1 h")
    }
    assert (one_batch["1 s"].per_s, one_batch["1 h"].per_s) == (1, pytest.approx(1 / 3_600))
    [written] = topology.written
    assert one_batch["1 h"].markers == written.topic.partitions + 2, "84 rows"
    assert one_batch["1 s"].markers == pytest.approx(2 + 7 / 300)


def test_the_published_run_is_told_by_its_medians_and_its_spread() -> None:
    def row(contender: str, seconds: float) -> dict[str, object]:
        return {"contender": contender, "job": "revenue", "flow": "orders", "records": 1_000, "seconds": seconds}

    rows = [row("Recount", 4.0), row("Recount", 5.0), row("Recount", 2.0), row("Recount with a plain producer", 2.5)]
    rows.append({"contender": "Kafka Streams", "job": "revenue", "records": 5, "seconds": 1.0})
    recovery = [{"contender": "Recount", "keys": 10_000, "seconds": 12.34}]
    published = Benchmark._of({"throughput": rows, "latency": [], "recovery": recovery})
    assert published.latency is None
    assert [(one.said, one.of) for one in published.recovery] == [("12.3 s", "restart with 10,000 keys")]
    assert published.throughput is not None and published.throughput.said == "250 records/s"
    assert published.exactly_once is not None
    assert published.exactly_once.said == "250 records/s, with a plain producer 400"
    assert published.exactly_once.of == "revenue, 1,000 records, single runs 200 to 500"
    assert Benchmark._of({"throughput": rows[:3], "latency": [], "recovery": []}).exactly_once is None


def test_partners_are_counted_by_the_declared_window(found: Measured) -> None:
    [partners] = found.partners.values()
    # each order and each payment; the orders that are never paid have no partner
    assert (partners.near, partners.far, partners.alone) == (2 * PAID, 2 * PAID_LATE, NEVER_PAID)
    assert (partners.least_ms, partners.most_ms) == (0, 480_000)


def test_the_recommended_window_holds_99_percent() -> None:
    left = pl.DataFrame({KEY: [f"o{n}" for n in range(1, 1_001)], "timestamp_ms": [0] * 1_000})
    right = left.with_columns(timestamp_ms=pl.int_range(1, 1_001, dtype=pl.Int64) * 1_000)
    partners = Partners.of(JOIN, left, right)
    assert (partners.before_ms, partners.after_ms) == (0, 995_000)
    assert (partners.near, partners.far) == (600, 1_400), "5 min"
    few = Partners.of(JOIN, left.head(40), right.head(40))
    assert (few.near, few.before_ms, few.after_ms) == (80, None, None)


def test_partners_that_come_before_count_as_such() -> None:
    left = pl.DataFrame({KEY: [f"o{n}" for n in range(100)], "timestamp_ms": [60_000] * 100})
    right = left.with_columns(timestamp_ms=pl.lit(50_000, pl.Int64))
    partners = Partners.of(JOIN, left, right)
    assert (partners.before_ms, partners.after_ms) == (10_000, 0)


def test_the_newest_restart_is_the_time_between_batches_of_two_drivers(found: Measured) -> None:
    assert found.restart_ms == 2_000


def test_figures_for_machines_have_what_is_recommended(found: Measured) -> None:
    given = workload(UNPAID, rate=["1000"])
    said = document(Report.of(UNPAID, given, measured=found, status=STATUS))
    assert said["recommended"] == {"target_batch_ms": 1_000, "records": 75_238}
    assert said["exactly_once"]["transactions_per_s"] == 1
    assert said["restart"]["catching_up_s_a_minute"] == pytest.approx(2_000 * 60 / (LAST.most_per_s - 2_000))
    assert said["measured"]["partners"][5]["near"] == 2 * PAID
    nothing = document(Report.of(UNPAID, given))
    assert nothing["batch_time"] is None
    assert nothing["recommended"] == {"target_batch_ms": None, "records": None}


def test_the_example_in_the_documentation_is_what_is_printed(
    found: Measured, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (project.root / "docs" / "estimates.md").read_text()
    [example] = re.findall(r"```\n(   window .*?)```", text, re.DOTALL)
    report = Report.of(UNPAID, workload(UNPAID, rate=["1000"]), measured=found, status=STATUS)
    print_whole(*page(report))
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    places = [shown.index(line) for line in example.splitlines()]
    assert places == sorted(places)
