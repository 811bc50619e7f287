"""What an audit will refuse is known of the declaration: a person is told before the stream has run for a day."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from recount.audit.objections import objections
from recount.cli import app
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.registry import declared
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import hopping, session, tumbling

EVENTS = Topic(name="events", key="id", value=RecordSchema.of(who=STRING, n=LONG))
USERS = Topic(name="users", key="who", value=RecordSchema.of(tier=STRING))
OUT = Topic(name="out", key="who")
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
    "updates of a table that are held back": table(USERS).emit_after("1 min"),
    "a lookup of results": stream(EVENTS)
    .windowed_by(MINUTE)
    .aggregate(n=count())
    .emit_final()
    .join_table(table(USERS)),
    "a lookup of whatever is there in totals": stream(EVENTS).join_table(
        totals.select(m=col("n")), as_of="arrival", by=col("who")
    ),
}
JUDGED: dict[str, RecordStream | Table] = {
    "records": stream(EVENTS).filter(col("n") > 1),
    "a table of a topic": table(USERS),
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
    "a lookup": by_who.left_join_table(table(USERS)),
    "a lookup of what is filtered": by_who.join_table(table(USERS).filter(col("tier") == "gold")),
    "groups of a table": table(USERS).group_by(tier=col("tier")).aggregate(n=count()),
}


@pytest.mark.parametrize("flow", REFUSED.values(), ids=REFUSED)
def test_what_is_no_function_of_the_log_is_told_with_what_to_do(flow: RecordStream | Table) -> None:
    [*found] = objections(Topology(name="refused", sinks=[flow.to(OUT)]))
    assert found
    assert all(one.given and one.expected and one.remedy for one in found)


@pytest.mark.parametrize("flow", JUDGED.values(), ids=JUDGED)
def test_nothing_is_said_of_what_audits_judge(flow: RecordStream | Table) -> None:
    assert objections(Topology(name="judged", sinks=[flow.to(OUT)])) == []


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
