"""Streams that can forget a key, and the rows of it that are found, removed and left; others are refused by name."""

import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.unit.engine.ledger_scene import LedgerScene

from recount.audit.carry.delta_frames import purge
from recount.audit.carry.snapshots import COLUMNS, snapshot_sha256, stream_of
from recount.audit.carry.store import SNAPSHOTS, AuditStore
from recount.declare.aggregates import count, reduce
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, tumbling
from recount.engine.operators.batch_graph import Graph
from recount.engine.state.graph_state import STATE_SCHEMA, packed
from recount.engine.state.keyed_rows import DELETED
from recount.lifecycle.erasing import purge_state
from recount.lifecycle.held_rows import HandedOn, HeldKey, Holding, objection_to
from recount.recompute.operators.carried import CLOCKS
from recount.runtime.errors import Terminal
from recount.tables.places import Tables

VISITS = Topic(name="visits", key="who", value=RecordSchema.of(note=STRING, fee=DOUBLE, room=LONG))
OUT = Topic(name="out", key="who")


def named(sink: object) -> Topology:
    return Topology(name="visits-out", sinks=[sink])  # type: ignore[list-item]


def test_a_key_cannot_be_erased_from_a_stream_that_no_audit_judges() -> None:
    shown = Topology(name="shown", actions=[stream(VISITS).foreach(print)])
    assert "recount reset" in str(objection_to(shown))


def visits_by_session(flow: RecordStream) -> RecordStream:
    return flow.windowed_by(session("5 min", grace="60 s")).aggregate(n=count()).emit_final()


ROOMS = Topic(name="rooms", key="room", value=RecordSchema.of(floor=LONG))
FIRST = stream(VISITS).deduplicate("note", horizon="1 h")
BY_ROOM = (
    stream(VISITS)
    .select_key(room=col("room"))
    .windowed_by(tumbling("5 min", grace="60 s"))
    .aggregate(n=count())
    .emit_final()
)
SAME_KEY = FIRST.select_key(who=col("__key")).with_fields(fee=col("fee") * 2.0).select_key(patient=col("who"))


@pytest.mark.parametrize(
    "flow",
    [
        visits_by_session(stream(VISITS)),
        BY_ROOM,
        visits_by_session(SAME_KEY),
        SAME_KEY.select(patient=col("patient"), other=col("note")),
        table(VISITS),
        table(VISITS).filter(col("fee") > 0).group_by(room=col("room")).aggregate(n=count()),
        stream(VISITS).join_table(stream(ROOMS).select_key(room=col("floor")).to_table(), by=col("room")),
        FIRST.select_key(room=col("room")).filter(col("room") > 1),
        stream(VISITS).in_order(grace="1 min").aggregate(n=count()),
    ],
)
def test_operators_that_remember_under_one_key_can_forget_it(flow: RecordStream | Table) -> None:
    assert objection_to(named(flow.to(OUT))) is None


@pytest.mark.parametrize(
    ("flow", "operator"),
    [
        (visits_by_session(FIRST.select_key(room=col("room"))), "per room, session"),
        (visits_by_session(SAME_KEY.select_key(who=col("patient").upper())), "per who, session"),
        (SAME_KEY.with_fields(patient=col("note")), "with patient = note"),
        (SAME_KEY.select(patient=col("note")), "select patient = note"),
        (SAME_KEY.select(patient=col("who")), "select patient = who"),
        (BY_ROOM.select_key(n=col("n")).deduplicate("n", horizon="1 h"), "first of each n"),
        (
            stream(VISITS).join_table(
                FIRST.select("note").select_key(who=col("note")).select(said=col("note")).to_table(), as_of="arrival"
            ),
            "[table]",
        ),
        (stream(VISITS).aggregate(n=count()).group_by(n=col("n")).aggregate(of=count()), "of rows by n = n"),
        (stream(VISITS).deduplicate("fee", horizon="1 h"), "first of each fee"),
        (stream(VISITS).select_key(room=col("room")).aggregate(n=reduce("fee", max)), "from where it stood"),
    ],
)
def test_what_was_made_of_a_key_under_another_is_refused_by_name(flow: RecordStream | Table, operator: str) -> None:
    assert operator in str(objection_to(named(flow.to(OUT))))


KEYS = ["zoe", "o'neil", 'say "so"', "", "zo\\e", "ζωή", "7"]


def table_of(path: str, keys: list[str]) -> None:
    for version, key in enumerate(keys):
        written = CommitProperties(app_transactions=[Transaction("stream", version)])
        rows = pl.DataFrame({'who "is"': [key, "other"], "n": [version, 7 + version]})
        write_deltalake(path, rows, mode="append", commit_properties=written)


def holding(path: str, key: str, column: str = 'who "is"') -> Holding:
    return Holding(name="t", path=path, column=column, mine=pl.col(column).cast(pl.String) == key)


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_found_whatever_letters_it_has(tmp_path: Path, key: str) -> None:
    table_of(str(tmp_path), KEYS)
    mine = holding(str(tmp_path), key)
    assert mine.count() == 1
    mine.remove()
    mine.remove()
    assert mine.count() == 0
    assert pl.read_delta(mine.path).height == 2 * len(KEYS) - 1


def test_a_long_is_found_by_its_text(tmp_path: Path) -> None:
    table_of(str(tmp_path), ["zoe"])
    for key in ("zoe", "007", "+7", "7.0"):
        assert holding(str(tmp_path), key, "n").count() == 0
    holding(str(tmp_path), "7", "n").remove()
    assert pl.read_delta(str(tmp_path))["n"].to_list() == [0]


def test_no_file_names_what_was_deleted_and_who_wrote_last_is_known_still(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    table_of(path, ["aa-zoe", "noah"])
    holding(path, "aa-zoe").remove()
    assert [log for log in tmp_path.rglob("*.json") if "aa-zoe" in log.read_text()]
    purge(path)
    purge(path)
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"aa-zoe" in file.read_bytes()]
    assert not [file for file in tmp_path.rglob("*.parquet") if "aa-zoe" in repr(pl.read_parquet(file).to_dicts())]
    assert sorted(pl.read_delta(path)['who "is"']) == ["noah", "other", "other"]
    assert DeltaTable(path).transaction_version("stream") == 1


def test_no_proof_is_lost_with_the_commits_of_a_state_table(tmp_path: Path) -> None:
    scene, tables = LedgerScene(tmp_path), Tables(str(tmp_path))
    stream = Path(scene.state.path).parent.name
    scene.commit(0, 1, 2)
    scene.ledger.move()
    scene.commit(3, 4)
    purge_state(tables, stream)
    assert scene.found == [4, 3, 2, 1, 0]
    assert len(scene.commits) == 1
    scene.commit(*range(5, 12))
    before = scene.commits
    with scene.without_commit(6), pytest.raises(Terminal, match="neither in the log"):
        purge_state(tables, stream)
    assert set(before) <= set(scene.commits)


def held(tables: Tables, topology: Topology, key: str, audit: str | None = None) -> HeldKey:
    return HeldKey(tables=tables, topology=topology, audit=audit, key=key)


def test_rejected_records_go_where_their_detail_has_the_key_as_a_word(tmp_path: Path) -> None:
    tables, notes = Tables(str(tmp_path)), named(stream(VISITS).to(OUT))
    details = ["unknown patient z.e", "z.e: no fee", "z.ey", "bad", "7 z.es", "zoe", None]
    rows = pl.DataFrame({"topic": "t", "partition": 0, "offset": range(7), "detail": details})
    write_deltalake(tables.rejected(notes.name), rows)
    mine = held(tables, notes, "z.e")
    assert mine.counts() == {"rejected": 2}
    for one in mine.holdings():
        one.remove()
    assert pl.read_delta(tables.rejected(notes.name))["offset"].sort().to_list() == [2, 3, 4, 5, 6]


def test_rows_of_other_keys_that_name_the_key_are_counted_and_stay(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    regrouped = named(stream(VISITS).in_order(grace="1 min").select_key(note=col("note")).aggregate(n=count()).to(OUT))
    state = next(name for name in Graph(regrouped).states if "InOrder" in name and "time of" not in name)
    told = {"field __key": ["eve", "zoe", "noah", "noah"], "field note": ["x", "eve", "zoe", "zoey"]}
    rows = packed(pl.DataFrame(told).with_columns(pl.lit(value=False).alias(DELETED)))
    write_deltalake(
        tables.state(regrouped.name), pl.DataFrame([(state, rows, 4, False, 0)], STATE_SCHEMA, orient="row")
    )
    notes = named(stream(VISITS).to(OUT))
    outputs = pl.DataFrame({"__key": ["noah", "zoe", "eve"], "note": ["zoe", "zoe", "zoey"]})
    write_deltalake(tables.output("out"), outputs)
    assert held(tables, regrouped, "zoe").named()["state"] == 1
    assert held(tables, notes, "zoe").named()["outputs/out"] == 1
    assert held(tables, notes, "zoe").counts()["outputs/out"] == 1


Frame = list[tuple[object, ...]]


def frame(part: str, name: str, columns: dict[str, list[object]]) -> Frame:
    schema = json.dumps({"fields": [{"name": column} for column in columns]})
    batch = pa.table({str(at): values for at, values in enumerate(columns.values())})
    return [(part, name, schema, None), (part, name, None, stream_of(batch))]


CLAIMS = frame("claims", "notes", {"key": ["zoe", "noah", None, "zoe"], "n": [1, 2, 3, 4]})
TABLE = frame("truth", "02-totable-youngest", {"c0": [1, 2, 3], "key": [47, None, 4]})
HELD = frame("complete", "03-suppress-held", {"key": ["47", "noah", "zoe"], "c1": ["a", "47", "c"]})
TIMES = frame("truth", CLOCKS, {"c0": ['{"who": "zoe"}']})
IDS = "02-deduplicate-records"
FIRSTS = frame("truth", IDS, {"key": ["zoe", "zoe", "noah", None], "c1": [1, 2, 3, 4], "id": ["a", "b", "b", "c"]})


def handed_on(tables: Tables, audit: str, *frames: Frame) -> HandedOn:
    rows = pl.DataFrame([row for one in frames for row in one], COLUMNS, orient="row")
    AuditStore(tables, "notes").put_rows(SNAPSHOTS, audit, rows)
    return HandedOn(tables=tables, stream="notes", audit=audit)


def left_in(tables: Tables) -> dict[str, dict[str, list[object]]]:
    kept = pl.read_delta(tables.audit("notes", SNAPSHOTS)).filter(pl.col("rows").is_not_null())
    return {name: pa.ipc.open_stream(rows).read_all().to_pydict() for name, rows in kept.select("name", "rows").rows()}


def test_the_rows_of_a_key_go_from_the_snapshot_and_older_snapshots_with_them(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    for audit in ("night-1", "night-2"):
        snapshot = handed_on(tables, audit, TIMES, CLAIMS, TABLE, HELD)
    assert [snapshot.count(key) for key in ("zoe", "47", "eve")] == [3, 2, 0]
    before = snapshot_sha256(tables, "notes", "night-2")
    snapshot.remove("eve")
    assert snapshot_sha256(tables, "notes", "night-2") == before
    snapshot.remove("zoe")
    snapshot.remove("47")
    after = snapshot_sha256(tables, "notes", "night-2")
    assert after != before
    snapshot.remove("zoe")
    assert snapshot_sha256(tables, "notes", "night-2") == after
    assert left_in(tables) == {
        CLOCKS: {"0": ['{"who": "zoe"}']},
        "notes": {"0": ["noah", None], "1": [2, 3]},
        "02-totable-youngest": {"0": [2, 3], "1": [None, 4]},
        "03-suppress-held": {"0": ["noah"], "1": ["47"]},
    }
    rows = pl.read_delta(tables.audit("notes", SNAPSHOTS))
    assert (set(rows["recount_audit"]), rows["schema"].drop_nulls().len()) == ({"night-2"}, 4)


def test_ids_are_those_of_the_records_of_the_key(tmp_path: Path) -> None:
    more = frame("complete", IDS, {"key": ["zoe"], "id": ["d"]})
    snapshot = handed_on(Tables(str(tmp_path)), "night-1", FIRSTS, more)
    assert snapshot.ids(IDS, "zoe") == ({"a", "b", "d"}, {"b", "c"})


@pytest.mark.parametrize("told", [("truth", "02-totable-rows"), ("unread", "unread")])
def test_rows_of_which_the_key_is_not_known_are_refused(tmp_path: Path, told: tuple[str, str]) -> None:
    snapshot = handed_on(Tables(str(tmp_path)), "night-1", frame(*told, {"c0": ["zoe"]}))
    for ask in (snapshot.count, snapshot.remove):
        with pytest.raises(Terminal, match="is not known"):
            ask("zoe")
