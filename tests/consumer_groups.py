"""What Kafka's own tool, ``kafka-consumer-groups.sh --describe``, says of groups."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

from recount.profile.home import Project


@dataclass(frozen=True, kw_only=True)
class Described:
    """A line of the tool."""

    committed: int
    end: int
    lag: int


def described(
    project: Project, bootstrap_servers: str, groups: Collection[str]
) -> dict[str, dict[tuple[str, int], Described]]:
    """By group and partition what the tool says."""
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    heap = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    asked = [part for group in groups for part in ("--group", group)]
    said = subprocess.run(
        [
            *("java", *heap, "-cp", f"{project.kafka_jars}/*", tool, "--bootstrap-server", bootstrap_servers),
            *("--describe", "--timeout", "30000", *asked),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"},
    ).stdout
    found: dict[str, dict[tuple[str, int], Described]] = {}
    for line in said.splitlines():
        match line.split():
            case [group, topic, partition, committed, end, lag, *_] if committed.isdigit():
                known = Described(committed=int(committed), end=int(end), lag=int(lag))
                found.setdefault(group, {})[topic, int(partition)] = known
            case _:
                continue
    return found
