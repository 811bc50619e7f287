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
    """Create what is missing, repair safe drift, refuse unsafe drift; returns the action per topic, and logs why."""
    with airflow_failures():
        settings = Settings.from_environment(os.environ)
        admin = Connection(bootstrap_servers=settings.bootstrap_servers).admin()
        changes = plan(admin, all_topics(declared(settings.topologies)), settings.profile)
        for change in changes:
            reasons = "; ".join([*map(str, change.drift), *filter(None, [change.note])])
            _LOG.info("%s: %s%s", change.topic.name, change.action, f" ({reasons})" if reasons else "")
        apply(admin, changes)
    return {change.topic.name: change.action for change in changes}
