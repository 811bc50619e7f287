"""A stream that stands still: no driver is at work, and one that wakes up can neither publish nor commit."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

from confluent_kafka import KafkaError, KafkaException

from recount.core.durations import readable
from recount.core.errors import Terminal
from recount.core.registry import Stream
from recount.kafka.connection import BACKFILL_SLOT, REQUEST_TIMEOUT_S, Connection, failure
from recount.kafka.lease import Lease
from recount.kafka.status import StatusBoard, StreamStatus
from recount.kafka.transaction import OutputTransaction


@contextmanager
def standstill(connection: Connection, stream: Stream) -> Iterator[tuple[OutputTransaction, OutputTransaction]]:
    """Holds the stream's lease and its outputs, as ``outputs_held`` does.

    Raises ``Terminal`` while a driver is at work: nothing is stopped here.
    """
    require_no_driver(connection, stream)
    with outputs_held(connection, stream.name) as outputs:
        yield outputs


@contextmanager
def outputs_held(connection: Connection, name: str) -> Iterator[tuple[OutputTransaction, OutputTransaction]]:
    """Holds the lease and the outputs of the stream ``name``, which may be declared no longer.

    Whatever a killed driver left behind is decided when this begins. Yields the outputs of the stream and of its
    backfills, by which they count what they have read and published.
    """
    lease = Lease.acquire(connection, name)
    with ExitStack() as held:
        held.callback(lease.release)
        of_stream = held.enter_context(closing(OutputTransaction(connection, name)))
        group = connection.backfill_group(name)
        of_backfills = OutputTransaction(connection, name, BACKFILL_SLOT, group=group)
        yield of_stream, held.enter_context(closing(of_backfills))


def require_no_driver(connection: Connection, stream: Stream) -> None:
    """Raise ``Terminal`` when the last driver has not said that it ended and was heard of lately.

    Its statuses are read uncommitted: an open transaction on the topic must not hide that it is at work.
    """
    with closing(StatusBoard(connection, isolation="read_uncommitted")) as board:
        status = board.of(stream.name)
    if status is None or status.is_over:
        return
    silent_ms = time.time_ns() // 1_000_000 - status.heartbeat_ms
    if silent_ms <= stream.health.heartbeat_age_ms:
        raise Terminal(
            f"stream {stream.name} is running",
            given=f"driver {status.driver_id} on {status.host}, heard of {readable(max(0, silent_ms))} ago",
            expected="a stream that was stopped",
            remedy="stop it (DAG stream_control, order stop), then call this again",
        )


def forget(connection: Connection, outputs: Sequence[OutputTransaction]) -> None:
    """Forget up to where a stream has read, and what its backfills have published: positions and consumer groups."""
    for output in outputs:
        output.forget_position()
    groups = [output.group for output in outputs]
    answers = connection.admin().delete_consumer_groups(groups, request_timeout=REQUEST_TIMEOUT_S)
    for group, answer in answers.items():
        try:
            answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise failure(f"deleting the group {group}", error) from error


def say_stopped(connection: Connection, name: str, version: int) -> None:
    """Let the last status of the stream be that it is stopped, at ``version``.

    What its last driver said is over: a driver that was killed, or has failed, cannot say so itself.
    """
    lease = Lease.acquire(connection, name)
    with ExitStack() as held:
        held.callback(lease.release)
        now_ms = time.time_ns() // 1_000_000
        lease.publish(
            StreamStatus(
                stream=name,
                driver_id=str(uuid.uuid4()),
                lease_epoch=lease.epoch,
                host=socket.gethostname(),
                pid=os.getpid(),
                state="stopped",
                started_at_ms=now_ms,
                heartbeat_ms=now_ms,
                stream_version=version,
            )
        )
