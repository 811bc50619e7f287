"""What the JVM of a driver or an audit writes into its log: warnings, but not the columns of every plan."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recount.profile.home import Project
from recount.runtime.settings import Settings

# the optimizer knows that no element is null: of that LogicalRDD warns
PROGRAM = """
import os
from pyspark.sql import functions as F
from recount.runtime.settings import Settings
from recount.tables.spark_session import spark_session
session = spark_session(Settings.from_environment(os.environ), "lines")
one = session.range(1)
v = F.lit(1).alias("v")
joined = one.withColumnRenamed("id", "k").join(one.select("id", v), F.col("k") == F.col("id"), "left")
joined.filter("v = 1").select(F.array("v").alias("a")).localCheckpoint(eager=False)
log4j = session._jvm.org.apache.logging.log4j
for name in ("LogicalRDD", "Other"):
    logger = log4j.LogManager.getLogger(f"org.apache.spark.sql.execution.{name}")
    logger.warn(f"a warning of {name}")
    logger.error(f"an error of {name}")
"""


@pytest.mark.thorough
def test_all_loggers_warn_but_the_one_that_tells_columns(project: Project, tmp_path: Path) -> None:
    """Also where Spark's own layout for JSON is taken."""
    places = dict.fromkeys(("data", "checkpoints", "reports", "logs", "run"), str(tmp_path))
    settings = Settings(
        profile="embedded",
        bootstrap_servers="nowhere:1",
        jars=str(project.spark_jars),
        log_format="json",
        **places,
    )
    environment = {**os.environ, **settings.to_environment()}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=250
    )
    said = ended.stdout + ended.stderr
    found = [name for name in ("a warning of Other", "an error of Other", "an error of LogicalRDD") if name in said]
    assert found == ["a warning of Other", "an error of Other", "an error of LogicalRDD"]
    assert "output columns" not in said
    assert "a warning of LogicalRDD" not in said
