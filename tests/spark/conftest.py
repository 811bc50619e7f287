"""One Spark for the whole run, set up like the drivers are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.local_spark import TINY, local_session

from recount.local.project import Project


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[SparkSession]:
    """With the settings of every job, and no UI."""
    session = local_session(str(project.spark_jars), tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The address of a Delta table that does not exist yet."""
    return str(tmp_path / "table")


@pytest.fixture(scope="module")
def tiny(spark: SparkSession) -> Iterator[None]:
    """``TINY``, for one module."""
    for name, value in TINY.items():
        spark.conf.set(name, value)
    yield
    for name in TINY:
        known = spark.sparkContext.getConf().get(name)
        if known is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, known)
