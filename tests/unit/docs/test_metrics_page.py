"""docs/metrics.md: a driver's metrics are all there, alarms name metrics that exist, Airflow sends what is mapped."""

from __future__ import annotations

import re
import socket
from importlib.resources import files

import yaml
from airflow._shared.observability.metrics.statsd_logger import get_statsd_logger
from statsd import StatsClient
from tests.statuses import a_status
from tests.unit.docs.shown_commands import ROOT, page

from recount.declare.registry import declared
from recount.engine.driver.stream_reports import DriverMetrics
from recount.engine.state.keyed_rows import StateUse
from recount.runtime.settings import metric_ports

PAGE = page("metrics.md")
SERVED = set(re.findall(r"`(recount_[a-z_]+)`", PAGE.partition("## From recount serve")[2].partition("\n## ")[0]))
OF_DRIVERS = set(re.findall(r"`(recount_operator_[a-z_]+)`", PAGE))


def test_the_page_lists_every_metric_of_a_driver() -> None:
    metrics = DriverMetrics()
    metrics.told(a_status(stream="orders"))
    with metrics.of_states("orders", lambda: {"open windows": StateUse(rows=1, bytes=1, puts=1, gets=1)}):
        told = {sample.name for family in metrics.collect() for sample in family.samples}
    assert {name for name in told if name.startswith("recount_operator_")} == OF_DRIVERS
    assert told <= SERVED | OF_DRIVERS


def test_alarms_are_about_metrics_that_there_are() -> None:
    alarms = PAGE.rpartition("Worth an alarm:")[2]
    named = set(re.findall(r"recount_[a-z_]+", alarms))
    assert len(named) == 6
    assert named <= SERVED


def test_the_drivers_of_the_example_are_the_groups_of_the_shop() -> None:
    [example] = re.findall(r'export RECOUNT_METRICS="(.*?)"', PAGE)
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
    shown = dict(re.findall(r"^(AIRFLOW__METRICS__\w+)=(.*)$", PAGE, re.MULTILINE))
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
