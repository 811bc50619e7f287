"""The work of the maintenance DAG."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict
from typing import Any

from recount.airflow.failures import airflow_failures
from recount.core.settings import Settings
from recount.maintenance.old_files import remove_old

_LOG = logging.getLogger(__name__)


def remove_old_files() -> list[dict[str, Any]]:
    """Remove what is kept no longer; returns, and logs, what that freed of each kind."""
    with airflow_failures():
        found = remove_old(Settings.from_environment(os.environ), time.time_ns() // 1_000_000)
        for freed in found:
            _LOG.info("%s: freed %.1f MiB in %d files", freed.kind, freed.bytes / 2**20, freed.files)
    return [asdict(freed) for freed in found]
