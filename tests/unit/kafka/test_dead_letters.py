"""A dead letter is the bad record as it was, and says why and whence."""

from __future__ import annotations

from recount.kafka import dead_letters
from recount.kafka.dead_letters import dead_letter


def test_a_dead_letter_keeps_the_record_and_names_its_origin() -> None:
    letter = dead_letter(
        destination="orders.dlq",
        stream="recount.revenue",
        topic="orders",
        partition=3,
        offset=42,
        timestamp_ms=-1,
        key=b"\xff",
        value=b"{not json",
        reason="undecodable",
        error="Expecting property name",
        headers=[("trace", b"1")],
    )
    assert (letter.topic, letter.key, letter.value) == ("orders.dlq", b"\xff", b"{not json")
    assert letter.timestamp_ms is None
    assert dict(letter.headers) == {
        "trace": b"1",
        dead_letters.REASON: b"undecodable",
        dead_letters.ERROR: b"Expecting property name",
        dead_letters.STREAM: b"recount.revenue",
        dead_letters.SOURCE_TOPIC: b"orders",
        dead_letters.SOURCE_PARTITION: b"3",
        dead_letters.SOURCE_OFFSET: b"42",
        dead_letters.SOURCE_TIMESTAMP: b"-1",
    }
