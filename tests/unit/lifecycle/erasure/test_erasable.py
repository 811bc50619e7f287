"""From which streams a key can be erased; others are refused with the operator that stands in the way."""

from __future__ import annotations

import pytest

from recount.declare.aggregates import count, reduce, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, tumbling
from recount.lifecycle.erasure.holdings import objection_to, text_in

VISITS = Topic(name="visits", key="who", value=RecordSchema.of(note=STRING, fee=DOUBLE, room=LONG))
OUT = Topic(name="out", key="who")


def named(sink: object) -> Topology:
    return Topology(name="visits-out", sinks=[sink])  # type: ignore[list-item]


def test_a_single_aggregation_and_a_stream_without_state_can_forget_a_key() -> None:
    by_window = stream(VISITS).windowed_by(tumbling("5 min", grace="60 s")).aggregate(n=count(), fee=total("fee"))
    assert objection_to(named(by_window.emit_final().to(OUT))) is None
    assert objection_to(named(stream(VISITS).filter(col("fee") > 0).select_key(room=col("room")).to(OUT))) is None


def test_a_key_cannot_be_erased_from_a_stream_that_no_audit_judges() -> None:
    shown = Topology(name="shown", actions=[stream(VISITS).foreach(print)])
    assert "recount reset" in str(objection_to(shown))


def visits_by_session(flow: RecordStream) -> RecordStream:
    return flow.windowed_by(session("5 min", grace="60 s")).aggregate(n=count()).emit_final()


ROOMS = Topic(name="rooms", key="room", value=RecordSchema.of(floor=LONG))
FIRST = stream(VISITS).deduplicate("note", horizon="1 h")
BY_ROOM = (
    stream(VISITS)
    .select_key(room=col("room"))
    .windowed_by(tumbling("5 min", grace="60 s"))
    .aggregate(n=count())
    .emit_final()
)
SAME_KEY = FIRST.select_key(who=col("__key")).with_fields(fee=col("fee") * 2.0).select_key(patient=col("who"))


@pytest.mark.parametrize(
    "flow",
    [
        visits_by_session(stream(VISITS)),
        BY_ROOM,
        visits_by_session(SAME_KEY),
        SAME_KEY.select(patient=col("who"), other=col("note")),
        table(VISITS),
        table(VISITS).filter(col("fee") > 0).group_by(room=col("room")).aggregate(n=count()),
        stream(VISITS).join_table(stream(ROOMS).select_key(room=col("floor")).to_table(), by=col("room")),
        FIRST.select_key(room=col("room")).filter(col("room") > 1),
        stream(VISITS).in_order(grace="1 min").aggregate(n=count()),
    ],
)
def test_operators_that_remember_under_one_key_can_forget_it(flow: RecordStream | Table) -> None:
    assert objection_to(named(flow.to(OUT))) is None


@pytest.mark.parametrize(
    ("flow", "operator"),
    [
        (visits_by_session(FIRST.select_key(room=col("room"))), "per room, session"),
        (visits_by_session(SAME_KEY.select_key(who=col("patient").upper())), "per who, session"),
        (SAME_KEY.with_fields(patient=col("note")), "with patient = note"),
        (SAME_KEY.select(patient=col("note")), "select patient = note"),
        (BY_ROOM.select_key(n=col("n")).deduplicate("n", horizon="1 h"), "first of each n"),
        (
            stream(VISITS).join_table(
                FIRST.select("note").select_key(who=col("note")).select(said=col("note")).to_table(), as_of="arrival"
            ),
            "[table]",
        ),
        (stream(VISITS).aggregate(n=count()).group_by(n=col("n")).aggregate(of=count()), "of rows by n = n"),
        (stream(VISITS).deduplicate("fee", horizon="1 h"), "first of each fee"),
        (stream(VISITS).select_key(room=col("room")).aggregate(n=reduce("fee", max)), "from where it stood"),
    ],
)
def test_what_was_made_of_a_key_under_another_is_refused_by_name(flow: RecordStream | Table, operator: str) -> None:
    assert operator in str(objection_to(named(flow.to(OUT))))


def test_a_key_is_read_as_the_type_of_the_key() -> None:
    [by_room] = named(stream(VISITS).select_key(room=col("room")).to(OUT)).written
    [by_name] = named(stream(VISITS).to(OUT)).written
    assert (text_in(by_room, "7"), text_in(by_room, "-7"), text_in(by_name, "007")) == ("7", "-7", "007")
    assert [text_in(by_room, key) for key in ("zoe", "007", "+7", "-0", "7.0", str(2**63))] == [None] * 6
