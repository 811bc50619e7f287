from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.auditing import AGGREGATION, AUDIT
from bench.contenders import PEER, RECOUNT
from bench.page import write_page
from bench.results import AuditCost, Latency, Recovery, Results, Throughput, summaries
from bench.table import tables

_RUN = Throughput(
    job="revenue-by-region",
    flow="orders",
    contender=RECOUNT.name,
    records=1_000,
    seconds=2.0,
    counted=990,
    on_time=990,
    cpu_s=3.0,
    broker_cpu_s=1.0,
    peak_memory_bytes=1 << 30,
    state_bytes=1 << 20,
    kafka_bytes=1 << 20,
    others_cores=0.1,
)
_THEIRS = replace(_RUN, contender=PEER.name, seconds=4.0)
_LATENCY = Latency(
    job="revenue-by-region", contender=RECOUNT.name, per_second=20_000, records=10, p50_ms=500.0, p99_ms=900.0, lost=0
)
_RESULTS = Results(
    machine={"cores": 2, "memory_gib": 8, "system": "x", "python": "3.11", "java": "17", "load_at_start": 0.0},
    settings={"records": 1_000, "warm_up_records": 10, "max_offsets": 100},
    throughput=[_RUN, _THEIRS, replace(_RUN, seconds=1.0), replace(_RUN, seconds=5.0)],
    latency=[_LATENCY, replace(_LATENCY, contender=PEER.name, p50_ms=250.0, p99_ms=1_800.0)],
    recovery=[Recovery(contender=RECOUNT.name, keys=10, seconds=seconds) for seconds in (9.0, 12.0, 10.0)],
)


def test_a_contender_is_summed_up_by_the_median_of_its_repeats_and_their_span() -> None:
    [ours, theirs] = summaries(_RESULTS.throughput)["revenue-by-region", "orders"]

    assert (ours.contender, ours.records_per_s, ours.spread) == (RECOUNT.name, 500.0, (200.0, 1_000.0))
    assert (theirs.contender, theirs.records_per_s) == (PEER.name, 250.0)


def test_a_record_on_time_that_is_missing_is_wrongly_dropped() -> None:
    assert replace(_RUN, counted=985).wrongly_dropped == 5


def test_keeping_a_late_record_is_not_dropping_one() -> None:
    assert replace(_RUN, counted=995).wrongly_dropped == 0


def test_every_row_has_the_ratio_of_recount_to_it() -> None:
    throughput, latency, recovery = tables(_RESULTS)

    column = throughput.head.index("Recount is")
    assert [row[column] for row in throughput.body] == ["1.00 x", "2.00 x"]
    assert [row[3:5] for row in latency.body] == [["1.00 x", "1.00 x"], ["2.00 x", "0.50 x"]]
    assert recovery.body == [[RECOUNT.name, "10", "10.0", "9.0 to 12.0", "1.00 x"]]


def test_an_audit_is_compared_with_the_plain_query_of_its_own_job() -> None:
    revenue, totals = "revenue-by-region", "totals-per-user"
    costs = [(revenue, AGGREGATION, 2.0), (revenue, AUDIT, 3.0), (totals, AUDIT, 4.0)]
    audit = [
        AuditCost(job=job, what=what, records=10, seconds=seconds, cpu_s=1.0, peak_memory_bytes=1)
        for job, what, seconds in costs
    ]
    *_, table = tables(replace(_RESULTS, audit=audit))
    ratio = table.head.index("of the plain query")
    assert [(row[0], row[ratio]) for row in table.body] == [
        (revenue, "1.00 x"),
        (revenue, "1.50 x"),
        (totals, ""),
    ]


def test_a_part_that_is_measured_anew_replaces_the_earlier_one_and_leaves_the_others() -> None:
    measured = replace(_RESULTS, throughput=[], latency=[], recovery=_RESULTS.recovery[:1], failures=["second"])
    together = replace(_RESULTS, failures=["first"]).with_anew(measured, ["recovery"])
    assert together == replace(_RESULTS, recovery=_RESULTS.recovery[:1], failures=["first", "second"])


def test_without_recount_there_is_no_ratio() -> None:
    [throughput] = tables(replace(_RESULTS, throughput=[_THEIRS], latency=[], recovery=[]))

    assert throughput.body[0][throughput.head.index("Recount is")] == ""


def test_only_a_job_that_sends_each_result_once_is_asked_how_many_came_again() -> None:
    sessions = replace(_RUN, job="sessions-per-user", repeated=2)
    windows, once = tables(replace(_RESULTS, throughput=[_RUN, sessions], latency=[], recovery=[]))

    assert "repeated" not in windows.head
    assert once.body[0][once.head.index("repeated")] == "2"


def test_the_page_says_of_a_job_what_is_special_about_it(tmp_path: Path) -> None:
    places = {
        "sessions-per-user": "orders-ending",
        "orders-with-payments": "orders-paid",
        "routing-by-region": "orders-ending",
        "counts-per-user": "orders-short",
    }
    runs = [replace(_RUN, job=job, flow=flow) for job, flow in places.items()]
    page = write_page(replace(_RESULTS, throughput=runs), tmp_path).read_text()

    assert "when it has ended" in page
    assert "counts pairs" in page
    assert "counts as dropped" in page
    assert "100,000 records after a warm-up" in page


def test_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    _RESULTS.write(tmp_path / "results.json")

    assert Results.read(tmp_path / "results.json") == _RESULTS


@pytest.mark.parametrize(("others_cores", "warned"), [(0.3, False), (0.31, True)])
def test_the_page_warns_of_a_machine_that_was_not_quiet(tmp_path: Path, others_cores: float, warned: bool) -> None:
    page = write_page(replace(_RESULTS, throughput=[replace(_RUN, others_cores=others_cores)]), tmp_path)

    assert ("Not a quiet machine" in page.read_text()) == warned


def test_the_page_says_what_was_not_measured(tmp_path: Path) -> None:
    assert (
        "- latency: Recount: lost"
        in write_page(replace(_RESULTS, failures=["latency: Recount: lost"]), tmp_path).read_text()
    )


def test_the_page_shows_every_chart_that_was_drawn_and_is_the_same_for_the_same_results(tmp_path: Path) -> None:
    first, second = write_page(_RESULTS, tmp_path / "first"), write_page(_RESULTS, tmp_path / "second")

    charts = sorted(path.name for path in (tmp_path / "first" / "performance").glob("*.svg"))
    assert charts == ["latency.svg", "revenue-by-region-orders.svg"]
    assert all(f"(performance/{chart})" in first.read_text() for chart in charts)
    for path in (first, *(tmp_path / "first" / "performance").iterdir()):
        assert path.read_bytes() == (tmp_path / "second" / path.relative_to(tmp_path / "first")).read_bytes()
    assert second.exists()
