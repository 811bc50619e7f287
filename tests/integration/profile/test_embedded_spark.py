"""The standalone cluster runs an application that has its secret, shows that to nobody, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from recount.profile import daemon
from recount.profile.daemon import LOOPBACK, free_ports
from recount.profile.embedded import embedded_settings
from recount.profile.home import Home, Project
from recount.profile.spark_cluster import EmbeddedSpark
from recount.runtime.installation import write_secret
from recount.tables.spark_session import SECRET, driver_settings, new_security

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

MARKER = "unencrypted-on-disk"
ROWS = 200_000
# what an application sees of itself: its pages, all processes of the machine, and what it has spilled
APPLICATION = """
import json, os, sys
from pathlib import Path
from urllib.request import urlopen

from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session

ROWS, MARKER = int(sys.argv[1]), sys.argv[2]

def told(place):
    found = {}
    for path in Path("/proc").glob("[0-9]*/" + place):
        try:
            found[path.parent.name] = path.read_bytes().decode(errors="replace").replace(chr(0), " ")
        except OSError:
            continue
    return found

def page(path):
    with urlopen(session.sparkContext.uiWebUrl + path, timeout=20) as answer:
        return answer.read().decode()

session = spark_session(Settings.from_environment(os.environ), "test")
rows = session.range(ROWS, numPartitions=4).selectExpr("id", f"concat('{MARKER}', id) AS text").repartition(4, "id")
rows = rows.mapInArrow(lambda batches: batches, rows.schema)
spilled = rows.persist()
count, last = spilled.selectExpr("count(*)", "max(id)").first()
application = "/api/v1/applications/" + session.sparkContext.applicationId
print(json.dumps({
    "rows": [count, last],
    "executors": len(session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1,
    "pages": [page("/environment/"), page(application + "/environment"), page(application + "/executors")],
    "settings": str(session.sparkContext.getConf().get("spark.sql.extensions")),
    "session": session.sql("SET").toPandas().to_csv(),
    "command lines": told("cmdline"),
    "environments": told("environ"),
    "on disk": sum(MARKER.encode() in path.read_bytes() for path in Path(os.environ["SPILLED"]).rglob("*.data")),
    "files": sum(1 for path in Path(os.environ["SPILLED"]).rglob("*.data")),
}))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(path=tmp_path_factory.mktemp("cluster") / "home")


@pytest.fixture(scope="module")
def spark(home: Home) -> Iterator[EmbeddedSpark]:
    """Two workers of one core: an application has an executor on each, and what it shuffles crosses a connection."""
    with EmbeddedSpark(home=home, workers=2, cores=1, memory="512m") as started:
        yield started
    assert daemon.sweep(home) == 0


def submitted(
    spark: EmbeddedSpark, home: Home, project: Project, folder: Path, security: str
) -> subprocess.CompletedProcess[str]:
    """The application, with its pages, an event log and uncompressed files, as a careless user has them."""
    application, events = folder / "application.py", folder / "events"
    application.write_text(APPLICATION)
    events.mkdir()
    conf = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.ui.port": str(free_ports(1)[0]),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
        "spark.shuffle.compress": "false",
        # through a connection, also between executors of one machine
        "spark.shuffle.readHostLocalDisk": "false",
    }
    settings = embedded_settings(home, project, f"{LOOPBACK}:1", topologies="topologies", spark_security=security)
    return subprocess.run(
        [
            *(Path(sys.executable).with_name("spark-submit"), "--master", spark.master, "--driver-memory", "512m"),
            *("--jars", ",".join(str(jar) for jar in sorted(project.spark_jars.glob("*.jar")))),
            *(word for name, value in conf.items() for word in ("--conf", f"{name}={value}")),
            *(application, str(ROWS), MARKER),
        ],
        env={
            **os.environ,
            **settings.to_environment(),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": LOOPBACK,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPILLED": str(home.spark / "scratch"),
        },
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def listening(home: Home) -> set[str]:
    """The addresses at which processes of ``home`` listen."""
    processes = [psutil.Process(one.pid) for one in daemon.recorded(home)]
    connections = [one for process in processes for one in process.net_connections("tcp")]
    return {one.laddr.ip.removeprefix("::ffff:") for one in connections if one.status == psutil.CONN_LISTEN}


def texts_below(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def test_an_application_with_the_secret_runs_on_the_workers_and_shows_it_nowhere(
    spark: EmbeddedSpark, home: Home, project: Project, tmp_path: Path
) -> None:
    ended = submitted(spark, home, project, tmp_path, spark.security)
    assert ended.returncode == 0, ended.stderr[-5_000:]
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert told["rows"] == [ROWS, ROWS - 1]
    assert told["executors"] == 2
    assert told["files"] > 0
    assert told["on disk"] == 0

    secret = driver_settings(spark.security)[SECRET]
    shown = {
        "pages": "\n".join(told["pages"]),
        "session": told["session"],
        "command lines": "\n".join(told["command lines"].values()),
        "output": ended.stdout.replace(json.dumps(told["environments"]), "") + ended.stderr,
        "event log": texts_below(tmp_path / "events"),
        "logs": texts_below(home.logs) + texts_below(home.spark),
        "master's page": urlopen(spark.url, timeout=20).read().decode(),  # noqa: S310 - its own
    }
    assert "spark.authenticate" in shown["pages"]
    assert "spark.authenticate" in shown["event log"]
    assert "CoarseGrainedExecutorBackend" in shown["command lines"]
    assert [place for place, text in shown.items() if secret in text] == []
    # Spark hands it to executors in their environment; what these start, Python that runs code of streams, has it not
    having = [told["command lines"].get(pid, "") for pid, words in told["environments"].items() if secret in words]
    assert len(having) == 2
    assert all("CoarseGrainedExecutorBackend" in words for words in having)


def test_the_cluster_listens_on_the_loopback_address_and_takes_no_application_over_http(
    spark: EmbeddedSpark, home: Home
) -> None:
    assert listening(home) == {LOOPBACK}
    assert "Started REST server" not in texts_below(home.logs)


@pytest.mark.parametrize("has_one", [False, True], ids=["none", "a wrong one"])
def test_a_driver_without_the_secret_is_refused_at_once_with_one_error(
    spark: EmbeddedSpark, home: Home, project: Project, tmp_path: Path, has_one: bool
) -> None:
    other = tmp_path / "other.properties"
    write_secret(other, new_security())
    began = time.monotonic()
    ended = submitted(spark, home, project, tmp_path, str(other) if has_one else "")
    assert time.monotonic() - began < 50  # Spark alone tries for a minute
    assert ended.returncode != 0
    # spark-submit writes what Python says into its own output
    [line] = [line for line in (ended.stdout + ended.stderr).splitlines() if "does not let this driver in" in line]
    assert line.startswith("recount.runtime.errors.Terminal: ")
    assert f"{spark.master}: {'Authentication failed.' if has_one else 'Unknown challenge message.'}" in line
    assert "Exception" not in ended.stderr
    assert "RECOUNT_SPARK_SECURITY" in line
    assert "unresponsive" not in ended.stderr
    for file in (other, Path(spark.security)):
        assert driver_settings(str(file))[SECRET] not in ended.stdout + ended.stderr


def test_a_driver_whose_master_is_away_is_not_refused(project: Project, tmp_path: Path) -> None:
    """It is Spark's affair, which tries again."""
    program = (
        "import sys; from pyspark import SparkContext; from recount.tables.spark_session import require_admitted\n"
        "SparkContext._ensure_initialized(); require_admitted(SparkContext._gateway, sys.argv[1]); print('passed over')"
    )
    command = [sys.executable, "-c", program, f"spark://{LOOPBACK}:{free_ports(1)[0]}"]
    small = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--driver-memory 256m pyspark-shell"}
    ended = subprocess.run(command, cwd=tmp_path, env=small, capture_output=True, text=True, timeout=100, check=False)
    assert "passed over" in ended.stdout, ended.stderr
