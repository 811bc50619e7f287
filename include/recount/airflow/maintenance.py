"""The work of the DAGs ``maintenance`` and ``topics``."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from dataclasses import asdict
from typing import Any

from recount.airflow.notices import airflow_failures
from recount.declare.registry import declared
from recount.kafka.connection import Connection
from recount.kafka.leases import require_declared
from recount.kafka.status import StatusBoard
from recount.kafka.topic_drift import all_topics
from recount.kafka.topics_on_cluster import apply, plan
from recount.lifecycle.old_files import remove_old
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms

_LOG = logging.getLogger(__name__)


def remove_old_files() -> list[dict[str, Any]]:
    """Remove what is kept no longer; returns, and logs, what that freed of each kind."""
    with airflow_failures():
        found = remove_old(Settings.from_environment(os.environ), clock_ms())
        for freed in found:
            _LOG.info("%s: freed %.1f MiB in %d files", freed.kind, freed.bytes / 2**20, freed.files)
    return [asdict(freed) for freed in found]


def require_all_declared() -> None:
    """Fail where a driver runs for a stream or group that nothing declares: no other DAG looks after it."""
    with airflow_failures():
        settings = Settings.from_environment(os.environ)
        with closing(StatusBoard(Connection.of(settings), isolation="read_uncommitted")) as board:
            require_declared(board.latest(), declared(settings.topologies), clock_ms())


def bring_in_step() -> dict[str, str]:
    """Bring our own topics in step, report what topics of others lack; returns the action per topic, and logs why.

    Every topic is handled before a problem with any of them fails the task.
    """
    with airflow_failures():
        settings = Settings.from_environment(os.environ)
        connection = Connection.of(settings)
        admin = connection.admin()
        changes = plan(admin, all_topics(declared(settings.topologies), connection.own), settings.profile)
        for change in changes:
            reasons = "; ".join(change.reasons)
            level = logging.INFO if change.action in ("create", "in step", "repair") else logging.WARNING
            _LOG.log(level, "%s: %s%s", change.topic.name, change.action, f" ({reasons})" if reasons else "")
        apply(admin, changes)
    return {change.topic.name: change.action for change in changes}
