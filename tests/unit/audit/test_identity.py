"""How the rows of a sink are told apart follows from the declaration, and so does what an audit will refuse."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from recount.audit.certificate.assembly import lookups_by_arrival
from recount.audit.compare.identity import identity_of
from recount.audit.cut.auditable import objections
from recount.cli import app
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table, WindowedTable
from recount.declare.registry import declared
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, Written, stream, table
from recount.declare.windows import hopping, session, tumbling
from recount.recompute.operators.log_order import NotRecomputable
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
    is_told = (found.is_latest, found.has_bounds, found.has_origin, found.is_dense)
    assert is_told == (is_latest, has_bounds, has_origin, is_dense)


def test_updates_that_a_suppression_may_hold_are_judged_where_the_time_of_a_row_never_falls() -> None:
    for held in (visits().emit_after("1 min"), table(USERS, versioned=True).emit_after("1 min")):
        assert identity_of(held.to(OUT)).suppression is held.node


@pytest.mark.parametrize(
    "flow",
    [
        users().emit_after("1 min"),
        users().outer_join(scores()).emit_after("1 min"),
        users().emit_after("1 min").join(scores()),
        visits().emit_each_batch().select(n=col("clicks")),
    ],
    ids=["unversioned table", "join of tables", "join below", "updates without their window"],
)
def test_rows_that_cannot_be_told_apart_and_updates_that_may_not_have_left_are_refused(flow: Table) -> None:
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


EVENTS = Topic(name="events", key="id", value=RecordSchema.of(who=STRING, n=LONG))
TIERS = Topic(name="users", key="who", value=RecordSchema.of(tier=STRING))
OF_WHO = Topic(name="out", key="who")
by_who = stream(EVENTS).select_key(who=col("who"))
MINUTE, SESSION = tumbling("1 min", grace="0 s"), session("1 min", grace="0 s")
totals = by_who.aggregate(n=count())
updates = by_who.windowed_by(MINUTE).aggregate(sum=total("n")).emit_each_batch()
REFUSED: dict[str, RecordStream | Table] = {
    "a table of a re-keyed stream": by_who.to_table(),
    "a processor of a re-keyed stream": by_who.process(lambda _, __: [], n=LONG),
    "updates that are filtered": totals.to_stream().filter(col("n") > 1),
    "updates that are counted": updates.windowed_by(hopping("1 h", advance="5 min", grace="0 s"))
    .aggregate(n=count())
    .emit_final(),
    "updates without their window": updates.select("sum"),
    "a versioned table of updates": updates.select("sum").to_table(versioned=True),
    "updates of a table that are held back": table(TIERS).emit_after("1 min"),
    "a lookup of results": stream(EVENTS)
    .windowed_by(MINUTE)
    .aggregate(n=count())
    .emit_final()
    .join_table(table(TIERS)),
    "a lookup of whatever is there in totals": stream(EVENTS).join_table(
        totals.select(m=col("n")), as_of="arrival", by=col("who")
    ),
}
JUDGED: dict[str, RecordStream | Table] = {
    "records": stream(EVENTS).filter(col("n") > 1),
    "a table of a topic": table(TIERS),
    "a versioned table of a re-keyed stream": by_who.to_table(versioned=True),
    "a re-keyed stream in order": stream(EVENTS)
    .in_order(grace="1 s")
    .select_key(who=col("who"))
    .process(lambda _, __: [], n=LONG),
    "totals": totals,
    "totals of a topic's key that are filtered": stream(EVENTS).aggregate(n=count()).to_stream().filter(col("n") > 1),
    "updates with their window": updates.select("window_start", "window_end", "sum"),
    "sessions": by_who.windowed_by(SESSION).aggregate(n=count()).emit_each_batch(),
    "windows over windows": by_who.windowed_by(MINUTE)
    .aggregate(n=count())
    .emit_final()
    .windowed_by(SESSION)
    .aggregate(n=total("n"))
    .emit_final(),
    "a lookup": by_who.left_join_table(table(TIERS)),
    "a lookup of what is filtered": by_who.join_table(table(TIERS).filter(col("tier") == "gold")),
    "groups of a table": table(TIERS).group_by(tier=col("tier")).aggregate(n=count()),
}


@pytest.mark.parametrize("flow", REFUSED.values(), ids=REFUSED)
def test_what_is_no_function_of_the_log_is_told_with_what_to_do(flow: RecordStream | Table) -> None:
    [*found] = objections(Topology(name="refused", sinks=[flow.to(OF_WHO)]))
    assert found
    assert all(one.given and one.expected and one.remedy for one in found)


@pytest.mark.parametrize("flow", JUDGED.values(), ids=JUDGED)
def test_nothing_is_said_of_what_audits_judge(flow: RecordStream | Table) -> None:
    assert objections(Topology(name="judged", sinks=[flow.to(OF_WHO)])) == []


def test_audits_judge_every_stream_of_the_shop() -> None:
    assert [name for name, topology in declared().topologies.items() if objections(topology)] == []


DECLARED = """
from recount.declare.expressions import col
from recount.declare.schema import RecordSchema, STRING
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

events = Topic(name="events", key="id", value=RecordSchema.of(who=STRING))
latest = stream(events).select_key(who=col("who")).to_table()
refused = Topology(name="latest-events", sinks=[latest.to(Topic(name="latest", key="who"))])
"""


def test_describe_says_that_audits_refuse_a_stream(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latest_events.py").write_text(DECLARED)  # type: ignore[operator]
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "latest_events")
    said = CliRunner().invoke(app, ["describe"])
    assert "audits refuse it: table cannot be recomputed" in said.stdout
    assert "declare it versioned" in said.stdout


@pytest.mark.parametrize(
    ("as_of", "listed"), [("event", []), ("arrival", ["left join with table, as of arrival, of users"])]
)
def test_a_lookup_as_of_arrival_is_listed_and_one_as_of_the_event_is_not(as_of: str, listed: list[str]) -> None:
    """Item 1.7: arrival order is an explicit choice, and the certificate says where it was made."""
    flow = stream(CLICKS).left_join_table(users(), as_of=as_of)  # type: ignore[arg-type]
    assert lookups_by_arrival(Topology(name="t", sinks=[flow.to(OUT)])) == listed
