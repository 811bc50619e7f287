"""One Spark for the whole run, set up like the drivers are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.local_spark import local_session

from recount.audit.audit_session import FEW_OFFSETS, suit
from recount.profile.home import Project


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[SparkSession]:
    """With the settings of audits of few records, and no UI: compiling would take most of the time."""
    session = local_session(str(project.spark_jars), tmp_path_factory.mktemp("spark"))
    suit(session, FEW_OFFSETS)
    yield session
    session.stop()


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The address of a Delta table that does not exist yet."""
    return str(tmp_path / "table")
