"""Who has a transaction open on a partition, asked by Kafka's Java client: the one for Python cannot ask that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from recount.kafka.offsets import Partition

_LOG = logging.getLogger(__name__)
_CLIENT = "kafka."
_PATIENCE_S = 10


def producer_at(session: SparkSession, kafka: Mapping[str, str], place: Partition, offset: int) -> str | None:
    """The producer whose open transaction begins at ``offset`` of ``place``, in words; None where nobody can say.

    Its transactional.id is named where this user may see it. ``kafka`` are the options of Spark's Kafka source.
    """
    jvm: Any = session._jvm
    try:
        properties = jvm.java.util.Properties()
        for name, value in kafka.items():
            properties.put(name.removeprefix(_CLIENT), value)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        try:
            found = _producer_at(jvm, admin, place, offset)
            return None if found is None else _worded(found, _transactional_id(jvm, admin, found))
        finally:
            admin.close(jvm.java.time.Duration.ofSeconds(_PATIENCE_S))
    except Exception as error:
        _LOG.info("who has a transaction open at %s-%s@%d is not known: %s", *place, offset, error)
        return None


def _producer_at(jvm: Any, admin: Any, place: Partition, offset: int) -> int | None:
    asked = jvm.org.apache.kafka.common.TopicPartition(*place)
    answer = admin.describeProducers(jvm.java.util.Collections.singletonList(asked)).partitionResult(asked)
    for producer in answer.get(_PATIENCE_S, jvm.java.util.concurrent.TimeUnit.SECONDS).activeProducers():
        if producer.currentTransactionStartOffset().orElse(-1) == offset:
            return int(producer.producerId())
    return None


def _transactional_id(jvm: Any, admin: Any, producer: int) -> str | None:
    """A user that may not see the id is given none."""
    options = jvm.org.apache.kafka.clients.admin.ListTransactionsOptions()
    # Py4J would make an Integer of a number that fits one
    as_long = jvm.java.util.stream.LongStream.range(producer, producer + 1).boxed()
    options.filterProducerIds(as_long.collect(jvm.java.util.stream.Collectors.toSet()))
    listed = admin.listTransactions(options).all().get(_PATIENCE_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
    return next((str(one.transactionalId()) for one in listed), None)


def _worded(producer: int, transactional_id: str | None) -> str:
    return f"producer {producer}" + (f" (transactional.id {transactional_id})" if transactional_id else "")
