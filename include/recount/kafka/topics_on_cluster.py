"""Declared topics on the cluster, by Kafka's id of each: compared, created, repaired; and ``recount topics``.

Problems come at the end. A topic of the same name that is created later has another id.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Annotated, Any

import typer
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
from deltalake.exceptions import DeltaError
from rich.table import Table
from rich.text import Text

from recount.declare.operators.event_time import records_of
from recount.declare.operators.keys_and_fields import in_several_partitions
from recount.declare.output import oldest_kept_ms, will_be_deleted
from recount.declare.registry import declared
from recount.declare.schema import BadRecord, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing, failure
from recount.kafka.offsets import log_ranges, messages, partitions_of
from recount.kafka.topic_drift import Found, TopicChange, all_topics, change_of, settings_of
from recount.runtime.console import print_whole
from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.settings import Profile, Settings
from recount.runtime.times import clock_ms, quantity
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import TopicIds
from recount.tables.places import Tables

_NONE = "A" * 22
"""What brokers say that know no ids, those before Kafka 2.8 for instance."""
_DONE = {"create": "created", "repair": "repaired"}
_TRIED = 20
"""Offsets at the beginning of a partition that are read: the first can be a transaction marker, or no good record."""
WHAT_TO_DO = 'What to do: docs/changing.md, "Raising the number of partitions".'


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
    with failing("describing the topics"):
        cluster = admin.list_topics(timeout=REQUEST_TIMEOUT_S)
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
        raise Transient.of(
            "topics-not-in-step-yet",
            given={name: str(problem) for name, problem in problems.items()},
            topics=quantity(len(problems), "topic"),
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
    """Topics that the cluster did not name because it does not let us see them: it says so only if asked."""
    answers = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S) if names else {}
    problems = _problems("describing", answers)
    return {
        name: problem for name, problem in problems.items() if not _is_of(problem, KafkaError.UNKNOWN_TOPIC_OR_PART)
    }


def _create(admin: AdminClient, topics: list[Topic]) -> dict[str, RecountError]:
    if not topics:
        return {}
    new = [
        NewTopic(topic.name, topic.partitions, topic.replication_factor, config=settings_of(topic)) for topic in topics
    ]
    problems = _problems("creating", admin.create_topics(new, operation_timeout=REQUEST_TIMEOUT_S))
    return {name: problem for name, problem in problems.items() if not _is_of(problem, KafkaError.TOPIC_ALREADY_EXISTS)}


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


def ids_of(connection: Connection, topics: Iterable[str], timeout_s: float = REQUEST_TIMEOUT_S) -> TopicIds:
    """The ids of ``topics``, written as Kafka's own tools do; a topic that is not there, or has none, is left out.

    Raises ``NotAllowed`` where this user may not see one, ``Transient`` when the brokers do not answer in time.
    """
    asked = list(dict.fromkeys(topics))
    answers = connection.admin().describe_topics(TopicCollection(asked), request_timeout=timeout_s) if asked else {}
    found = {}
    for topic, answer in answers.items():
        try:
            found[topic] = str(answer.result().topic_id)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise failure(f"describing topic {topic}", error) from error
    return {topic: one for topic, one in found.items() if one != _NONE}


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
    """The change that each topic needs; with the ``problems`` that are left after the changes, what has been done."""
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


def short_lived_results(connection: Connection, topologies: Iterable[Topology]) -> Iterator[str]:
    """A warning for each sink and source of ``topologies`` of which Kafka would delete the first results at once.

    Topics that are not there, or that this user may not read, are passed over.
    """
    now_ms = clock_ms()
    topologies = list(topologies)
    topics = {source.topic.name: source.topic for topology in topologies for source in topology.sources}
    first_ms = cache(lambda name: _first_ms(connection, topics[name]))
    for topology in topologies:
        for sink in topology.written:
            oldest_ms = oldest_kept_ms(sink.topic, now_ms)
            for name in sorted(records_of(sink)) if oldest_ms is not None else ():
                at_ms = first_ms(name)
                if at_ms is not None and oldest_ms is not None and at_ms < oldest_ms:
                    yield will_be_deleted(sink.topic, name, at_ms)


def _first_ms(connection: Connection, topic: Topic) -> int | None:
    """The least event time of the first good records of the partitions of ``topic``; None where there are none."""
    try:
        found = log_ranges(connection, partitions_of(connection, topic.name))
        times = [
            _event_time_ms(topic, message.timestamp()[1], message.value())
            for place, span in found.items()
            for message in messages(
                connection, *place, span.start, min(span.start + _TRIED, span.end), "read_committed"
            )
        ]
    except RecountError:
        return None
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


def _event_time_ms(topic: Topic, timestamp_ms: int, value: bytes | None) -> int | None:
    if topic.event_time is None:
        return timestamp_ms
    if value is None or topic.is_of_registry or not isinstance(topic.value, RecordSchema):
        return None
    try:
        at_ms = topic.value.decode(value, (), None)[topic.event_time]
    except BadRecord:
        return None
    return at_ms if isinstance(at_ms, int) and at_ms >= 0 else None


def raised_partitions(
    changes: Iterable[TopicChange], topologies: Iterable[Topology], met: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """Lines about each topic with more partitions than are declared, or declared with more, or than streams have met.

    ``met`` says by stream and topic how many partitions the stream's last batch knew.
    """
    streams = list(topologies)
    for change in changes:
        topic = change.topic
        drift = next((one for one in change.drift if one.setting == "partitions"), None)
        there = int(drift.actual) if drift else topic.partitions
        readers = [one for one in streams if topic.name in {source.topic.name for source in one.sources}]
        told = [
            (stream, there if drift else met[stream.name, topic.name])
            for stream in readers
            if drift or met.get((stream.name, topic.name), there) < there
        ]
        if not told:
            continue
        declared = f", {drift.declared} are declared" if drift else ""
        yield f"{topic.name} has {there} partitions{declared}. Keys change partition where the number does:"
        for stream, before in told:
            knew = "" if drift else f" (its last batch knew {before} partitions)"
            lines = in_several_partitions(stream, topic.name)
            if lines:
                yield f"  {stream.name}{knew}: a key whose records lie in two partitions:"
                yield from (f"    {line}" for line in lines)
            else:
                yield f"  {stream.name}{knew}: no operator asks for the order of a key's records, nothing changes"
        yield WHAT_TO_DO


def partitions_met(topologies: Iterable[Topology], tables: Tables) -> dict[tuple[str, str], int]:
    """How many partitions the last batch of a stream knew, by stream and topic.

    Nothing of streams that never ran, nor of those whose tables cannot be read: an audit says what is wrong with them.
    """
    met: dict[tuple[str, str], int] = {}
    for stream in topologies:
        proofs = Proofs(state=tables.state(stream.name), moved_to=tables.ledger(stream.name))
        try:
            newest = proofs.newest()
        except (RecountError, DeltaError, OSError):
            continue
        for part in newest.partitions if newest else ():
            met[stream.name, part.topic] = met.get((stream.name, part.topic), 0) + 1
    return met
