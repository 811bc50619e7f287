"""One Spark for the whole run, set up like the drivers are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from recount.local.project import Project


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[SparkSession]:
    """``local[2]`` with Delta and Kafka, small-table settings, UTC and no UI."""
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("recount-tests")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(project.spark_jars.glob("*.jar"))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The address of a Delta table that does not exist yet."""
    return str(tmp_path / "table")
