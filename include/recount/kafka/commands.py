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
from recount.kafka.topics import TopicChange, apply, plan


def topics(
    apply_changes: Annotated[
        bool, typer.Option("--apply", help="Create what is missing and repair what may be repaired.")
    ] = False,
) -> None:
    """Show how the cluster's topics differ from their declarations; with --apply, bring them in step."""
    settings = Settings.from_environment(os.environ)
    admin = Connection(bootstrap_servers=settings.bootstrap_servers).admin()
    changes = plan(admin, all_topics(declared(settings.topologies)), settings.profile)
    Console().print(_table(changes))
    if apply_changes:
        apply(admin, changes)
        Console().print("applied" if any(change.action != "in step" for change in changes) else "nothing to do")


def _table(changes: list[TopicChange]) -> Table:
    table = Table("topic", "partitions", "replicas", "action", "why")
    for change in changes:
        why = "\n".join([*map(str, change.drift), *([change.note] if change.note else [])])
        topic = change.topic
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), change.action, why)
    return table
