"""A declared topic beside what the cluster has: what to create, to repair, only to report, to refuse.

A topic of others is never altered. Outside the embedded profile it is created only where that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from recount.core.errors import RecountError, Terminal
from recount.core.quantities import quantity
from recount.core.settings import Profile
from recount.core.topics import UNLIMITED_RETENTION_MS, Topic

LEAST_REPLICATION_FACTOR = 3
LEAST_IN_SYNC_REPLICAS = 2

Action = Literal["create", "in step", "repair", "refuse", "drifted", "missing", "unknown"]


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
    """What has to happen to one topic; ``topic`` is as it will be on this cluster, ``note`` says what was lowered.

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
    topic: Topic,
    found: Found | RecountError | None,
    profile: Profile,
    brokers: int,
    *,
    creates_others: bool = False,
) -> TopicChange:
    """What has to happen to ``topic``, of which the cluster has what was ``found``; None where it has none.

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
    return Terminal(
        f"topic {topic.name} can lose acknowledged records",
        given=f"replication factor {topic.replication_factor}, min.insync.replicas {topic.min_insync_replicas}",
        expected=f"at least {LEAST_REPLICATION_FACTOR} and {LEAST_IN_SYNC_REPLICAS}",
        remedy="raise them in the declaration; only RECOUNT_PROFILE=embedded takes less",
    )


def _missing(topic: Topic) -> Terminal:
    return Terminal(
        f"topic {topic.name} does not exist, and it is a topic of others",
        expected="that its owner creates it",
        remedy="ask its owner; if it is yours, declare Topic(owned=True)",
    )


def _refusal(topic: Topic, drift: Iterable[Drift]) -> Terminal:
    return Terminal(
        f"topic {topic.name} differs from its declaration in a way that is not repaired",
        given=[str(one) for one in drift if one.hazard],
        expected="the declared settings",
        remedy="correct the declaration, change the topic with Kafka's own tools (kafka-topics --alter), or move the "
        "data to a new topic; for more partitions see docs/changing.md",
    )


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
