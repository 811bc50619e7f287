"""``recount topics``: the declared topics against the cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from recount.core.errors import RecountError
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.kafka.connection import Connection
from recount.kafka.declared import all_topics
from recount.kafka.old_records import short_lived_results
from recount.kafka.raised_partitions import partitions_met, raised_partitions
from recount.kafka.topic_drift import TopicChange
from recount.kafka.topics import carry_out, plan, require_none
from recount.printed_tables import print_whole

_DONE = {"create": "created", "repair": "repaired"}


def topics(
    apply_changes: Annotated[
        bool, typer.Option("--apply", help="Create what is missing of our own, and repair what may be repaired.")
    ] = False,
    of_others: Annotated[
        bool, typer.Option(help="Create topics of others too: on a cluster of your own, to try the streams.")
    ] = False,
) -> None:
    """Show how the cluster's topics differ from their declarations; with --apply, bring them in step."""
    settings = Settings.from_environment(os.environ)
    connection = Connection.of(settings)
    admin = connection.admin()
    declarations = declared(settings.topologies)
    wanted = all_topics(declarations, connection.own)
    changes = plan(admin, wanted, settings.profile, creates_others=of_others)
    problems = carry_out(admin, changes) if apply_changes else None
    print_whole(table_of(changes, problems))
    for warning in short_lived_results(connection, declarations.topologies.values()):
        print(f"warning: {warning}")
    streams = list(declarations.topologies.values())
    for line in raised_partitions(changes, streams, partitions_met(streams, Tables(settings.data))):
        print(line)
    if problems is not None:
        require_none(problems)
        print("applied" if any(change.action in _DONE for change in changes) else "nothing to do")


def table_of(changes: Sequence[TopicChange], problems: Mapping[str, RecountError] | None = None) -> Table:
    """What is to be done with each topic; with the ``problems`` that are left after the changes, what has been done."""
    table = Table("topic", "owner", "partitions", "replicas", "action", "why")
    for change in changes:
        topic = change.topic
        owner = "ours" if topic.owned else "others"
        size = (str(topic.partitions), str(topic.replication_factor))
        failed = None if problems is None else problems.get(topic.name)
        is_done = problems is not None and failed is None
        why = [*change.reasons, *([] if failed in (None, change.problem) else [str(failed)])]
        action = _DONE.get(change.action, change.action) if is_done else change.action
        table.add_row(topic.name, owner, *size, action, Text("\n".join(why)))
    return table
