"""`recount erase` says what it found, what hinders it and what stays, and changes nothing where something does."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

from recount.backfill.carrying_out import CorrectionTables
from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.groups import Archive
from recount.declare.registry import Declarations
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.lifecycle.archived_records import ArchiveErasure, readers_of
from recount.lifecycle.erase_command import Asked, erase, reports_naming
from recount.lifecycle.erasing import Order
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.places import Tables
from recount.tables.signed_orders import AsideOrder, Erasure, RecordPlace, key_sha256, new_salt, set_aside_command

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


@pytest.fixture
def ward(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The environment of a deployment with ``REGROUPED``."""
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    (Path(settings.data).parent / "a_ward.py").write_text(f"from {__name__} import REGROUPED\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(Path(settings.data).parent))
    monkeypatch.setenv("RECOUNT_TOPOLOGIES", "a_ward")
    return settings


def test_a_key_that_nobody_has_is_erased_from_nowhere(ward: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    erase(key="zoe", by="Ada", reason="ticket 12", stream=None, dry_run=False)
    assert capsys.readouterr().out == "no stream has this key\n"


def test_a_stream_that_cannot_forget_a_key_is_found_and_refused(
    ward: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = pl.DataFrame({"seen_by": ["zoe"], "n": [1]})
    write_deltalake(Tables(ward.data).output("by"), outputs)
    erase(key="zoe", by="Ada", reason="ticket 12", stream=None, dry_run=True)
    said = capsys.readouterr().out
    assert "regrouped: hindered: [" in said
    assert "dry run: nothing was erased\nstays in Kafka until its retention: by, visits, visits.dlq\n" in said
    with pytest.raises(Terminal, match="nothing was erased"):
        erase(key="zoe", by="Ada", reason="ticket 12", stream=None, dry_run=False)
    assert pl.read_delta(Tables(ward.data).output("by")).equals(outputs)


def test_a_stream_that_is_not_declared_is_refused(ward: Settings) -> None:
    with pytest.raises(Terminal, match="no such stream"):
        erase(key="zoe", by="Ada", reason="ticket 12", stream=["nothing"], dry_run=True)


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


def test_reports_that_hold_the_key_are_listed(settings: Settings) -> None:
    for name, text in (("a.json", '{"key": "zo\\u00eb"}'), ("b.html", "zoë"), ("c.json", "noah")):
        path = Path(settings.reports, "certificates", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert [Path(one).name for one in reports_naming(settings, "zoë")] == ["a.json", "b.html"]


def test_all_audited_readers_of_an_archive_that_has_the_key_take_part(settings: Settings) -> None:
    archive = Archive(topic=VISITS)
    rows = pl.DataFrame({"partition": [0, 0, 1], "offset": [4, 9, 2], "key": [b"zoe", b"noah", b"zoe"]})
    write_deltalake(Tables(settings.data).archive("visits"), rows)
    topologies = {one.name: one for one in (NOTES, REGROUPED, SHOWN)}
    known = Declarations(topologies=topologies, topics={}, archives={archive.name: archive})
    readers = readers_of(archive, [NOTES, SHOWN, PATIENTS])
    assert [one.name for one in readers] == ["notes", "patients"]
    erasure = ArchiveErasure(settings=settings, declared=archive, readers=readers, order=ZOE)
    assert erasure.places() == [(0, 4), (1, 2)]
    asked = Asked.of(settings, known, ZOE, [archive.name])
    assert [one.name for one in asked.streams] == ["notes", "regrouped"]
    [refusal] = asked.streams[1].hindrances()
    assert "remembers rows under a key" in refusal
    assert Asked.of(settings, known, ZOE, ["notes"]).left == [archive.name]
    assert Asked.of(settings, known, replace(ZOE, key="eve"), [archive.name]).streams == []


def test_the_next_backfill_goes_on_behind_one_whose_rows_were_erased(tmp_path: Path) -> None:
    tables = CorrectionTables(tables=Tables(str(tmp_path)), topology=NOTES)
    assert (tables.next_number(0), tables.next_number(2, erased=2)) == (0, 2)
    with pytest.raises(Terminal, match="older than Kafka"):
        tables.next_number(2, erased=1)


ORDER = AsideOrder(
    stream="sums", version=1, topic="a.b-c", partition=3, offset=17, at_ms=5, by="ann", because="a test"
).hashed(None)
SALT = new_salt()
BEGUN = Erasure(
    erasure="bills-1",
    stream="bills",
    state="begun",
    version=1,
    at_ms=1,
    by="Ada",
    reason="asked",
    generation=0,
    batch=3,
    audit="night-3",
    salt=SALT,
    key_sha256=key_sha256(SALT, "zoe"),
    offsets={"visits": {"0": 7}},
    counts={"outputs/bills": 2},
).hashed("k1")


def test_a_place_is_read_as_it_is_written() -> None:
    assert RecordPlace.from_text("a.b-c-3@17") == ORDER.place
    assert set_aside_command("sums", ORDER.place) == "`recount set-aside sums a.b-c-3@17 --by NAME --because TEXT`"


@pytest.mark.parametrize(
    "text", ["", "orders", "orders-0", "orders@5", "orders-0@", "orders-0@-1", "a derived row: o-0@1"]
)
def test_what_names_no_record_is_refused(text: str) -> None:
    with pytest.raises(Terminal) as refused:
        RecordPlace.from_text(text)
    assert refused.value.given == text


def test_an_erasure_knows_its_key_and_does_not_say_it() -> None:
    assert BEGUN.is_of("zoe")
    assert not BEGUN.is_of("zo")
    assert "zoe" not in BEGUN.to_json()
    assert key_sha256(new_salt(), "zoe") != BEGUN.key_sha256


def test_a_record_comes_back_from_its_text_and_holds_until_it_is_changed() -> None:
    for record, changes in (
        (ORDER, [{"offset": 18}, {"by": "bob"}, {"version": 2}]),
        (BEGUN, [{"by": "Bob"}, {"batch": 4}, {"state": "done"}, {"counts": {}}, {"key_id": None}]),
        (replace(BEGUN, audit=None).hashed("k1"), [{"audit": "night-3"}, {"snapshot_after": "0"}]),
    ):
        assert type(record).from_json(record.to_json()) == record
        assert record.holds
        for change in changes:
            assert not replace(record, **change).holds  # type: ignore[arg-type]


def test_what_is_signed_is_of_this_stream_record_and_content() -> None:
    others = [replace(BEGUN, stream="notes"), replace(BEGUN, erasure="bills-2"), replace(BEGUN, sha256="0" * 64)]
    assert len({BEGUN.signed, ORDER.signed, *(one.signed for one in others)}) == 5


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"stream": 1}', ORDER.to_json().replace("17", '"17"')])
def test_what_is_no_record_is_refused(text: str) -> None:
    for kind in (AsideOrder, Erasure):
        with pytest.raises(Terminal, match="no record"):
            kind.from_json(text)
