"""What may stand below results that can be withdrawn: told where the topology is declared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import Windows, session, tumbling
from recount.runtime.errors import InvalidDeclaration

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(user=STRING, page=STRING))
USERS = Topic(name="users", key="user", value=RecordSchema.of(user=STRING, tier=STRING))
OUT = Topic(name="out", key="user")


def counted(rows: RecordStream, windows: Windows) -> RecordStream:
    return rows.windowed_by(windows).aggregate(n=count()).emit_final()


SESSIONS = counted(stream(CLICKS), session("5 s", grace="0 s"))
CANNOT_FOLLOW: dict[str, Callable[[RecordStream], RecordStream | Table]] = {
    "key": lambda rows: rows.select_key(n=col("n")),
    "map": lambda rows: rows.map(lambda row: row, n=LONG),
    "merge": lambda rows: rows.select("n").merge(stream(CLICKS).select(n=1)),
    "join": lambda rows: rows.select("n").join(stream(CLICKS).select("page"), before="1 s", after="1 s", grace="0 s"),
    "lookup": lambda rows: rows.join_table(table(USERS).select("tier")),
    "first": lambda rows: rows.deduplicate("n", horizon="1 min"),
    "table": lambda rows: rows.to_table(),
}


@pytest.mark.parametrize("above", [SESSIONS, counted(SESSIONS.filter(col("n") > 1), tumbling("1 h", grace="0 s"))])
@pytest.mark.parametrize("below", CANNOT_FOLLOW)
def test_what_cannot_take_back_what_it_made_is_refused(below: str, above: RecordStream) -> None:
    with pytest.raises(InvalidDeclaration, match="can be withdrawn after it has left"):
        Topology(name="sessions", sinks=[CANNOT_FOLLOW[below](above).to(OUT)])


def test_a_sink_must_tell_which_window_is_withdrawn() -> None:
    with pytest.raises(InvalidDeclaration, match="window_end and window_start"):
        Topology(name="sessions", sinks=[SESSIONS.select("n").to(OUT)])


@pytest.mark.parametrize("below", CANNOT_FOLLOW)
def test_results_that_stay_may_be_followed_by_anything(below: str) -> None:
    hours = counted(stream(CLICKS), tumbling("1 h", grace="0 s"))
    assert Topology(name="hours", sinks=[CANNOT_FOLLOW[below](hours).to(OUT)])


REKEYED: dict[str, Callable[[RecordStream], RecordStream]] = {
    "a key of another field": lambda rows: rows.with_fields(user=col("n")),
    "a selected key": lambda rows: rows.select("window_start", "window_end", user=col("n")),
    "another window": lambda rows: rows.with_fields(window_end=col("n")),
    "windows over another key": lambda rows: counted(rows.with_fields(user=col("n")), tumbling("1 h", grace="0 s")),
}


@pytest.mark.parametrize("below", REKEYED)
def test_key_and_window_of_a_result_that_can_be_withdrawn_stay_as_they_are(below: str) -> None:
    """The deletion went out under the key that a row without fields has, and the result stayed."""
    sessions = counted(stream(CLICKS).select_key(user=col("page")), session("5 s", grace="0 s"))
    with pytest.raises(InvalidDeclaration, match="computed again"):
        Topology(name="sessions", sinks=[REKEYED[below](sessions).to(OUT)])
    hours = counted(stream(CLICKS).select_key(user=col("page")), tumbling("1 h", grace="0 s"))
    assert Topology(name="hours", sinks=[REKEYED[below](hours).to(OUT)])
    kept = sessions.select("window_start", "window_end", "n", user=col("user"), more=col("n")).with_fields(
        most=col("n")
    )
    assert Topology(name="kept", sinks=[kept.to(OUT)])
