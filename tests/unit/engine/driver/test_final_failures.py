"""After which failures a driver is not launched again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from recount.engine.driver.runner import is_final
from recount.engine.driver.stream_reports import NotAlone
from recount.engine.source.resumption import OutOfStep
from recount.kafka.connection import failure
from recount.kafka.offsets import MissingTopics
from recount.runtime.errors import RecountError, Terminal, Transient


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
        (NotAlone("group shop has a driver"), False),
        (of_kafka(KafkaError.PRODUCER_FENCED, fatal=True), False),
        (of_kafka(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, fatal=True), False),
        (of_kafka(KafkaError._UNKNOWN_PARTITION, fatal=False), False),
        (OSError(28, "No space left on device"), False),
        (KeyboardInterrupt(), False),
    ],
    ids=lambda found: type(found).__name__,
)
def test_only_a_failure_that_no_relaunch_can_help_is_final(error: BaseException, final: bool) -> None:
    assert is_final(error) is final


FINAL = {
    *("MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD"),
    *("UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNSUPPORTED_COMPRESSION_TYPE", "INVALID_REQUIRED_ACKS"),
    *("OFFSET_METADATA_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE", "INVALID_GROUP_ID"),
    *("TOPIC_EXCEPTION", "INVALID_PARTITIONS", "INVALID_CONFIG", "POLICY_VIOLATION", "TOPIC_DELETION_DISABLED"),
    *("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
    *("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"),
    *("ILLEGAL_SASL_STATE", "SECURITY_DISABLED", "UNACCEPTABLE_CREDENTIAL", "INVALID_PRINCIPAL_TYPE"),
    "UNSUPPORTED_VERSION",
}
BROKERS_SAY = {
    name: code for name, code in vars(KafkaError).items() if name.isupper() and isinstance(code, int) and code > 0
}


@pytest.mark.parametrize("name", sorted(BROKERS_SAY))
def test_what_brokers_refuse_of_any_driver_is_final_and_nothing_else(name: str) -> None:
    """The client marks none of these codes as final: a driver was launched again for a record that is too large."""
    assert is_final(of_kafka(BROKERS_SAY[name], fatal=False)) is (name in FINAL)
