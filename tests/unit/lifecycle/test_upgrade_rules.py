"""Item 1.4: which changes keep a stream's state, and what is kept when they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.batch_proofs import a_proof

from recount.audit.cut import kept_log
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.kept_log import StretchLog
from recount.declare.aggregates import count, largest
from recount.declare.changes import changes
from recount.declare.expressions import col
from recount.declare.fingerprint import Declared
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.kafka.connection import Connection
from recount.kafka.offsets import LogRange
from recount.lifecycle.reset import Move, put_aside
from recount.lifecycle.upgrade import objection, require_whole_log
from recount.runtime.errors import Terminal
from recount.tables.ledger import PartitionProof
from recount.tables.places import Tables


def clicks(
    size: str = "1 h",
    grace: str = "60 s",
    required: tuple[str, ...] = (),
    fields: Any = None,
    more: Any = None,
    **settings: Any,
) -> Topology:
    schema = RecordSchema.of(required=required, n=LONG, **fields or {})
    flow = stream(Topic(name="clicks", key="user", value=schema)).windowed_by(tumbling(size, grace=grace))
    sinks = [flow.aggregate(c=count(), **more or {}).emit_final().to(Topic(name="out", key="user"))]
    return Topology(name="clicks", sinks=sinks, **settings)


def objections(old: Topology, new: Topology, *, is_single: bool = True) -> list[str]:
    found = changes(Declared.of(old).document, Declared.of(new).document)
    assert found
    return [reason for change in found if (reason := objection(change, is_single=is_single))]


@pytest.mark.parametrize(
    "new", [clicks(grace="2 min"), clicks(idle_after="1 min"), clicks(max_future="2 h"), clicks(fields={"m": LONG})]
)
def test_a_change_that_keeps_the_meaning_of_the_partials_is_allowed(new: Topology) -> None:
    assert objections(clicks(), new) == []


@pytest.mark.parametrize(
    "new",
    [
        clicks(size="2 h"),
        clicks(grace="30 s"),
        clicks(required=("n",)),
        clicks(more={"most": largest("n")}),
        clicks(fields={"m": LONG}, required=("m",)),
        Topology(
            name="clicks",
            sinks=[
                *clicks().sinks,
                stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG)))
                .filter(col("n") > 1)
                .to(Topic(name="side", key="user")),
            ],
        ),
    ],
)
def test_every_other_change_is_refused_with_a_reason(new: Topology) -> None:
    assert objections(clicks(), new)


def test_a_longer_grace_where_windows_are_forgotten_is_refused_with_that_reason() -> None:
    [longer] = objections(clicks(), clicks(grace="2 min"), is_single=False)
    assert "is forgotten" in longer
    [shorter] = objections(clicks(grace="2 min"), clicks(), is_single=False)
    assert "goes back to the beginning of the log" in shorter


def test_tables_are_moved_aside_once_and_a_repetition_finds_them_moved(tmp_path: Path) -> None:
    table = tmp_path / "outputs" / "revenue"
    table.mkdir(parents=True)
    (table / "file").write_text("row")
    kept = tmp_path / "former" / "s" / "1"
    folders = ("outputs/revenue", "corrections/revenue")
    planned = [Move(source=f"{tmp_path}/{folder}", target=f"{kept}/{folder}") for folder in folders]
    assert [move.source for move in put_aside(planned)] == [str(table)]
    assert put_aside(planned) == []
    assert (kept / "outputs" / "revenue" / "file").read_text() == "row"
    table.mkdir()
    with pytest.raises(Terminal, match="where it is used and also where it is kept"):
        put_aside(planned)


def test_nothing_is_added_to_a_stream_whose_log_has_lost_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its audits could not begin, and would be refused every night until it is reset."""
    nowhere = Connection(bootstrap_servers="127.0.0.1:1")
    log = StretchLog(connection=nowhere, tables=Tables(str(tmp_path)), sources={"clicks": "kafka"})
    ledger = Ledger((a_proof(0, PartitionProof(topic="clicks", partition=0, start=0, end=9)),))
    monkeypatch.setattr(kept_log, "kept", lambda _connection, _topic: {0: LogRange(start=0, end=9)})
    require_whole_log(log, "clicks", ledger)
    monkeypatch.setattr(kept_log, "kept", lambda _connection, _topic: {0: LogRange(start=1, end=9)})
    with pytest.raises(Terminal, match="cannot go on") as refused:
        require_whole_log(log, "clicks", ledger)
    assert "expired" in refused.value.given
    assert "recount reset clicks" in refused.value.remedy
