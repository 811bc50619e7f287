"""Tables that somebody else wrote to: their logs, statistics, the order of their rows, and batches that never were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.delta_logs import Action, commit, said
from tests.unit.audit.test_ledger import batch

from recount.audit.compare.identity import identity_of
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.integrity.strangers import overfull_batches, strange_rows
from recount.audit.integrity.table_files import false_statistics, reordered_rows, strange_logs
from recount.certificate.finding import Difference
from recount.declare.aggregates import count, total
from recount.declare.columns import BATCH, GENERATION, REVISION
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, Written, stream
from recount.declare.windows import all_time, session, tumbling
from recount.engine.commit.delta_table import AppendOnlyTable
from recount.tables.places import Tables

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(region=STRING, amount=decimal(9, 2)))
WINDOWS = stream(ORDERS).select_key(region=col("region")).windowed_by(tumbling("10 s", grace="3 s"))
RESULTS = WINDOWS.aggregate(orders=count(), revenue=total("amount")).emit_each_batch()
TOPOLOGY = Topology(name="revenue", sinks=[RESULTS.to(Topic(name="revenue", key="region"), table="revenue")])
COLUMNS = {"region": pl.String(), GENERATION: pl.Int32(), BATCH: pl.Int64()}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables as streams, maintenance and erasures write them."""
    root = tmp_path_factory.mktemp("logged")
    for path in written_tables(Tables(str(root))):
        table = AppendOnlyTable(path=path, schema=COLUMNS, log_kept_ms=0)
        table.create()
        for number in range(12):
            rows = pl.DataFrame({"region": ["EU", "US"], GENERATION: [0, 0], BATCH: [number, number]}, COLUMNS)
            table.append(rows, writer="w", version=number)
        table.delete("recount_batch = 3")
        table.replace("recount_batch = 4", rows.clear())
        table.compact()
        AppendOnlyTable(path=path, schema=COLUMNS).create()
    return root


@pytest.fixture
def logged(honest: Path, tmp_path: Path) -> Tables:
    return Tables(str(shutil.copytree(honest, tmp_path / "logged")))


def written_tables(tables: Tables) -> dict[str, str]:
    """The tables of the stream, each with what a difference calls it."""
    others = {tables.late(TOPOLOGY.name): "late table", tables.rejected(TOPOLOGY.name): "rejected table"}
    return {tables.output("revenue"): "table outputs/revenue", **others}


def last(path: str, kind: str) -> Any:
    return said(path, kind)[-1]


def removed(add: Mapping[str, Any]) -> Action:
    return {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}


def with_rules(metadata: Mapping[str, Any], /, **rules: Any) -> Action:
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0] |= rules
    return {"metaData": {**metadata, "schemaString": json.dumps(schema)}}


STRANGE: dict[str, Callable[[str], list[Action]]] = {
    "added and removed": lambda path: [{"add": last(path, "add")}, removed(last(path, "add"))],
    "removed and added": lambda path: [removed(last(path, "add")), {"add": last(path, "add")}],
    "partition columns": lambda path: [{"metaData": {**last(path, "metaData"), "partitionColumns": [BATCH]}}],
    "protocol": lambda _: [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}],
    "rules of a writer": lambda _: [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}],
    "no nulls": lambda path: [with_rules(last(path, "metaData"), nullable=False)],
    "another name": lambda path: [
        with_rules(last(path, "metaData"), metadata={"delta.columnMapping.physicalName": BATCH})
    ],
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_commit_that_recount_never_writes_is_named(logged: Tables, what: str) -> None:
    for path, place in written_tables(logged).items():
        name = commit(path, STRANGE[what](path))
        [found] = [one for one in strange_logs(logged, TOPOLOGY) if one.place == place]
        assert (found.verdict, found.evidence) == ("altered", (f"file _delta_log/{name}",))


def test_a_compacted_log_is_named_and_other_rows_that_do_not_count_are_no_second_file(logged: Tables) -> None:
    """By Delta's protocol a file is removed and added where rows of it are deleted by a list."""
    assert strange_logs(logged, TOPOLOGY) == strange_logs(Tables(str(logged.root) + "/none"), TOPOLOGY) == []
    path = logged.output("revenue")
    add = last(path, "add")
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    commit(path, [removed(add), {"add": {**add, "deletionVector": vector}}])
    assert strange_logs(logged, TOPOLOGY) == []
    log = Path(logged.output("revenue")) / "_delta_log"
    compacted = log / f"{1:020}.{2:020}.compacted.json"
    compacted.write_text((log / f"{1:020}.json").read_text() if (log / f"{1:020}.json").exists() else "")
    [found] = strange_logs(logged, TOPOLOGY)
    assert found.evidence == (f"file _delta_log/{compacted.name}",)


ROWS = pl.DataFrame(
    {
        "region": ["EU", "US", None],
        "revenue": ["0.1", "12345678901234567.25", None],
        "recount_batch": [1, 2, 2],
        "recount_is_null": [False, False, None],
        "ratio": [0.1, float("nan"), None],
        "weight.kg": [1, 2, None],
    }
).with_columns(pl.col("revenue").cast(pl.Decimal(38, 2)))
LONG_TEXTS = pl.DataFrame(
    {"region": ["a" * 40, "\U0010ffff" * 40, "\uffff" * 40, "é" * 40, "z" * 31 + "éé", "", "\0", None, "\x7f" * 40]}
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables whose files have statistics."""
    root = tmp_path_factory.mktemp("measured")
    for path in written_tables(Tables(str(root))):
        write_deltalake(path, ROWS.drop("recount_is_null"))
        write_deltalake(path, ROWS, mode="append", schema_mode="merge")
        for part in range(LONG_TEXTS.height):
            write_deltalake(path, LONG_TEXTS[part : part + 1], mode="append", schema_mode="merge")
        write_deltalake(path, LONG_TEXTS, mode="append", schema_mode="merge")
        DeltaTable(path).create_checkpoint()
    return root


@pytest.fixture(name="tables")
def _tables(measured: Path, tmp_path: Path) -> Tables:
    return Tables(str(shutil.copytree(measured, tmp_path / "data")))


def rewrite(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Name the file with most rows once more in the log, with statistics that ``change`` has changed."""
    [first, *_] = [one for one in said(path, "add") if "recount_is_null" in json.loads(one["stats"])["nullCount"]]
    stats = json.loads(first["stats"])
    change(stats)
    commit(path, [{"add": {**first, "stats": json.dumps(stats)}}])


FALSE: dict[str, Callable[[dict[str, Any]], None]] = {
    "least text": lambda said: said["minValues"].update(region="F"),
    "greatest text": lambda said: said["maxValues"].update(region="F"),
    "least number": lambda said: said["minValues"].update(recount_batch=2),
    "greatest number": lambda said: said["maxValues"].update(recount_batch=1),
    "least flag": lambda said: said["minValues"].update(recount_is_null=True),
    "a name with a point": lambda said: said["maxValues"].update({"weight.kg": 1}),
    "nulls": lambda said: said["nullCount"].update(region=0),
    "all nulls": lambda said: said["nullCount"].update(region=3),
    "rows": lambda said: said.update(numRecords=0),
}


@pytest.mark.parametrize("what", FALSE)
def test_statistics_that_are_false_are_named_with_their_file(tables: Tables, what: str) -> None:
    for path, place in written_tables(tables).items():
        rewrite(path, FALSE[what])
        [found] = [one for one in false_statistics(tables, TOPOLOGY) if one.place == place]
        assert (found.verdict, found.actual) == ("altered", "1 files have other rows, nulls or values")
        assert found.evidence[0].startswith("file part-")


def say_in_the_end_of_files(path: str, old: bytes, new: bytes) -> None:
    """Put ``new`` in the place of ``old`` in what each file of the table says of its row groups."""
    for name in DeltaTable(path).file_uris():
        file = Path(name)
        whole = file.read_bytes()
        start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
        file.write_bytes(whole[:start] + whole[start:].replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"), [(b"US", b"FF"), ((2).to_bytes(8, "little"), (1).to_bytes(8, "little"))], ids=["text", "number"]
)
def test_what_a_file_says_of_itself_is_compared_too(tables: Tables, old: bytes, new: bytes) -> None:
    path = tables.output("revenue")
    say_in_the_end_of_files(path, old, new)
    [found] = false_statistics(tables, TOPOLOGY)
    assert (found.place, found.verdict) == ("table outputs/revenue", "altered")
    assert found.actual == "2 files have other rows, nulls or values"


def test_wider_bounds_and_none_are_no_lie(tables: Tables) -> None:
    assert false_statistics(tables, TOPOLOGY) == false_statistics(Tables(str(tables.root) + "/none"), TOPOLOGY) == []
    path = tables.output("revenue")
    rewrite(path, lambda said: (said["minValues"].update(region="A"), said["maxValues"].update(region="Z")))  # type: ignore[func-returns-value]
    rewrite(path, lambda said: (said["minValues"].clear(), said["maxValues"].clear(), said["nullCount"].clear()))
    assert false_statistics(tables, TOPOLOGY) == []


def test_a_file_without_rows_is_no_lie(tables: Tables) -> None:
    """Spark leaves one where it deletes the only rows of a file."""
    ROWS.clear().write_parquet(Path(tables.output("revenue")) / "empty.parquet")
    for stats in ({}, {"stats": '{"numRecords":0}'}):
        add = {"path": "empty.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
        commit(tables.output("revenue"), [{"add": {**add, **stats}}])
        assert false_statistics(tables, TOPOLOGY) == []


CLICKS = stream(Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG)))
COUNTS = CLICKS.windowed_by(all_time()).aggregate(n=count()).emit_each_batch()
SESSIONS = CLICKS.windowed_by(session("5 s", grace="0 s")).aggregate(n=count()).emit_each_batch()
Row = tuple[str | None, int, int, int | None]
"""Key, generation, batch, revision."""


def written(flow: object, name: str) -> Written:
    return Topology(name="counts", sinks=[flow.to(Topic(name=name, key="user"))]).written[0]  # type: ignore[attr-defined]


def reordered(
    folder: Path,
    *rows: Row,
    seed: tuple[int, int] | None = None,
    flow: object = COUNTS,
    windows: list[int] | None = None,
    rows_at_once: int = 100,
) -> dict[str, str | None]:
    tables, sink = Tables(str(folder)), written(flow, "out")
    types = {sink.key: pl.String, GENERATION: pl.Int32, BATCH: pl.Int64, REVISION: pl.Int32}
    frame = pl.DataFrame(list(rows), schema=types, orient="row")
    if windows is not None:
        frame = frame.with_columns(pl.Series("window_start", windows), pl.Series("window_end", windows))
    write_deltalake(tables.output(sink.table), frame, mode="overwrite", schema_mode="overwrite")
    found = reordered_rows(tables, [identity_of(sink)], seed, (1, 9), rows_at_once=rows_at_once)
    assert {(one.place, one.verdict) for one in found} <= {("table outputs/out", "altered")}
    return {one.evidence[0]: one.actual for one in found}


@pytest.mark.parametrize("rows_at_once", [1, 100])
def test_an_earlier_revision_in_a_later_batch_is_named(tmp_path: Path, rows_at_once: int) -> None:
    good: list[Row] = [("ann", 0, 1, 0), ("ann", 0, 1, 1), ("ann", 0, 2, 2), ("bob", 0, 3, 0), ("ann", 1, 0, 3)]
    assert reordered(tmp_path, *good, rows_at_once=rows_at_once) == {}
    moved: list[Row] = [("ann", 0, 4, 0), *good[1:]]
    assert reordered(tmp_path, *moved, rows_at_once=rows_at_once) == {
        "batch 0/4": "1 rows of an earlier revision in a later batch"
    }
    of_generation: list[Row] = [("ann", 1, 1, 1), ("ann", 1, 1, 2), *good[3:]]
    assert reordered(tmp_path, *of_generation, rows_at_once=rows_at_once) == {
        "batch 1/1": "2 rows of an earlier revision in a later batch"
    }


def test_rows_of_other_keys_and_windows_have_revisions_of_their_own(tmp_path: Path) -> None:
    assert reordered(tmp_path, ("ann", 0, 1, 1), ("bob", 0, 2, 0), (None, 0, 1, 1), (None, 0, 2, 2)) == {}
    two: list[Row] = [("ann", 0, 1, 1), ("ann", 0, 2, 0)]
    assert reordered(tmp_path, *two, flow=SESSIONS, windows=[5, 6]) == {}
    assert list(reordered(tmp_path, *two, flow=SESSIONS, windows=[5, 5])) == ["batch 0/2"]


def test_what_was_looked_at_before_and_what_comes_later_is_left_out(tmp_path: Path) -> None:
    rows: list[Row] = [("ann", 0, 1, 5), ("ann", 0, 2, 4), ("ann", 0, 3, 6), ("ann", 2, 0, 0), ("ann", 0, 4, None)]
    assert list(reordered(tmp_path, *rows)) == ["batch 0/2"]
    assert reordered(tmp_path, *rows, seed=(0, 1)) == {}


def test_rows_of_records_do_not_replace_each_other_and_a_table_may_lack(tmp_path: Path) -> None:
    assert reordered(tmp_path, ("ann", 0, 1, 1), ("ann", 0, 2, 0), flow=CLICKS) == {}
    assert reordered_rows(Tables(str(tmp_path / "none")), [identity_of(written(COUNTS, "out"))], None, (0, 1)) == []


LEDGER = Ledger((batch(0, 10), batch(1, 20)))
COPIES = Topic(name="copies", key="k")


def strange(folder: Path, *batches: tuple[int | None, int | None], settled: Ledger | None = None) -> list[Difference]:
    """What is said of an output table with a row of each of these batches."""
    tables = Tables(str(folder))
    named = pl.DataFrame(list(batches), schema={GENERATION: pl.Int32, BATCH: pl.Int64}, orient="row")
    write_deltalake(tables.output("revenue"), named, mode="overwrite")
    for path in (tables.late(TOPOLOGY.name), tables.rejected(TOPOLOGY.name)):
        write_deltalake(path, named.clear(), mode="overwrite")

    def now() -> Ledger:
        assert settled is not None, "it is not asked"
        return settled

    return strange_rows(tables, TOPOLOGY, LEDGER, now)


def test_rows_of_a_batch_that_never_was_or_of_none_are_named_by_table_and_batch(tmp_path: Path) -> None:
    assert strange(tmp_path, (0, 0), (0, 1)) == []
    assert strange(tmp_path, (0, 1), (0, 2), settled=Ledger((*LEDGER.proofs, batch(2, 30)))) == [], "it came since"
    never = [(2_000_000_000, 5), (2_000_000_000, 5), (None, 1), (0, None), (0, 3)]
    found = strange(tmp_path, (0, 1), (0, 2), *never, settled=Ledger((*LEDGER.proofs, batch(2, 30))))
    assert {one.evidence: one.actual for one in found} == {
        ("batch 2000000000/5",): "2 rows",
        ("batch ?/1",): "1 rows",
        ("batch 0/?",): "1 rows",
        ("batch 0/3",): "1 rows",
    }
    assert {(one.kind, one.place, one.verdict) for one in found} == {("batch ledger", "table outputs/revenue", "extra")}


def test_the_late_ledger_and_the_rejected_records_are_looked_at_too(tmp_path: Path) -> None:
    strange(tmp_path, (0, 1))
    tables = Tables(str(tmp_path))
    row = pl.DataFrame({GENERATION: [9], BATCH: [9]}, schema={GENERATION: pl.Int32, BATCH: pl.Int64})
    write_deltalake(tables.late(TOPOLOGY.name), row, mode="append")
    write_deltalake(tables.rejected(TOPOLOGY.name), row, mode="append")
    found = strange_rows(tables, TOPOLOGY, LEDGER, lambda: LEDGER)
    assert [one.place for one in found] == ["late table", "rejected table"]


def test_a_batch_with_more_rows_than_it_wrote_has_one_of_another(tmp_path: Path) -> None:
    wrote = Ledger((replace(batch(0, 10), emitted={"revenue": 1}), replace(batch(1, 20), emitted={"revenue": 2})))
    of_earlier_release = Ledger((batch(0, 10), batch(1, 20)))
    tables = Tables(str(tmp_path))
    assert overfull_batches(tables, TOPOLOGY, wrote) == []
    for rows in [(0, 0), (0, 1), (0, 1)], [(0, 1)], [(0, 0), (0, 1), (0, 7), (0, 7)]:
        strange(tmp_path, *rows, settled=LEDGER)
        assert overfull_batches(tables, TOPOLOGY, wrote) == []
    strange(tmp_path, (0, 1), (0, 1), (0, 1))
    [found] = overfull_batches(tables, TOPOLOGY, wrote)
    assert (found.place, found.verdict) == ("table outputs/revenue", "altered")
    assert (found.expected, found.actual) == ("2 rows of batch 0/1", "3 rows")
    assert overfull_batches(tables, TOPOLOGY, of_earlier_release) == []
