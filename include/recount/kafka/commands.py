"""``recount topics``: the declared topics against the cluster."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from recount.core.registry import declared
from recount.core.settings import Settings
from recount.kafka.connection import Connection
from recount.kafka.declared import all_topics
from recount.kafka.topic_drift import TopicChange
from recount.kafka.topics import apply, plan


def topics(
    apply_changes: Annotated[
        bool, typer.Option("--apply", help="Create what is missing of our own, and repair what may be repaired.")
    ] = False,
) -> None:
    """Show how the cluster's topics differ from their declarations; with --apply, bring them in step."""
    settings = Settings.from_environment(os.environ)
    connection = Connection.of(settings)
    admin = connection.admin()
    changes = plan(admin, all_topics(declared(settings.topologies), connection.own), settings.profile)
    Console().print(_table(changes))
    if apply_changes:
        apply(admin, changes)
        Console().print(
            "applied" if any(change.action in ("create", "repair") for change in changes) else "nothing to do"
        )


def _table(changes: list[TopicChange]) -> Table:
    table = Table("topic", "owner", "partitions", "replicas", "action", "why")
    for change in changes:
        topic = change.topic
        owner = "ours" if topic.owned else "others"
        size = (str(topic.partitions), str(topic.replication_factor))
        table.add_row(topic.name, owner, *size, change.action, "\n".join(change.reasons))
    return table
