"""Declared topics on the cluster: compared, created, repaired; every topic by itself, problems are told at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
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

from recount.core.errors import RecountError, Terminal, Transient
from recount.core.quantities import quantity
from recount.core.settings import Profile
from recount.core.topics import Topic
from recount.kafka.connection import REQUEST_TIMEOUT_S, failure
from recount.kafka.topic_drift import Found, TopicChange, change_of, settings_of


class TopicsNotInStep(Terminal):
    """Topics that need a person; ``problems`` says what is wrong with each. All others were handled."""

    def __init__(self, problems: Mapping[str, RecountError]) -> None:
        self.problems = problems
        super().__init__(
            f"{quantity(len(problems), 'topic is', 'topics are')} not as declared; all others were handled",
            given={name: str(problem) for name, problem in problems.items()},
            expected="every topic there, our own with the declared settings",
            remedy="see what is said of each topic",
        )


def plan(
    admin: AdminClient, topics: Iterable[Topic], profile: Profile, *, creates_others: bool = False
) -> list[TopicChange]:
    """Compare ``topics`` with the cluster; changes nothing. A problem of one topic does not hide the others.

    See ``change_of`` for the rules.
    Raises ``Transient`` when the brokers do not answer at all.
    """
    try:
        cluster = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise failure("describing the topics", error) from error
    wanted = list(topics)
    there = {topic.name: cluster.topics[topic.name] for topic in wanted if topic.name in cluster.topics}
    found = _found(admin, there) | _hidden(admin, [topic.name for topic in wanted if topic.name not in there])
    return [
        change_of(topic, found.get(topic.name), profile, len(cluster.brokers), creates_others=creates_others)
        for topic in wanted
    ]


def apply(admin: AdminClient, changes: Iterable[TopicChange]) -> None:
    """Create and repair what is planned; raises what ``require_none`` raises of the problems that are left."""
    require_none(carry_out(admin, changes))


def carry_out(admin: AdminClient, changes: Iterable[TopicChange]) -> dict[str, RecountError]:
    """Create and repair what is planned; the problems that are left, by topic.

    A topic that is refused, unknown or fails does not keep the others from being handled.
    """
    changes = list(changes)
    problems = {change.topic.name: change.problem for change in changes if change.problem is not None}
    problems |= _create(admin, [change.topic for change in changes if change.action == "create"])
    return problems | _repair(admin, [change for change in changes if change.action == "repair"])


def require_none(problems: Mapping[str, RecountError]) -> None:
    """Raise ``Transient`` where all ``problems`` of topics may pass by themselves, else ``TopicsNotInStep``."""
    if not problems:
        return
    if all(isinstance(problem, Transient) for problem in problems.values()):
        raise Transient(
            f"{quantity(len(problems), 'topic')} could not be brought in step; all others were handled",
            given={name: str(problem) for name, problem in problems.items()},
            remedy="retry; see that the brokers are up",
        )
    raise TopicsNotInStep(problems)


def _found(admin: AdminClient, there: Mapping[str, TopicMetadata]) -> dict[str, Found | RecountError]:
    found: dict[str, Found | RecountError] = {}
    for name, topic in there.items():
        if topic.error is not None:
            found[name] = failure(f"describing topic {name}", topic.error)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in there if name not in found]
    answers = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S) if resources else {}
    for resource, answer in answers.items():
        partitions = there[resource.name].partitions.values()
        try:
            found[resource.name] = Found(
                partitions=len(partitions),
                factors=tuple(sorted({len(partition.replicas) for partition in partitions})),
                settings={entry.name: entry.value or "" for entry in answer.result().values()},
            )
        except KafkaException as error:
            found[resource.name] = failure(f"describing topic {resource.name}", error)
    return found


def _hidden(admin: AdminClient, names: list[str]) -> dict[str, RecountError]:
    """Of the topics that the cluster did not name, those that it does not let us see: it says so only if asked."""
    answers = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S) if names else {}
    problems = _problems("describing", answers)
    return {name: problem for name, problem in problems.items() if not _is_unknown(problem)}


def _create(admin: AdminClient, topics: list[Topic]) -> dict[str, RecountError]:
    if not topics:
        return {}
    new = [
        NewTopic(topic.name, topic.partitions, topic.replication_factor, config=settings_of(topic)) for topic in topics
    ]
    problems = _problems("creating", admin.create_topics(new, operation_timeout=REQUEST_TIMEOUT_S))
    return {name: problem for name, problem in problems.items() if not _is_there(problem)}


def _repair(admin: AdminClient, changes: list[TopicChange]) -> dict[str, RecountError]:
    if not changes:
        return {}
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
    answers = admin.incremental_alter_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    return _problems("repairing", {resource.name: answer for resource, answer in answers.items()})


def _is_there(problem: RecountError) -> bool:
    """Whether somebody created the topic since the plan was made, or the broker that was asked did not know it yet."""
    return _is_of(problem, KafkaError.TOPIC_ALREADY_EXISTS)


def _is_unknown(problem: RecountError) -> bool:
    return _is_of(problem, KafkaError.UNKNOWN_TOPIC_OR_PART)


def _is_of(problem: RecountError, code: int) -> bool:
    cause = problem.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() == code


def _problems(doing: str, answers: Mapping[str, Future[Any]]) -> dict[str, RecountError]:
    problems: dict[str, RecountError] = {}
    for name, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            problems[name] = failure(f"{doing} topic {name}", error)
            problems[name].__cause__ = error
    return problems
