"""Which streams a call audits, and what its exit code says of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from recount.audit.audit_commands import _exit_code, _interval, _topologies, audit
from recount.audit.audit_session import COLLECTOR, FEW_OFFSETS, JAVA_FOR_FEW, java_options_for
from recount.audit.group_night import Outcome
from recount.audit.objections import objections, writes_nothing
from recount.declare.groups import Archive, StreamGroup
from recount.declare.registry import Declarations
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import Terminal, Transient

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
    refusals: dict[str, Exception] = {
        "transient": Transient("busy"),
        "terminal": Terminal("no"),
        "crash": RuntimeError("bug"),
    }
    found = []
    for name in outcomes:
        if name in refusals:
            found.append(Outcome(stream=name, refusal=refusals[name]))
            continue
        document: dict[str, Any] = {"outcome": "match", "warnings": [], "sha256": ""}
        document |= {"warning": {"warnings": ["late"]}, "violation": {"outcome": "violation"}}.get(name, {})
        certificate = tmp_path / f"{name}.json"
        certificate.write_text(json.dumps(document))
        found.append(Outcome(stream=name, certificate=certificate))
    assert _exit_code(found) == exit_code


def test_a_jvm_for_few_records_spares_the_optimizing_compiler() -> None:
    assert java_options_for(FEW_OFFSETS) == JAVA_FOR_FEW
    assert java_options_for(FEW_OFFSETS + 1) == COLLECTOR
