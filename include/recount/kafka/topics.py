"""Declared topics against the cluster: what to create, what to repair, what to refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from recount.core.errors import Terminal
from recount.core.settings import Profile
from recount.core.topics import Topic
from recount.kafka.connection import REQUEST_TIMEOUT_S, failure

LEAST_REPLICATION_FACTOR = 3
LEAST_IN_SYNC_REPLICAS = 2


class WeakReplication(Terminal):
    """A declaration that loses acknowledged records when one broker is lost."""


class UnsafeDrift(Terminal):
    """The cluster differs from the declarations in a way that cannot be repaired without harm."""


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
    """What has to happen to one topic; ``topic`` is as it will be on this cluster, ``note`` says what was lowered."""

    topic: Topic
    action: Literal["create", "in step", "repair", "refuse"]
    drift: tuple[Drift, ...] = ()
    note: str = ""


def plan(admin: AdminClient, topics: Iterable[Topic], profile: Profile) -> list[TopicChange]:
    """Compare ``topics`` with the cluster; changes nothing.

    In the embedded profile a replication factor above the number of brokers is lowered to it, and noted. In any other,
    a replication factor below 3 or min.insync.replicas below 2 raises ``WeakReplication``.

    Drift that a topic survives is to be repaired: retention (a lower one deletes the records beyond it), in-sync
    replicas and every other setting. Refused: another number of partitions (fewer is impossible; more sends keys to
    other partitions, and then the order of a key and its lateness are lost), another replication factor (a reassignment
    of replicas, Kafka's own tool does it), and a cleanup policy that removes records the declared-until-now one kept.
    """
    try:
        cluster = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
        wanted = [_fitted(topic, profile, len(cluster.brokers)) for topic in topics]
        existing = [topic.name for topic, _ in wanted if topic.name in cluster.topics]
        settings = _describe(admin, existing)
    except KafkaException as error:
        raise failure("describing the topics", error) from error
    return [
        _compare(topic, note, cluster.topics[topic.name], settings[topic.name])
        if topic.name in settings
        else TopicChange(topic=topic, action="create", note=note)
        for topic, note in wanted
    ]


def apply(admin: AdminClient, changes: Iterable[TopicChange]) -> None:
    """Carry out a plan: create, then repair. Raises ``UnsafeDrift`` first, before anything is changed."""
    changes = list(changes)
    refused = [change for change in changes if change.action == "refuse"]
    if refused:
        raise UnsafeDrift(
            "topics differ from their declarations in a way that is not repaired",
            given={change.topic.name: [str(drift) for drift in change.drift if drift.hazard] for change in refused},
            expected="the declared settings",
            remedy="correct the declaration, or move the data to a new topic",
        )
    try:
        _create(admin, [change.topic for change in changes if change.action == "create"])
        _repair(admin, [change for change in changes if change.action == "repair"])
    except KafkaException as error:
        raise failure("changing the topics", error) from error


def _fitted(topic: Topic, profile: Profile, brokers: int) -> tuple[Topic, str]:
    if profile == "embedded":
        factor = min(topic.replication_factor, brokers)
        in_sync = min(topic.min_insync_replicas, factor)
        fitted = replace(topic, replication_factor=factor, min_insync_replicas=in_sync)
        note = f"embedded, {brokers} broker(s): {factor} replica(s), {in_sync} in sync"
        return fitted, "" if fitted == topic else note
    if topic.replication_factor < LEAST_REPLICATION_FACTOR or topic.min_insync_replicas < LEAST_IN_SYNC_REPLICAS:
        raise WeakReplication(
            f"topic {topic.name} can lose acknowledged records",
            given=f"replication factor {topic.replication_factor}, min.insync.replicas {topic.min_insync_replicas}",
            expected=f"at least {LEAST_REPLICATION_FACTOR} and {LEAST_IN_SYNC_REPLICAS}",
            remedy="raise them in the declaration; only RECOUNT_PROFILE=embedded takes less",
        )
    return topic, ""


def _settings(topic: Topic) -> dict[str, str]:
    return {
        "cleanup.policy": topic.cleanup_policy,
        "retention.ms": str(topic.retention_ms),
        "min.insync.replicas": str(topic.min_insync_replicas),
        **topic.configs,
    }


def _compare(topic: Topic, note: str, found: TopicMetadata, settings: dict[str, str]) -> TopicChange:
    drift = tuple(_drift(topic, found, settings))
    action: Literal["refuse", "repair", "in step"] = "in step"
    if drift:
        action = "refuse" if any(item.hazard for item in drift) else "repair"
    return TopicChange(topic=topic, action=action, drift=drift, note=note)


def _drift(topic: Topic, found: TopicMetadata, settings: dict[str, str]) -> Iterator[Drift]:
    if len(found.partitions) != topic.partitions:
        fewer = topic.partitions < len(found.partitions)
        hazard = "Kafka cannot remove partitions" if fewer else "keys would move to other partitions"
        yield Drift(
            setting="partitions", actual=str(len(found.partitions)), declared=str(topic.partitions), hazard=hazard
        )
    factors = sorted({len(partition.replicas) for partition in found.partitions.values()})
    if factors != [topic.replication_factor]:
        yield Drift(
            setting="replication factor",
            actual=", ".join(map(str, factors)),
            declared=str(topic.replication_factor),
            hazard="a reassignment of replicas: kafka-reassign-partitions.sh",
        )
    for setting, declared in _settings(topic).items():
        actual = settings.get(setting, "unknown to this broker")
        if _normal(actual) != _normal(declared):
            loses = setting == "cleanup.policy" and not _policies(declared) < _policies(actual)
            hazard = "records that are kept now would be removed" if loses else ""
            yield Drift(setting=setting, actual=actual, declared=declared, hazard=hazard)


def _policies(setting: str) -> set[str]:
    return set(setting.replace(" ", "").split(","))


def _normal(setting: str) -> str:
    return ",".join(sorted(_policies(setting)))


def _describe(admin: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    answers = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    return {
        resource.name: {entry.name: entry.value or "" for entry in answer.result().values()}
        for resource, answer in answers.items()
    }


def _create(admin: AdminClient, topics: list[Topic]) -> None:
    if not topics:
        return
    new = [
        NewTopic(topic.name, topic.partitions, topic.replication_factor, config=_settings(topic)) for topic in topics
    ]
    for answer in admin.create_topics(new, operation_timeout=REQUEST_TIMEOUT_S).values():
        answer.result()


def _repair(admin: AdminClient, changes: list[TopicChange]) -> None:
    if not changes:
        return
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            change.topic.name,
            incremental_configs=[
                ConfigEntry(
                    drift.setting,
                    drift.declared,
                    source=ConfigSource.UNKNOWN_CONFIG,
                    incremental_operation=AlterConfigOpType.SET,
                )
                for drift in change.drift
            ],
        )
        for change in changes
    ]
    for answer in admin.incremental_alter_configs(resources, request_timeout=REQUEST_TIMEOUT_S).values():
        answer.result()
