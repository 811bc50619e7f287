"""What tasks say of the schema registry reaches the driver as an error of ours, though Spark tells it as text."""

from __future__ import annotations

import pytest

from recount.kafka.spark_source import refusals_told
from recount.runtime.errors import RegistryRefused, RegistryUnreachable, Terminal


@pytest.mark.parametrize("raised", [RegistryUnreachable("ConnectError for schema 3"), RegistryRefused("no address")])
def test_a_registry_that_keeps_tasks_from_schemas_is_told_as_what_it_is(raised: Exception) -> None:
    name = f"recount.runtime.errors.{type(raised).__name__}"
    said = f"Job aborted: PythonException: Traceback (most recent call last):\n  File a\n{name}: {raised}\n"
    with pytest.raises(type(raised)) as told, refusals_told():
        raise RuntimeError(said)
    assert str(told.value) == str(raised)


def test_a_record_whose_time_spark_cannot_hold_is_named_by_its_place() -> None:
    """Streams ended with it at each start, and audits of the topic too, with a stack trace and no remedy."""
    said = (
        "An error occurred while calling o45081.collectToPython.\n: org.apache.spark.sql.kafka010."
        "KafkaIllegalStateException: Record at topic my.orders partition 1 offset 217 has timestamp value "
        "4611686018427387904 that overflows when converting to Spark's microsecond-precision TimestampType.\n"
    )
    with pytest.raises(Terminal) as told, refusals_told():
        raise RuntimeError(said)
    assert told.value.given == "my.orders-1@217: 4,611,686,018,427,387,904 ms"


def test_what_spark_says_of_anything_else_stays_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="no memory"), refusals_told():
        raise RuntimeError("no memory")
