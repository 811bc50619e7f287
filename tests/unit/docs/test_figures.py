"""The figures of docs/production.md are those measured; docs/metrics.md has the metrics of drivers and of Airflow."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import pytest
import yaml
from airflow._shared.observability.metrics.statsd_logger import get_statsd_logger
from bench.results import Results
from bench.table import tables
from statsd import StatsClient
from tests.statuses import a_status
from tests.unit.docs.test_pages import ROOT, headings, page

from recount.declare.registry import declared
from recount.engine.driver.stream_reports import DriverMetrics
from recount.engine.state.keyed_rows import StateUse
from recount.runtime.settings import metric_ports

PAGE = page("production.md")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the page, and the cell of another page that it is from."""

    what: str
    figure: str
    page: str
    heading: str
    row: str
    column: str


def figures() -> Iterator[Figure]:
    pattern = r"^\| (.+?) \| ([\d,.]+) \| \[[^]]*\]\((.+?)#(.+?)\): (.+), (.+?) \|$"
    names = ("what", "figure", "page", "heading", "row", "column")
    for found in re.findall(pattern, PAGE, re.MULTILINE):
        yield Figure(**dict(zip(names, found, strict=True)))


FIGURES = list(figures())


def cell(of: Figure) -> str:
    """What stands in the row and column that ``of`` names: a row begins with these cells, read as one text."""
    sections = re.split(r"^(?=#+ )", page(of.page), flags=re.MULTILINE)
    [section] = [text for text in sections if of.heading in headings(text.partition("\n")[0])]
    head, _, *rows = [
        [one.strip() for one in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    column = head.index(of.column)
    row_of = [row for row in rows if of.row in (row[0], " ".join(row[:2]), ", ".join(row[:2]))]
    assert len(row_of) == 1, f"{len(row_of)} rows {of.row}"
    return row_of[0][column]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure.page} {figure.row} {figure.column}")
def test_each_figure_is_the_one_that_was_measured(figure: Figure) -> None:
    assert figure.figure == cell(figure), figure.what


def test_no_figure_of_the_tables_is_without_its_source() -> None:
    rows = re.findall(r"^\| (?!measured|---).*\|$", PAGE.partition("## Tuning")[2], re.MULTILINE)
    assert len(rows) == len(FIGURES) > 20


def test_the_page_of_the_benchmark_has_the_tables_of_its_results() -> None:
    performance = page("performance.md")
    results = Results.read(ROOT / "docs" / "performance" / "results.json")
    written = [table.markdown() for table in tables(results)]
    assert len(written) == 9
    assert [table for table in written if table not in performance] == []


METRICS = page("metrics.md")
SERVED = set(re.findall(r"`(recount_[a-z_]+)`", METRICS.partition("## From recount serve")[2].partition("\n## ")[0]))
OF_DRIVERS = set(re.findall(r"`(recount_operator_[a-z_]+)`", METRICS))


def test_the_page_lists_every_metric_of_a_driver() -> None:
    metrics = DriverMetrics()
    metrics.told(a_status(stream="orders"))
    with metrics.of_states("orders", lambda: {"open windows": StateUse(rows=1, bytes=1, puts=1, gets=1)}):
        told = {sample.name for family in metrics.collect() for sample in family.samples}
    assert {name for name in told if name.startswith("recount_operator_")} == OF_DRIVERS
    assert told <= SERVED | OF_DRIVERS


def test_alarms_are_about_metrics_that_there_are() -> None:
    alarms = METRICS.rpartition("Worth an alarm:")[2]
    named = set(re.findall(r"recount_[a-z_]+", alarms))
    assert len(named) == 6
    assert named <= SERVED


def test_the_drivers_of_the_example_are_the_groups_of_the_shop() -> None:
    [example] = re.findall(r'export RECOUNT_METRICS="(.*?)"', METRICS)
    assert metric_ports(example).keys() == declared().groups.keys()


def test_what_is_mapped_are_durations_that_airflow_sends() -> None:
    known = yaml.safe_load(
        files("airflow._shared.observability.metrics").joinpath("metrics_template.yaml").read_text()
    )["metrics"]
    timers = {f"airflow.{one['name']}" for one in known if one["type"] == "timer"}
    mapped = yaml.safe_load((ROOT / "docker" / "statsd_mapping.yml").read_text())["mappings"]
    assert {one["match"] for one in mapped} <= timers
    assert all(one["name"] == one["match"].replace(".", "_") + "_seconds" for one in mapped)


def test_airflow_sends_dag_task_and_state_beside_the_name() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    settings = compose["services"]["scheduler"]["environment"]
    shown = dict(re.findall(r"^(AIRFLOW__METRICS__\w+)=(.*)$", METRICS, re.MULTILINE))
    assert shown == {name: value for name, value in settings.items() if name.startswith("AIRFLOW__METRICS__")}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.settimeout(10)
        logger = get_statsd_logger(
            stats_class=StatsClient,
            host="127.0.0.1",
            port=listening.getsockname()[1],
            prefix="airflow",
            influxdb_tags_enabled=True,
            statsd_influxdb_enabled=True,
        )
        logger.incr("ti.finish", tags={"dag_id": "night__orders", "task_id": "orders.verdict", "state": "failed"})
        received = listening.recv(1_000).decode()
    assert received == "airflow.ti.finish,dag_id=night__orders,task_id=orders.verdict,state=failed:1|c"
