"""Topologies in words and as diagrams."""

from __future__ import annotations

from recount.declare.aggregates import average, count, largest, smallest, total
from recount.declare.changes import describe, mermaid
from recount.declare.expressions import col
from recount.declare.fingerprint import Declared
from recount.declare.functions import reason_of
from recount.declare.operators.nodes import WindowedAggregate
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session

CLICKS = Topic(name="clicks", key="id", value=RecordSchema.of(user=STRING))
USERS = Topic(name="users", key="id", value=RecordSchema.of(tier=STRING))
SESSIONS, ENRICHED = Topic(name="sessions", key="user"), Topic(name="enriched", key="user")

BY_USER = stream(CLICKS).select_key(user_id=col("user"))
TOPOLOGY = Topology(
    name="clicks",
    sinks=[
        BY_USER.windowed_by(session("30 min", grace="0 s", max_duration="1 d"))
        .aggregate(clicks=count())
        .emit_final()
        .to(SESSIONS),
        BY_USER.left_join_table(table(USERS)).filter(col("tier") != "<none>").to(ENRICHED),
    ],
)


def test_every_operator_has_one_line_and_names_what_it_reads() -> None:
    assert describe(TOPOLOGY).splitlines() == [
        "stream clicks",
        "  1. source clicks",
        "  2. select key user_id = user  <- 1",
        "  3. clicks = count() per user_id, session gap 30 min, at most 1 d, grace 0 ms, emit final  <- 2",
        "  4. sink sessions, table sessions  <- 3",
        "  5. source users",
        "  6. table  <- 5",
        "  7. left join with table, history 400 d  <- 2, 6",
        "  8. filter (tier != '<none>')  <- 7",
        "  9. sink enriched, table enriched  <- 8",
    ]


def test_aggregates_have_the_names_of_the_language_and_fingerprints_and_reasons_the_kinds_that_are_stored() -> None:
    counts = Topic(name="counts", key="id", value=RecordSchema.of(n=LONG))
    of_all = {"t": total("n"), "s": smallest("n"), "l": largest("n").only(col("n") > 0), "a": average("n")}
    totals = stream(counts).aggregate(**of_all)
    topology = Topology(name="totals", sinks=[totals.to(Topic(name="out", key="id"))])
    assert "t = total(n), s = smallest(n), l = largest(n) only (n > 0), a = average(n) per __key" in describe(topology)
    assert '"sum"' in str(Declared.of(topology).document).replace("'", '"')
    [node] = [one for one in topology.nodes() if isinstance(one, WindowedAggregate)]
    reason = reason_of(node, ZeroDivisionError())
    assert "in t = sum(n), s = min(n), l = max(n) only (n > 0), a = avg(n) per __key" in reason


def test_the_diagram_has_an_edge_for_every_input_and_escapes_its_labels() -> None:
    lines = mermaid(TOPOLOGY).splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n1[("source clicks")]' in lines
    assert {"  n2 --> n7", "  n6 --> n7"} <= set(lines)
    assert "  n8[\"filter (tier != '#lt;none#gt;')\"]" in lines
