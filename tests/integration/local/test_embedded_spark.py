"""The standalone cluster runs an application on its worker, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from recount.local import daemon
from recount.local.home import Home
from recount.local.spark import EmbeddedSpark

APPLICATION = """
from pyspark.sql import SparkSession

session = SparkSession.builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
with_python = session.range(10, numPartitions=2).mapInArrow(lambda batches: batches, "id long")
print("master", session.sparkContext.master, "rows", with_python.count())
"""


def test_an_application_runs_on_the_worker(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    application = tmp_path / "application.py"
    application.write_text(APPLICATION)
    with EmbeddedSpark(home=home) as spark:
        submitted = subprocess.run(
            [Path(sys.executable).with_name("spark-submit"), "--master", spark.master, application],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert f"master {spark.master} rows 10" in submitted.stdout, submitted.stderr
    assert daemon.sweep(home) == 0
