"""What the benchmark calls exact is what the reference interpreter makes of the flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from bench.flow import PARTITIONS, Flow, SeededFlow
from bench.jobs import (
    COUNTS_PER_USER,
    GRACE_MS,
    ORDERS_WITH_PAYMENTS,
    REVENUE_BY_REGION,
    ROUTING_BY_REGION,
    SESSIONS_PER_USER,
    Job,
)
from bench.payments import PaidOrders
from bench.results_topic import VisibleResults

from recount.core.interpreter.driver import TopologyDriver
from recount.core.output import encode_key, encode_value

_FLOW = Flow(topic="orders", records=3_000, users=32, per_second=3, late_every=50, beats=100)
_SHORT = replace(_FLOW, records=1_200)
_PAID = PaidOrders(orders=Flow(topic="orders", records=2_000, per_second=2, late_every=50))
_OUTPUT = "results"


class _Log:
    """Takes the records of a flow in place of a broker, and hands them out as they come."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def produce(self, topic: str, value: bytes, *, key: str, partition: int, timestamp: int) -> None:
        self.records.append((topic, {"value": value, "key": key, "partition": partition, "timestamp_ms": timestamp}))

    def flush(self) -> None:
        """Nothing waits."""


@dataclass(frozen=True)
class _Message:
    """A result as a consumer gets it; the one without a key ends a partition."""

    of_topic: str
    of_partition: int = 0
    of_key: bytes | None = None
    of_value: bytes | None = None

    def error(self) -> _Message | None:
        return None if self.of_value else self

    def code(self) -> int:
        return -191  # the end of a partition

    def topic(self) -> str:
        return self.of_topic

    def partition(self) -> int:
        return self.of_partition

    def key(self) -> bytes | None:
        return self.of_key

    def value(self) -> bytes | None:
        return self.of_value


class _Consumer:
    """Hands out ``messages`` and closes."""

    def __init__(self, messages: Sequence[_Message]) -> None:
        self._messages = messages

    def consume(self, _most: int, _timeout_s: float) -> Sequence[_Message]:
        return self._messages

    def close(self) -> None:
        """Nothing is open."""


def _read(job: Job, messages: Sequence[_Message]) -> VisibleResults:
    """What is visible once ``messages`` and the ends of all topics have been read."""
    topics = [topic.name for topic in job.outputs(_OUTPUT)]
    ends = [_Message(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    consumer: Any = _Consumer([*messages, *ends])
    visible = VisibleResults(consumer=consumer, output=_OUTPUT, routes=job.routes)
    visible.read_all()
    return visible


def _written_by_the_reference(job: Job, flow: SeededFlow) -> list[_Message]:
    log: Any = _Log()
    flow.produce(log)
    topology = job.topology("bench", "orders", _OUTPUT)
    driver = TopologyDriver(topology, partitions=dict.fromkeys(flow.topics, PARTITIONS))
    with driver.batch():
        for topic, record in log.records:
            driver.pipe(topic, **record)
    return [
        _Message(topic.name, of_key=encode_key(result.key), of_value=encode_value(result.value))
        for topic in job.outputs(_OUTPUT)
        for result in driver.read(topic.name)
    ]


@pytest.mark.parametrize(
    ("job", "flow"),
    [
        (REVENUE_BY_REGION, _SHORT),
        (COUNTS_PER_USER, _SHORT),
        (SESSIONS_PER_USER, _SHORT),
        (
            SESSIONS_PER_USER,
            replace(_FLOW, records=2_400, users=4),
        ),  # so busy that some late records join a session that is open
        (ORDERS_WITH_PAYMENTS, _PAID),
        (ROUTING_BY_REGION, _SHORT),
    ],
)
def test_the_results_of_the_reference_count_as_many_records_as_the_job_says(job: Job, flow: SeededFlow) -> None:
    exact = job.exact(flow, GRACE_MS)

    visible = _read(job, _written_by_the_reference(job, flow))

    assert visible.counted == exact
    assert visible.repeated == 0


def test_some_records_of_every_flow_do_not_count() -> None:
    assert 0 < COUNTS_PER_USER.exact(_FLOW, GRACE_MS) < _FLOW.records
    assert 0 < SESSIONS_PER_USER.exact(_FLOW, GRACE_MS) < _FLOW.records - _FLOW.beats * PARTITIONS
    paid_in_time = ORDERS_WITH_PAYMENTS.exact(_PAID, GRACE_MS)
    assert 0 < paid_in_time < len(_PAID.paid) < _PAID.orders.records


def test_a_late_record_that_joins_an_open_session_is_on_time() -> None:
    as_sessions_of_their_own = replace(_FLOW, users=3_000)

    late = _FLOW.records - _FLOW.beats * PARTITIONS - SESSIONS_PER_USER.exact(replace(_FLOW, users=4), GRACE_MS)

    assert late < _FLOW.records - _FLOW.beats * PARTITIONS - SESSIONS_PER_USER.exact(as_sessions_of_their_own, GRACE_MS)


def test_the_last_result_of_a_key_and_window_counts_and_the_others_are_repeated() -> None:
    results = [b'{"window_start":0,"orders":2}', b'{"window_start":5,"orders":1}', b'{"window_start":0,"orders":3}']

    visible = _read(COUNTS_PER_USER, [_Message(_OUTPUT, of_key=b"user-1", of_value=result) for result in results])

    assert (visible.counted, visible.repeated) == (4, 1)


@pytest.mark.parametrize(("topic", "counted"), [("results-eu", 1), ("results-us", 0), ("results-rest", 0)])
def test_a_record_counts_in_the_topic_of_its_region_only(topic: str, counted: int) -> None:
    value = b'{"region":"EU","amount":1.00}'

    assert _read(ROUTING_BY_REGION, [_Message(topic, of_key=b"0000000001", of_value=value)]).counted == counted


@pytest.mark.parametrize("region", ["null", '"ANZ"'])
def test_a_record_of_no_region_or_another_belongs_to_the_rest(region: str) -> None:
    message = _Message("results-rest", of_key=b"0000000001", of_value=b'{"region":%s}' % region.encode())

    assert _read(ROUTING_BY_REGION, [message]).counted == 1
