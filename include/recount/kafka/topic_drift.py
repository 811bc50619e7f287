"""Every topic that a deployment needs, and each beside what the cluster has: create, repair, report or refuse.

Needed are the declared topics, the dead-letter topics of what is read, and Recount's own. A topic of others is never
altered. Outside the embedded profile it is created only where that is asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from recount.declare.registry import Declarations
from recount.declare.topics import CREATE_TIME, FARTHEST_AHEAD, TIMESTAMP_TYPE, UNLIMITED_RETENTION_MS, Topic
from recount.declare.topology import Topology
from recount.runtime.errors import RecountError, Terminal, require
from recount.runtime.settings import Profile
from recount.runtime.times import quantity

LEAST_REPLICATION_FACTOR = 3
LEAST_IN_SYNC_REPLICAS = 2
Action = Literal["create", "in step", "repair", "refuse", "drifted", "missing", "unknown"]
STATUS = "recount.status"
HISTORY = "recount.history"
CONTROL = "recount.control"
CERTIFICATES = "recount.certificates"
POSITIONS = "recount.positions"
_SMALL_SEGMENTS = {"segment.bytes": str(16 << 20)}
"""Kafka compacts a segment once it is full: a record a batch would fill one of the default size in weeks, and the
statuses of forty streams in two days, which everybody would read who asks for one."""
_KAFKA_TAKES_MS = 3_600_000
"""What brokers take of records ahead of their clock where the topic says nothing, since Kafka 4."""
_CLOCKS_APART_MS = 3_600_000
_OWN_TIME = {TIMESTAMP_TYPE: CREATE_TIME}


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One setting that is not as declared; ``hazard`` says why it must not be changed, empty when it may be."""

    setting: str
    actual: str
    declared: str
    hazard: str = ""

    def __str__(self) -> str:
        text = f"{self.setting} is {self.actual}, declared {self.declared}"
        return f"{text} ({self.hazard})" if self.hazard else text


@dataclass(frozen=True, kw_only=True)
class TopicChange:
    """The change of one topic; ``topic`` is as it will be on this cluster, ``note`` says what was lowered.

    ``drifted`` and ``missing`` are of topics of others, and nothing is done about them. ``problem`` says why a person
    has to act (``refuse``, ``missing``) or why the topic could not be looked at (``unknown``); None where all is well.
    """

    topic: Topic
    action: Action
    drift: tuple[Drift, ...] = ()
    note: str = ""
    problem: RecountError | None = None

    @property
    def reasons(self) -> list[str]:
        """Why, one sentence each; a refusal names itself what it refuses."""
        named = [str(one) for one in self.drift if self.problem is None or not one.hazard]
        problem = "" if self.problem is None else str(self.problem)
        return [reason for reason in (*named, self.note, problem) if reason]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A topic as it is on the cluster: ``factors`` are the numbers of replicas that its partitions have."""

    partitions: int
    factors: tuple[int, ...]
    settings: Mapping[str, str]


def change_of(
    topic: Topic, found: Found | RecountError | None, profile: Profile, brokers: int, *, creates_others: bool = False
) -> TopicChange:
    """The change of ``topic``, given what was ``found`` of it on the cluster: None where it has none.

    In the embedded profile a replication factor above the number of brokers is lowered to it, and noted, and a topic of
    others that is missing is created. In any other it is created where we are one that ``creates_others``, and a
    replication factor below 3 or min.insync.replicas below 2 is refused for our own topics.

    Drift of our own that a topic survives is to be repaired: a longer retention, in-sync replicas and every other
    setting. Refused: another number of partitions (fewer is impossible; more sends keys to other partitions, and then
    the order of a key and its lateness are lost), another replication factor (a reassignment of replicas, Kafka's own
    tool does it), and a retention or cleanup policy that removes records the declared-until-now one kept.

    Drift of a topic of others is reported as ``drifted``.
    """
    fitted, note = _fitted(topic, profile, brokers)
    if isinstance(found, RecountError):
        return TopicChange(topic=fitted, action="unknown", problem=found)
    if topic.owned and profile != "embedded" and (weak := _weakness(topic)) is not None:
        return TopicChange(topic=topic, action="refuse", problem=weak)
    if found is None:
        if topic.owned or creates_others or profile == "embedded":
            return TopicChange(topic=fitted, action="create", note=note)
        return TopicChange(topic=topic, action="missing", problem=_missing(topic))
    drift = tuple(_drift(fitted, found))
    if not drift:
        return TopicChange(topic=fitted, action="in step", note=note)
    if not topic.owned:
        return TopicChange(topic=fitted, action="drifted", drift=drift, note="a topic of others: only reported")
    if any(one.hazard for one in drift):
        return TopicChange(topic=fitted, action="refuse", drift=drift, note=note, problem=_refusal(topic, drift))
    return TopicChange(topic=fitted, action="repair", drift=drift, note=note)


def settings_of(topic: Topic) -> dict[str, str]:
    """The declared settings of ``topic``, by Kafka's names."""
    return {
        "cleanup.policy": topic.cleanup_policy,
        "retention.ms": str(topic.retention_ms),
        "min.insync.replicas": str(topic.min_insync_replicas),
        **topic.configs,
    }


def _fitted(topic: Topic, profile: Profile, brokers: int) -> tuple[Topic, str]:
    if profile != "embedded":
        return topic, ""
    factor = min(topic.replication_factor, brokers)
    in_sync = min(topic.min_insync_replicas, factor)
    fitted = replace(topic, replication_factor=factor, min_insync_replicas=in_sync)
    note = f"embedded, {quantity(brokers, 'broker')}: {quantity(factor, 'replica')}, {in_sync} in sync"
    return fitted, "" if fitted == topic else note


def _weakness(topic: Topic) -> Terminal | None:
    if topic.replication_factor >= LEAST_REPLICATION_FACTOR and topic.min_insync_replicas >= LEAST_IN_SYNC_REPLICAS:
        return None
    return Terminal.of(
        "topic-can-lose-records",
        given=f"replication factor {topic.replication_factor}, min.insync.replicas {topic.min_insync_replicas}",
        name=topic.name,
        replicas=LEAST_REPLICATION_FACTOR,
        in_sync=LEAST_IN_SYNC_REPLICAS,
    )


def _missing(topic: Topic) -> Terminal:
    return Terminal.of("topic-of-others-missing", name=topic.name)


def _refusal(topic: Topic, drift: Iterable[Drift]) -> Terminal:
    return Terminal.of("topic-not-repairable", given=[str(one) for one in drift if one.hazard], name=topic.name)


def _drift(topic: Topic, found: Found) -> Iterator[Drift]:
    if found.partitions != topic.partitions:
        fewer = topic.partitions < found.partitions
        hazard = "Kafka cannot remove partitions" if fewer else "keys would move to other partitions"
        yield Drift(setting="partitions", actual=str(found.partitions), declared=str(topic.partitions), hazard=hazard)
    if found.factors != (topic.replication_factor,):
        yield Drift(
            setting="replication factor",
            actual=", ".join(map(str, found.factors)),
            declared=str(topic.replication_factor),
            hazard="a reassignment of replicas: kafka-reassign-partitions.sh",
        )
    for setting, declared in settings_of(topic).items():
        actual = found.settings.get(setting, "unknown to this broker")
        if _normal(actual) != _normal(declared):
            hazard = "records that are kept now would be removed" if _loses(setting, actual, declared) else ""
            yield Drift(setting=setting, actual=actual, declared=declared, hazard=hazard)


def _loses(setting: str, actual: str, declared: str) -> bool:
    """Whether records that are kept now would be removed under the declared setting."""
    match setting:
        case "cleanup.policy":
            return not _policies(declared) < _policies(actual)
        case "retention.ms" | "retention.bytes":
            unlimited = str(UNLIMITED_RETENTION_MS)
            return declared != unlimited and (
                actual == unlimited or not actual.isdigit() or int(declared) < int(actual)
            )
    return False


def _policies(setting: str) -> set[str]:
    return set(setting.replace(" ", "").split(","))


def _normal(setting: str) -> str:
    return ",".join(sorted(_policies(setting)))


def platform_topics(named: Callable[[str], str] = str) -> tuple[Topic, ...]:
    """The last status of every driver, the history of these, the orders to drivers, the newest certificates, and where
    Kafka stands with every stream.

    One partition keeps order. ``named`` says what the installation calls them (``Connection.own``).
    """
    return (
        _newest_of_each(named(STATUS), _SMALL_SEGMENTS),
        Topic(name=named(HISTORY), key="stream", partitions=1, retention_ms=7 * 86_400_000, owned=True),
        _newest_of_each(named(CONTROL)),
        _newest_of_each(named(CERTIFICATES)),
        _newest_of_each(named(POSITIONS), _SMALL_SEGMENTS),
    )


def _newest_of_each(name: str, configs: Mapping[str, str] | None = None) -> Topic:
    """The topic ``name``, which keeps the newest record of each stream."""
    return Topic(
        name=name,
        key="stream",
        partitions=1,
        cleanup_policy="compact",
        retention_ms=-1,
        configs=configs or {},
        owned=True,
    )


def all_topics(declarations: Declarations, named: Callable[[str], str] = str) -> list[Topic]:
    """Sorted by name, ``owned`` where a topology writes to it; the embedded profile later lowers the replication.

    ``named`` says what the installation calls its own topics (``Connection.own``). Raises ``InvalidDeclaration`` where
    a sink writes to one of these.
    """
    topologies = declarations.topologies.values()
    read = [source.topic for topology in topologies for source in topology.sources]
    written = [topic for topology in topologies for topic in _written(topology)]
    platform = platform_topics(named)
    taken = sorted({topic.name for topic in platform} & {topic.name for topic in written})
    require(
        not taken,
        "topic-of-recount-written",
        given=f"a sink writes to {', '.join(taken)}",
        name=", ".join(topic.name for topic in platform),
    )
    ours = [*platform, *map(dead_letter_topic, read), *written]
    topics = {topic.name: topic for topic in (*declarations.topics.values(), *ours)}
    return [topics[name] for name in sorted(topics)]


def _written(topology: Topology) -> Iterator[Topic]:
    """Topics that ``topology`` writes. Results have the times of records: up to ``max_future`` ahead of the clock.

    A cluster can have ``LogAppendTime`` as its default: then each result would have another time than the log gives it.
    """
    ahead_ms = topology.max_future_ms
    limit = {FARTHEST_AHEAD: str(ahead_ms + _CLOCKS_APART_MS)} if ahead_ms > _KAFKA_TAKES_MS else {}
    for node in topology.written:
        yield replace(node.topic, owned=True, configs={**_OWN_TIME, **limit, **node.topic.configs})


def dead_letter_topic(source: Topic) -> Topic:
    """The dead-letter topic of ``source``, with as many partitions; its records expire after 30 days, never compacted.

    It has as many replicas, or as many as a topic of ours must have: ``source`` can be one of others that has fewer.
    """
    return replace(
        source,
        replication_factor=max(source.replication_factor, LEAST_REPLICATION_FACTOR),
        min_insync_replicas=max(source.min_insync_replicas, LEAST_IN_SYNC_REPLICAS),
        name=source.dead_letter_name,
        value=None,
        encoding="json",
        key_form="text",
        event_time=None,
        cleanup_policy="delete",
        retention_ms=30 * 86_400_000,
        configs={},
        owned=True,
    )
