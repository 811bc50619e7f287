"""Archives of topics, and groups of streams that share one driver, and so one Spark application.

An archive is the raw log of a topic in Delta, which outlives the topic's retention.

>>> from recount.declare.groups import Archive
>>> from recount.declare.topics import Topic
>>> clicks, views = (Archive(topic=Topic(name=name, key="user_id")) for name in ("clicks", "views"))
>>> StreamGroup(name="archives", streams=[clicks, views], trigger_interval="10 s").members
('archive-clicks', 'archive-views')
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recount.declare.limits import Health, require_health
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.runtime.errors import require, require_each
from recount.runtime.times import Duration, milliseconds

LONGEST_ARCHIVED = 234
"""Airflow's names of DAGs have at most 250 characters: ``stream__archive-`` and the name of the topic."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_GROUP = 90
"""Its name is in a tag in Airflow, which has at most 100 characters."""
TASKS_OF_A_NIGHT = ("audit", "panels")
"""Tasks that the night of a group has once; each of its topologies has a group of tasks of its own name beside them."""
_MEMORY = re.compile(r"[1-9][0-9]*[mg]")


@dataclass(frozen=True, kw_only=True)
class Archive:
    """Every record of ``topic`` as it came (topic, partition, offset, timestamp, key, value, headers), exactly once.

    Runs as a stream of its own named ``archive-<topic>``; nothing is decoded, so no record can be bad.
    """

    topic: Topic
    health: Health = field(default_factory=Health)

    def __post_init__(self) -> None:
        require_each("archive-of-no-topic", [self.topic], Topic)
        require(
            len(self.topic.name) <= LONGEST_ARCHIVED,
            "archive-name-too-long",
            given=self.topic.name,
            most=LONGEST_ARCHIVED,
        )
        require_health(self.health)

    @property
    def name(self) -> str:
        return f"archive-{self.topic.name}"


@dataclass(frozen=True, kw_only=True)
class StreamGroup:
    """The streams that one driver hosts; each keeps a lease, a status, a checkpoint, an audit and a DAG of its own.

    A stream that fails ends alone. A batch of each starts every ``trigger_interval``, or as soon as the last one is
    done where that takes longer (``"0 s"``: always). A batch has at most ``max_offsets`` records: what batches hold at
    a time is held by several streams. ``driver_memory`` is the heap of the driver's JVM, in Spark's notation; the
    state of the streams is outside of it.
    """

    name: str
    streams: Sequence[Topology | Archive]
    trigger_interval: Duration = "0 s"
    max_offsets: int = 100_000
    driver_memory: str = "1g"

    def __post_init__(self) -> None:
        require(
            isinstance(self.name, str) and _NAME.fullmatch(self.name) is not None and len(self.name) <= LONGEST_GROUP,
            "group-name-unfit",
            given=self.name,
            most=LONGEST_GROUP,
        )
        require(
            isinstance(self.streams, list | tuple) and len(self.streams) > 0,
            "group-without-streams",
            given=self.streams,
            name=self.name,
        )
        require_each("group-of-something-else", self.streams, Topology | Archive, name=self.name)
        twice = sorted({name for name in self.members if self.members.count(name) > 1})
        require(not twice, "group-names-a-stream-twice", given=f"{', '.join(twice)} more than once", name=self.name)
        taken = [one.name for one in self.streams if isinstance(one, Topology) and one.name in TASKS_OF_A_NIGHT]
        require(
            not taken,
            "group-with-a-taken-name",
            given=", ".join(taken),
            name=self.name,
            taken=" and ".join(TASKS_OF_A_NIGHT),
        )
        require(
            isinstance(self.driver_memory, str) and _MEMORY.fullmatch(self.driver_memory) is not None,
            "group-driver-memory",
            given=self.driver_memory,
            name=self.name,
        )
        require(
            type(self.max_offsets) is int and self.max_offsets > 0,
            "group-max-offsets",
            given=self.max_offsets,
            name=self.name,
        )
        milliseconds(self.trigger_interval, "trigger_interval")

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(stream.name for stream in self.streams)

    @property
    def trigger_interval_ms(self) -> int:
        return milliseconds(self.trigger_interval, "trigger_interval")


def require_apart(groups: Iterable[StreamGroup], streams: Mapping[str, Topology | Archive]) -> None:
    """Refuse a group named like one of ``streams``, and a stream that is not one of them or is in two groups."""
    group_of: dict[str, str] = {}
    for group in groups:
        require(group.name not in streams, "group-named-like-a-stream", given=group.name)
        for stream in group.streams:
            require(
                streams.get(stream.name) is stream, "group-of-undeclared-streams", given=stream.name, name=group.name
            )
            other = group_of.setdefault(stream.name, group.name)
            require(
                other == group.name,
                "stream-in-two-groups",
                given=f"{stream.name}, which is in group {other}",
                name=group.name,
            )
