"""What an audit releases for removal, and by what the rows of a sink get old."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from tests.batch_proofs import a_proof

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, tumbling
from recount.runtime.errors import InvalidDeclaration
from recount.tables.ledger import PartitionProof
from recount.tables.places import Released, ageing

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))
USERS = Topic(name="users", key="user", value=RecordSchema.of(name=STRING))
OUT = Topic(name="out", key="user")
OLD = a_proof(2, PartitionProof(topic="clicks", partition=0, start=20, end=30), frontier_ms=50)
CUT = a_proof(7, frontier_ms=90)


def test_what_the_stream_had_passed_by_an_old_batch_is_released() -> None:
    found = Released.of(OLD, CUT)
    assert found == Released(before_ms=50, cut=(0, 7), offsets={"clicks": {0: 30}})
    assert Released.from_document(json.loads(json.dumps(asdict(found)))) == found


def test_where_no_frontier_had_passed_anything_nothing_is() -> None:
    assert Released.of(None, CUT) is None
    assert Released.of(replace(OLD, frontier_ms=None), CUT) is None
    assert Released.from_document(None) is None


@pytest.mark.parametrize(
    ("flow", "by"),
    [
        (stream(CLICKS).filter(col("page") == "a"), "record"),
        (stream(CLICKS).join_table(table(USERS)), "record"),
        (stream(CLICKS).windowed_by(session("5 min", grace="1 min")).aggregate(n=count()).emit_final(), "window"),
        (stream(CLICKS).windowed_by(tumbling("5 min", grace="0 s")).aggregate(n=count()).emit_each_batch(), "window"),
        (stream(CLICKS).aggregate(n=count()), "table"),
        (table(USERS), "table"),
        (table(USERS).filter(col("name") == "a"), "table"),
        (table(USERS).group_by(name=col("name")).aggregate(n=count()), "table"),
        (stream(CLICKS).aggregate(n=count()).to_stream().filter(col("n") > 1), "record"),
        (stream(CLICKS).aggregate(n=count()).select(n=col("n")), None),
    ],
)
def test_rows_get_old_by_their_window_their_record_or_the_row_that_replaces_them(
    flow: RecordStream | Table, by: str | None
) -> None:
    assert ageing(flow.to(OUT)) == by


def test_a_retention_of_nothing_is_refused_and_for_ever_is_not() -> None:
    topology = Topology(name="copies", sinks=[stream(CLICKS).to(OUT)])
    assert topology.retention_ms == 400 * 86_400_000
    assert replace(topology, retention=None).retention_ms is None
    with pytest.raises(InvalidDeclaration):
        replace(topology, retention="0 d")
