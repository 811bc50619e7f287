"""Topologies in words and as diagrams."""

from __future__ import annotations

from recount.core.aggregates import count
from recount.core.describe import describe, mermaid
from recount.core.expressions import col
from recount.core.schema import STRING, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import Topology, stream, table
from recount.core.windows import session

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


def test_the_diagram_has_an_edge_for_every_input_and_escapes_its_labels() -> None:
    lines = mermaid(TOPOLOGY).splitlines()
    assert lines[0] == "flowchart TD"
    assert '  n1[("source clicks")]' in lines
    assert {"  n2 --> n7", "  n6 --> n7"} <= set(lines)
    assert "  n8[\"filter (tier != '#lt;none#gt;')\"]" in lines
