"""The work of the topics DAG: every declared topic in step with the cluster."""

from __future__ import annotations

import logging
import os

from recount.airflow.failures import airflow_failures
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.kafka.connection import Connection
from recount.kafka.declared import all_topics
from recount.kafka.topics import apply, plan

_LOG = logging.getLogger(__name__)


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
