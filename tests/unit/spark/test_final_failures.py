"""After which failures a driver is not launched again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from recount.core.errors import RecountError, Terminal, Transient
from recount.kafka.connection import failure
from recount.kafka.offsets import MissingTopics
from recount.spark.resuming import OutOfStep
from recount.spark.runner import is_final


def of_kafka(code: int, *, fatal: bool) -> RecountError:
    """As it is raised for an error of Kafka's client."""
    error = KafkaException(KafkaError(code, "said so", fatal))
    problem = failure("committing", error)
    problem.__cause__ = error
    return problem


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (OutOfStep("tables of another time"), True),
        (Terminal("3 bad record(s)"), True),
        (Transient("no brokers"), False),
        (MissingTopics("revenue"), False),
        (of_kafka(KafkaError.PRODUCER_FENCED, fatal=True), False),
        (of_kafka(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), False),
        (OSError(28, "No space left on device"), False),
        (KeyboardInterrupt(), False),
    ],
    ids=lambda found: type(found).__name__,
)
def test_only_a_failure_that_no_relaunch_can_help_is_final(error: BaseException, final: bool) -> None:
    assert is_final(error) is final
