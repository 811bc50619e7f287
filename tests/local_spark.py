"""A Spark of this process, set up like that of the drivers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from recount.audit.audit_session import FOR_FEW, JAVA_FOR_FEW
from recount.tables.spark_session import make_fewer_calls, session_configuration

TINY = FOR_FEW
"""Settings for data so small that planning and compiling would take most of the time, as audits of few records have."""


def local_session(jars: str, scratch: Path, **settings: str) -> SparkSession:
    """``local[2]`` with the settings of every job, then ``settings``, and no UI; files go below ``scratch``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    configuration = {
        **session_configuration(jars),
        "spark.master": "local[2]",
        "spark.app.name": "recount-tests",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": JAVA_FOR_FEW,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
    }
    session = SparkSession.builder.config(map=configuration | settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    make_fewer_calls(session._jvm)
    return session
