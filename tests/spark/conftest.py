"""One Spark for the whole run, set up like the drivers are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from recount.local.project import Project
from recount.sessions import session_configuration


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[SparkSession]:
    """``local[2]`` with the settings of every job, and no UI."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    configuration = {
        **session_configuration(str(project.spark_jars)),
        "spark.master": "local[2]",
        "spark.app.name": "recount-tests",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
    }
    session = SparkSession.builder.config(map=configuration).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The address of a Delta table that does not exist yet."""
    return str(tmp_path / "table")


@pytest.fixture(scope="module")
def tiny(spark: SparkSession) -> Iterator[None]:
    """Settings for data so small that planning and compiling would take most of the time."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, known in before.items():
        spark.conf.set(name, str(known))
