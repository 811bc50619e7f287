"""An AIRFLOW_HOME of its own for these tests: importing Airflow writes a configuration file there."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_HOME = tempfile.mkdtemp(prefix="recount-airflow-")
os.environ["AIRFLOW_HOME"] = _HOME
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
