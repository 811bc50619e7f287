"""How the rows of a sink are told apart follows from the declaration alone."""

from __future__ import annotations

import pytest

from recount.audit.compare.identity import identity_of
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, WindowedTable
from recount.declare.registry import declared
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Written, stream, table
from recount.declare.windows import session
from recount.recompute.single_flow import NotRecomputable
from recount.tables.places import ageing

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))
USERS = Topic(name="users", key="user", value=RecordSchema.of(name=STRING))
SCORES = Topic(name="scores", key="user", value=RecordSchema.of(score=LONG))
OUT = Topic(name="out", key="user")


def visits() -> WindowedTable:
    return stream(CLICKS).windowed_by(session("5 min", grace="1 min")).aggregate(clicks=count())


def users() -> Table:
    return table(USERS)


def scores() -> Table:
    return table(SCORES)


def test_the_key_that_records_came_with_is_judged_where_it_is_published() -> None:
    clicks = stream(CLICKS)
    assert list(identity_of(clicks.to(OUT)).fields) == ["page", "__key"]
    assert list(identity_of(clicks.select_key(by=col("page")).to(OUT)).fields) == ["page", "by"]


@pytest.mark.parametrize(
    ("flow", "is_latest", "has_bounds", "has_origin", "is_dense"),
    [
        (stream(CLICKS).filter(col("page") == "a"), False, False, True, False),
        (stream(CLICKS).join_table(users()), False, False, True, False),
        (visits().emit_final(), True, True, False, True),
        (visits().emit_final().filter(col("clicks") > 1), True, True, False, False),
        (visits().emit_final().select_key(clicks=col("clicks")), False, True, False, False),
        (visits().emit_final().select(n=col("clicks")), False, False, False, False),
        (visits().emit_each_batch(), True, True, False, True),
        (users(), True, False, False, True),
        (table(USERS, versioned=True), True, False, False, False),
        (users().outer_join(scores()), True, False, False, True),
        (users().outer_join(scores().filter(col("score") > 1)), True, False, False, False),
        (users().group_by(name=col("name")).aggregate(users=count()), True, False, False, False),
        (users().to_stream().filter(col("name") == "a"), False, False, True, False),
        (stream(CLICKS).aggregate(clicks=count()), True, False, False, True),
    ],
)
def test_rows_are_told_apart_by_what_made_them(
    flow: RecordStream | Table, is_latest: bool, has_bounds: bool, has_origin: bool, is_dense: bool
) -> None:
    found = identity_of(flow.to(OUT))
    assert (found.is_latest, found.has_bounds, found.has_origin, found.is_dense) == (
        is_latest,
        has_bounds,
        has_origin,
        is_dense,
    )


def test_updates_without_their_window_cannot_be_told_apart() -> None:
    with pytest.raises(NotRecomputable) as refused:
        identity_of(visits().emit_each_batch().select(n=col("clicks")).to(OUT))
    assert refused.value.remedy


def test_updates_that_a_suppression_may_hold_are_judged_where_the_time_of_a_row_never_falls() -> None:
    for held in (visits().emit_after("1 min"), table(USERS, versioned=True).emit_after("1 min")):
        assert identity_of(held.to(OUT)).suppression is held.node


@pytest.mark.parametrize(
    "flow",
    [
        users().emit_after("1 min"),
        users().outer_join(scores()).emit_after("1 min"),
        users().emit_after("1 min").join(scores()),
    ],
    ids=["unversioned table", "join of tables", "join below"],
)
def test_updates_of_which_nobody_can_say_whether_they_have_left_are_refused(flow: Table) -> None:
    with pytest.raises(NotRecomputable) as refused:
        identity_of(flow.to(OUT))
    assert refused.value.remedy


@pytest.mark.parametrize("written", [node for topology in declared().topologies.values() for node in topology.written])
def test_rows_get_old_by_what_an_audit_tells_them_apart_by(written: Written) -> None:
    identity = identity_of(written)
    agrees = {
        "window": identity.has_bounds,
        "table": identity.is_latest and not identity.has_bounds,
        "record": identity.has_origin,
        None: True,
    }
    assert agrees[ageing(written)]
