"""What is assumed of the other engines where the log does not say it, in sentences that go with every answer."""

from __future__ import annotations

from collections.abc import Sequence

from recount.core.durations import readable
from recount.core.windows import SessionWindows
from recount.lens.engine_clocks import KAFKA_STREAMS
from recount.lens.modelled import Modelled


def assumed(engine: str, modelled: Modelled, keys_in_several_partitions: int) -> Sequence[str]:
    """The sentences about ``engine``."""
    grace = readable(modelled.windows.grace_ms)
    if engine == KAFKA_STREAMS:
        return _of_kafka_streams(modelled, grace, keys_in_several_partitions)
    return _of_structured_streaming(modelled, grace)


def _of_kafka_streams(modelled: Modelled, grace: str, keys_in_several_partitions: int) -> Sequence[str]:
    found = [f"a grace of {grace}, and tasks that never restart: one that does begins with no stream time"]
    if modelled.is_spread_by_key:
        found.append(
            "the records of a batch come before those of the next one; in which order the partitions of one batch pass "
            "the repartition topic is open, so the numbers are bounds over all such orders"
        )
    else:
        found.append("records keep their key, so a task reads one partition, and its stream time is in the log")
        if keys_in_several_partitions:
            found.append(
                f"{keys_in_several_partitions:,} keys lie in several partitions: Kafka Streams has a result of each "
                "partition, which are taken together here"
            )
    if isinstance(modelled.windows, SessionWindows):
        found.append("a store that keeps every session that a record can still join")
    return found


def _of_structured_streaming(modelled: Modelled, grace: str) -> Sequence[str]:
    found = [
        f"a watermark with a delay of {grace}, on all partitions, set where the topic is read",
        "fewest dropped: batches follow without a pause, and a batch is judged by those before the one before it; most "
        "dropped: Spark runs a batch without data after each, and all batches before count",
    ]
    if isinstance(modelled.windows, SessionWindows):
        found.append("sessions in the output mode append: one that has ended by the watermark is joined no more")
    return found
