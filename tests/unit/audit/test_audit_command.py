"""Which streams a call audits, which of them can be, and what its exit code says of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from typer.testing import CliRunner

from recount.audit.audit_commands import _exit_code, _interval, _topologies, audit
from recount.audit.audit_session import COLLECTOR, FEW_OFFSETS, JAVA_FOR_FEW, java_options_for
from recount.audit.cut.auditable import Auditable, AuditRequest, objections, require_auditable, writes_nothing
from recount.audit.findings.finding_register import Interval
from recount.audit.integrity.strangers import damage_told
from recount.audit.night import Outcome
from recount.declare.groups import Archive, StreamGroup
from recount.declare.registry import Declarations
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings

CLICKS = Topic(name="clicks", key="id", value=RecordSchema.of(page=STRING))


def copy(name: str) -> Topology:
    return Topology(name=name, sinks=[stream(CLICKS).to(Topic(name=name, key="id"))])


A, B, C, KEPT = copy("a"), copy("b"), copy("c"), Archive(topic=CLICKS)
SHOWN = Topology(name="shown", actions=[stream(CLICKS).foreach(print)])
DECLARED = Declarations(
    topologies={one.name: one for one in (A, B, SHOWN, C)},
    topics={},
    archives={KEPT.name: KEPT},
    groups={
        "some": StreamGroup(name="some", streams=[A, KEPT, SHOWN, B]),
        "archives": StreamGroup(name="archives", streams=[KEPT, SHOWN]),
    },
)


def test_streams_a_group_or_all_can_be_audited() -> None:
    assert _topologies(DECLARED, ["b", "a", "b"], None, every=False) == [B, A]
    assert _topologies(DECLARED, [], "some", every=False) == [A, B]
    assert _topologies(DECLARED, [], None, every=True) == [A, B, C]


def test_where_nothing_writes_there_is_nothing_to_audit() -> None:
    with pytest.raises(Terminal, match="nothing to audit"):
        _topologies(Declarations(topologies={"shown": SHOWN}, topics={}), [], None, every=True)
    assert [str(one) for one in objections(SHOWN)] == [str(writes_nothing(SHOWN))]


@pytest.mark.parametrize(
    ("streams", "group", "every"),
    [
        ([], None, False),
        (["a"], "some", False),
        (["a"], None, True),
        (["d"], None, False),
        ([], "others", False),
        ([], "archives", False),
    ],
)
def test_what_names_no_stream_or_names_them_twice_is_refused(
    streams: list[str], group: str | None, every: bool
) -> None:
    with pytest.raises(Terminal):
        _topologies(DECLARED, streams, group, every=every)


@pytest.mark.parametrize(("start", "end"), [("1501", "1500"), ("2026-11-22", "2026-11-21T23:59:59.999Z")])
def test_an_interval_that_starts_after_its_end_is_refused_before_settings_are_read(start: str, end: str) -> None:
    app = typer.Typer()
    app.command()(audit)
    refused = CliRunner().invoke(app, ["--all", "--start", start, "--end", end], env={"RECOUNT_PROFILE": "?"}).exception
    assert isinstance(refused, Terminal)
    assert refused.what == "the start of the data interval is after its end"
    assert refused.given == f"--start {start}, --end {end}"


@pytest.mark.parametrize(("start", "end"), [("1499", "1500"), ("1500", "1500"), ("1500", None), (None, "1500")])
def test_an_interval_may_be_empty_or_open(start: str | None, end: str | None) -> None:
    interval = _interval(start, end)
    assert [interval.start_ms, interval.end_ms] == [text and int(text) for text in (start, end)]


@pytest.mark.parametrize(
    ("outcomes", "exit_code"),
    [
        (["match", "match"], 0),
        (["match", "warning"], 4),
        (["warning", "transient"], 75),
        (["transient", "terminal"], 1),
        (["transient", "crash"], 1),
        (["terminal", "violation", "warning"], 3),
    ],
)
def test_the_exit_code_is_that_of_what_matters_most(tmp_path: Path, outcomes: list[str], exit_code: int) -> None:
    refusals = {"transient": Transient("busy"), "terminal": Terminal("no"), "crash": RuntimeError("bug")}
    for name, more in {"match": {}, "warning": {"warnings": ["late"]}, "violation": {"outcome": "violation"}}.items():
        document = {"outcome": "match", "warnings": [], "sha256": "", **more}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    found = [
        Outcome(stream=name, refusal=refusals[name])
        if name in refusals
        else Outcome(stream=name, certificate=tmp_path / f"{name}.json")
        for name in outcomes
    ]
    assert _exit_code(found) == exit_code


def test_a_jvm_for_few_records_spares_the_optimizing_compiler() -> None:
    assert java_options_for(FEW_OFFSETS) == JAVA_FOR_FEW
    assert java_options_for(FEW_OFFSETS + 1) == COLLECTOR


REQUEST = AuditRequest(audit="night-1", interval=Interval(), source="auto")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(DeltaError("a gap"), Terminal), (KeyError("partitions"), KeyError), (Transient("x"), Transient)],
)
def test_each_stream_has_its_refusal_whatever_it_is(raised: Exception, kind: type[Exception]) -> None:
    def keys(_: object) -> str:
        raise raised

    settings: Any = type("Settings", (), {"keys": property(keys)})()
    found = Auditable.of(settings, [A, B], REQUEST)
    assert found.offsets == {}
    assert {name: type(one) for name, one in found.refusals.items()} == {"a": kind, "b": kind}


def test_damage_of_a_table_is_told_with_its_stream_and_the_first_line_of_what_was_said(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    [file] = map(Path, DeltaTable(tmp_path).file_uris())

    def read() -> None:
        with pytest.raises(Terminal) as told, damage_told("orders"):
            pl.scan_delta(str(tmp_path)).collect()
        assert "orders" in told.value.what and "\n" not in str(told.value.given)
        assert told.value.__cause__ is not None

    file.write_bytes(b"no parquet")
    read()
    with pytest.raises(Terminal), damage_told("orders"):
        pq.read_table(file)
    file.unlink()
    read()
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("no JSON")
    read()
    with pytest.raises(Terminal), damage_told("orders"):
        raise AnalysisException("[UNRESOLVED_COLUMN] recount_revision")


@pytest.mark.parametrize("raised", [Transient("later"), ValueError("ours"), ConnectionError("refused")])
def test_what_is_no_damage_stays_as_it_is(raised: Exception) -> None:
    with pytest.raises(type(raised)) as told, damage_told("orders"):
        raise raised
    assert told.value is raised


def test_a_stream_that_writes_nothing_is_refused_before_spark_starts(settings: Settings) -> None:
    with pytest.raises(Terminal, match=r"shown writes no records.*actions only"):
        require_auditable(settings, SHOWN, REQUEST)
