"""The chain runs on a secured broker with exactly the ACLs that `recount acls` prints, and shows no secret anywhere."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession
from tests.integration.secure.chain import Chain
from tests.integration.secure.test_refusals import secrets_of, shown_by_processes
from tests.local_spark import TINY, local_session

from recount.audit.compare import committed
from recount.kafka.connection import Connection
from recount.profile.daemon import free_ports
from recount.profile.home import Project
from recount.recompute.raw_log import KafkaLog
from recount.tables.places import Tables
from recount.tables.spark_session import tell_no_calls


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[SparkSession]:
    """With its pages and an event log, as a careless user has them."""
    folder = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    of_pages = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_ports(1)[0]),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{folder}/events",
        "spark.eventLog.compress": "false",
        "spark.sql.ui.explainMode": "extended",
    }
    tell_no_calls()
    session = local_session(str(project.spark_jars), folder, **TINY | of_pages)
    yield session
    session.stop()


def test_the_chain_runs_and_shows_no_secret(
    chain: Chain,
    spark: SparkSession,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where Spark's tasks read the log: few records the audit reads itself."""
    monkeypatch.setattr(committed, "RECORDS_AT_HAND", 0)
    caplog.set_level("DEBUG")
    chain.permit(chain.acls)
    chain.sell([*range(3), 0])  # the last one is late
    chain.stream(spark)
    audited = chain.audit(spark)
    backfilled = chain.backfill()

    rows = spark.read.format("delta").load(Tables(chain.settings.data).output("takings")).collect()
    assert sorted((row.sales, row.cents) for row in rows) == [(1, 100), (1, 101)]
    assert json.loads(audited.certificate.read_text())["outcome"] == "match"
    assert (backfilled.corrections, len(backfilled.published)) == (1, 1)

    words = {**secrets_of(chain.kafka), "a key": "-----BEGIN PRIVATE KEY"}
    shown = {
        "pages": pages_of(spark),
        "event log": texts_below(Path(spark.conf.get("spark.eventLog.dir", "").removeprefix("file://"))),
        "plan": plan_of(chain, spark),
        "checkpoint, tables and reports": texts_below(Path(chain.settings.data).parent),
        "processes": shown_by_processes(),
        "output": "".join(capfd.readouterr()),
        "logs": caplog.text,
    }
    for place in ("pages", "event log", "plan"):
        assert "KafkaRelation" in shown[place], place
    assert not [(place, word) for place, text in shown.items() for word, secret in words.items() if secret in text]


def pages_of(spark: SparkSession) -> str:
    """What Spark's pages and their REST API tell: settings, queries with their plans, streams."""
    address = spark.sparkContext.uiWebUrl
    application = f"api/v1/applications/{spark.sparkContext.applicationId}"
    asked = ["environment/", "SQL/", "StreamingQuery/", f"{application}/environment"]
    asked.append(f"{application}/sql?details=true&planDescription=true&length=1000")
    found = []
    for path in asked:
        with urlopen(f"{address}/{path}", timeout=60) as answer:  # noqa: S310 - of this machine
            found.append(answer.read().decode())
    return "\n".join(found)


def plan_of(chain: Chain, spark: SparkSession) -> str:
    """All plans of a read, as an error or a debugging user prints them."""
    settings = chain.settings.acting_as("audit")
    log = KafkaLog(options=Connection.of(settings).of_spark).read(spark, "sales", {0: (0, 1)})
    execution: Any = log.frame._jdf.queryExecution()
    return f"{execution.toString()} {execution.logical().toJSON()}"


def texts_below(folder: Path) -> str:
    return "\n".join(path.read_bytes().decode(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file())
