"""The id that Kafka gives a topic when it is made: one of the same name that is made later has another."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from recount.core.topic_ids import TopicIds
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure

_NONE = "A" * 22
"""What brokers say that know no ids, those before Kafka 2.8 for instance."""


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
