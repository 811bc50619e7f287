from __future__ import annotations

from bench.soak_report import reported, series

SETTINGS = {"job": "a job", "minutes": 2.0, "per_second": 100, "every_s": 10.0, "heap": "1g", "log_kept": "1 h"}
STEADY = [{"seconds": 10.0 * number, "memory MiB: JVM": 500.0, "files: late": 2.0 * number} for number in range(12)]


def test_a_figure_has_the_samples_that_have_it() -> None:
    found = series([{"seconds": 1.0, "batch ms: median": 9.0}, {"seconds": 2.0}, {"seconds": 3.0, "rows: held": 7.0}])
    assert found == {"batch ms: median": ([1.0], [9.0]), "rows: held": ([3.0], [7.0])}


def test_every_figure_is_judged_in_the_table_of_its_group() -> None:
    report = reported(SETTINGS, STEADY, "")
    assert [(table.title, table.body[0][0], table.body[0][-1]) for table in report.tables] == [
        ("Memory MiB", "JVM", "flat"),
        ("Files", "late", "grows"),
    ]


def test_a_stream_that_ended_before_its_time_is_told_of() -> None:
    assert "ended before its time**: no broker" in reported(SETTINGS, STEADY[:1], "no broker").text
