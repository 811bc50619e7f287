"""From which streams a key can be erased; others are refused with the operator that stands in the way."""

from __future__ import annotations

from recount.core.aggregates import count, total
from recount.core.expressions import col
from recount.core.schema import DOUBLE, LONG, STRING, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import Topology, stream, table
from recount.core.windows import session, tumbling
from recount.erasure.erasable import objection_to, text_in

VISITS = Topic(name="visits", key="who", value=RecordSchema.of(note=STRING, fee=DOUBLE, room=LONG))
OUT = Topic(name="out", key="who")


def named(sink: object) -> Topology:
    return Topology(name="visits-out", sinks=[sink])  # type: ignore[list-item]


def test_a_single_aggregation_and_a_stream_without_state_can_forget_a_key() -> None:
    by_window = stream(VISITS).windowed_by(tumbling("5 min", grace="60 s")).aggregate(n=count(), fee=total("fee"))
    assert objection_to(named(by_window.emit_final().to(OUT))) is None
    assert objection_to(named(stream(VISITS).filter(col("fee") > 0).select_key(room=col("room")).to(OUT))) is None


def test_what_keeps_rows_that_are_not_found_by_key_is_refused_by_name() -> None:
    by_session = stream(VISITS).windowed_by(session("5 min", grace="60 s")).aggregate(n=count())
    assert "session" in str(objection_to(named(by_session.emit_final().to(OUT))))
    assert "remembers rows" in str(objection_to(named(table(VISITS).to(OUT))))


def test_a_key_is_read_as_the_type_of_the_key() -> None:
    [by_room] = named(stream(VISITS).select_key(room=col("room")).to(OUT)).written
    [by_name] = named(stream(VISITS).to(OUT)).written
    assert (text_in(by_room, "7"), text_in(by_room, "-7"), text_in(by_name, "007")) == ("7", "-7", "007")
    assert [text_in(by_room, key) for key in ("zoe", "007", "+7", "-0", "7.0", str(2**63))] == [None] * 6
