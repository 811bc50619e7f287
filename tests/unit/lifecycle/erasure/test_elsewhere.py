"""What an erasure does not reach is named: other keys' rows, reports, and streams whose state has the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

from recount.backfill.carrying_out import CorrectionTables
from recount.declare.aggregates import count
from recount.declare.columns import BACKFILL_NUMBER
from recount.declare.expressions import col
from recount.declare.groups import Archive
from recount.declare.registry import Declarations
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.lifecycle.erasure.archived_records import ArchiveErasure, readers_of
from recount.lifecycle.erasure.asked_key import Asked
from recount.lifecycle.erasure.erased_rows import operator_states
from recount.lifecycle.erasure.erasing import Order
from recount.lifecycle.erasure.hindrances import has_in_state, has_unpublished, reports_naming, under_other_keys
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.places import Tables
from recount.tables.signed_orders import Erasure

VISITS = Topic(name="visits", key="who", value=RecordSchema.of(seen_by=STRING))
NOTES = Topology(name="notes", sinks=[stream(VISITS).to(Topic(name="out", key="who"), table="notes")])
PATIENTS = Topology(name="patients", sinks=[table(VISITS).to(Topic(name="now", key="who"), table="patients")])
SHOWN = Topology(name="shown", actions=[stream(VISITS).foreach(print)])
REGROUPED = Topology(
    name="regrouped",
    sinks=[
        stream(VISITS)
        .in_order(grace="1 min")
        .select_key(seen_by=col("seen_by"))
        .aggregate(n=count())
        .to(Topic(name="by", key="who"), table="by")
    ],
)
ZOE = Order(key="zoe", by="Ada", reason="ticket 12")


def test_rows_of_other_keys_are_counted_where_a_field_is_the_key(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    key = NOTES.written[0].key
    rows = pl.DataFrame({key: ["noah", "zoe", "eve"], "seen_by": ["zoe", "zoe", "zoey"]})
    write_deltalake(tables.output("notes"), rows)
    assert list(under_other_keys(tables, NOTES, "zoe")) == [
        "outputs/notes: 1 rows of other keys have it in seen_by: erase those keys too"
    ]


def test_state_of_other_keys_is_counted_where_a_field_is_the_key(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    [state] = operator_states(REGROUPED, tables.root)[:1]
    told = {"field __key": ["zoe", "noah", "noah"], "field seen_by": ["eve", "zoe", "zoey"]}
    rows = pl.DataFrame(told).select(pl.struct(pl.all()).struct.json_encode().alias("row"), state=pl.lit(state.name))
    write_deltalake(tables.state("regrouped"), rows)
    [line] = under_other_keys(tables, REGROUPED, "zoe")
    assert line.startswith("the state of [in order of event time")
    assert ": 1 rows of other keys have it" in line


def test_reports_that_hold_the_key_are_listed(settings: Settings) -> None:
    for name, text in (("a.json", '{"key": "zo\\u00eb"}'), ("b.html", "zoë"), ("c.json", "noah")):
        path = Path(settings.reports, "certificates", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert [Path(one).name for one in reports_naming(settings, "zoë")] == ["a.json", "b.html"]


@pytest.mark.parametrize(("key", "is_there"), [("zoe", True), ("zo", False), ("7", True), ("77", False)])
def test_a_stream_that_keeps_state_is_known_to_have_the_key(tmp_path: Path, key: str, *, is_there: bool) -> None:
    tables = Tables(str(tmp_path))
    rows = pl.DataFrame({"identity": ['{"who":"zoe"}', '{"who":7,"n":1}'], "row": ["{}", "{}"]})
    write_deltalake(tables.state("patients"), rows)
    assert has_in_state(tables, PATIENTS, key) == is_there


def test_an_archive_knows_which_records_its_readers_would_still_meet(settings: Settings) -> None:
    archive = Archive(topic=VISITS)
    rows = pl.DataFrame({"partition": [0, 0, 1], "offset": [4, 9, 2], "key": [b"zoe", b"noah", b"zoe"]})
    write_deltalake(Tables(settings.data).archive("visits"), rows)
    erasure = ArchiveErasure(
        settings=settings, archive=archive, readers=readers_of(archive, [NOTES, SHOWN, PATIENTS]), order=ZOE
    )
    assert [one.name for one in erasure.readers] == ["notes", "patients"]
    assert erasure.places() == [(0, 4), (1, 2)]
    assert not erasure.uncovered({"visits": {"0": 5, "1": 3}})
    assert erasure.uncovered({"visits": {"0": 4, "1": 3}})
    assert erasure.uncovered({"visits": {"0": 5}})


def test_an_archive_is_not_erased_from_while_a_reader_of_it_cannot_be(settings: Settings) -> None:
    archive = Archive(topic=VISITS)
    write_deltalake(
        Tables(settings.data).archive("visits"), pl.DataFrame({"partition": [0], "offset": [4], "key": [b"zoe"]})
    )
    known = Declarations(
        topologies={one.name: one for one in (NOTES, REGROUPED)}, topics={}, archives={archive.name: archive}
    )
    asked = Asked.of(settings, known, ZOE, [archive.name])
    assert [one.topology.name for one in asked.streams] == ["notes", "regrouped"]
    [refusal] = asked.streams[1].hindrances()
    assert "remembers rows under a key" in refusal
    assert Asked.of(settings, known, ZOE, ["notes"]).left == [archive.name]


@pytest.mark.parametrize(
    "order",
    [
        replace(ZOE, by=" "),
        replace(ZOE, reason=""),
        replace(ZOE, key=""),
        replace(ZOE, reason="for zoe"),
        replace(ZOE, by="zoe"),
    ],
)
def test_who_and_why_are_told_and_do_not_name_the_key(settings: Settings, order: Order) -> None:
    with pytest.raises(Terminal):
        Asked.of(settings, Declarations(topologies={}, topics={}), order, [])


def test_the_next_backfill_goes_on_behind_one_whose_rows_were_erased(tmp_path: Path) -> None:
    none: object = None
    tables = CorrectionTables(session=none, tables=Tables(str(tmp_path)), topology=NOTES)  # type: ignore[arg-type]
    assert (tables.next_number(0), tables.next_number(2, erased=2)) == (0, 2)
    with pytest.raises(Terminal, match="older than Kafka"):
        tables.next_number(2, erased=1)


def test_a_record_without_an_audit_is_an_archives() -> None:
    text = '{"erasure":"a","stream":"s","state":"done","version":1,"at_ms":1,"by":"b","reason":"r","generation":0,'
    assert Erasure.from_json(text + '"batch":1,"audit":null,"salt":"x","key_sha256":"y"}').audit is None


@pytest.mark.parametrize(("numbers", "waits"), [([], False), ([0, 1], False), ([2], True), ([None], True)])
def test_corrections_that_are_not_published_are_waited_for(
    tmp_path: Path, numbers: list[int | None], *, waits: bool
) -> None:
    path = str(tmp_path / "corrections")
    assert not has_unpublished(path, 2)
    write_deltalake(path, pl.DataFrame({BACKFILL_NUMBER: numbers}, {BACKFILL_NUMBER: pl.Int64}))
    assert has_unpublished(path, 2) == waits
