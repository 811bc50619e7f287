"""Which streams share a driver is declared, and what cannot be so is refused where it is declared."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from recount.declare.groups import Archive, StreamGroup
from recount.declare.registry import Declarations, declared
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import InvalidDeclaration, Terminal

CLICKS = Archive(topic=Topic(name="clicks", key="id"))
VIEWS = Archive(topic=Topic(name="views", key="id"))
MODULE = "declared_groups"
BEGINNING = """
from recount.declare.groups import Archive
from recount.declare.groups import StreamGroup
from recount.declare.limits import Resources
from recount.declare.run_settings import DRIVER_OPTIONS, RunSettings
from recount.declare.topics import Topic

clicks = Archive(topic=Topic(name="clicks", key="id"))
views = Archive(topic=Topic(name="views", key="id"))
"""


def named(name: str) -> Topology:
    clicks = Topic(name="clicks", key="id", value=RecordSchema.of(n=LONG))
    return Topology(name=name, sinks=[stream(clicks).to(Topic(name="out", key="id"))])


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop(MODULE, None)


def module_of(folder: Path, text: str) -> Declarations:
    (folder / f"{MODULE}.py").write_text(BEGINNING + dedent(text))
    return declared(MODULE)


def test_a_group_names_its_streams_and_how_often_their_batches_start() -> None:
    group = StreamGroup(name="archives", streams=(CLICKS, VIEWS), trigger_interval="10 s")
    assert group.members == ("archive-clicks", "archive-views")
    assert group.trigger_interval_ms == 10_000


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("group name", {"name": "Page views"}),
        ("group name", {"name": "g" * 91}),
        ("streams of group g", {"streams": [named("audit")]}),
        ("streams of group g", {"streams": [CLICKS, named("panels")]}),
        ("streams of group g", {"streams": []}),
        ("streams of group g", {"streams": "clicks"}),
        ("streams of group g", {"streams": CLICKS}),
        ("streams of group g", {"streams": ["archive-clicks"]}),
        ("streams of group g", {"streams": [CLICKS.topic]}),
        ("streams of group g", {"streams": [CLICKS, VIEWS, CLICKS]}),
        ("trigger_interval", {"trigger_interval": "soon"}),
        ("trigger_interval", {"trigger_interval": "-1 s"}),
        ("max_offsets of group g", {"max_offsets": 0}),
        ("max_offsets of group g", {"max_offsets": True}),
        ("driver_memory of group g", {"driver_memory": "much"}),
        ("driver_memory of group g", {"driver_memory": 2}),
    ],
)
def test_what_can_be_no_group_is_refused(field: str, more: dict[str, object]) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        StreamGroup(**{"name": "g", "streams": [CLICKS], **more})  # type: ignore[arg-type]
    assert refused.value.field == field


def test_groups_are_found_with_their_streams_and_other_streams_run_alone(folder: Path) -> None:
    found = module_of(folder, 'mine = StreamGroup(name="mine", streams=[clicks])')
    assert found.group_of("archive-clicks") is found.group("mine") is found.groups["mine"]
    assert found.group_of("archive-views") is None
    assert found.modules == {"archive-clicks": MODULE, "archive-views": MODULE}


def test_a_group_that_is_not_declared_is_told_with_those_that_are(folder: Path) -> None:
    with pytest.raises(Terminal, match="mine"):
        module_of(folder, 'mine = StreamGroup(name="mine", streams=[clicks])').group("yours")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("archive-views, which is in group a", 'b = StreamGroup(name="b", streams=[views])'),
        ("archive-views", 'c = StreamGroup(name="archive-views", streams=[clicks])'),
        ("a", 'd = StreamGroup(name="a", streams=[clicks])'),
        ("archive-other", 'e = StreamGroup(name="e", streams=[Archive(topic=Topic(name="other", key="id"))])'),
        ("archive-clicks", 'f = StreamGroup(name="f", streams=[Archive(topic=clicks.topic)])'),
    ],
    ids=["two groups", "name of a stream", "name of a group", "not declared", "declared otherwise"],
)
def test_groups_that_cannot_be_beside_each_other_are_refused(folder: Path, given: str, text: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        module_of(folder, f'a = StreamGroup(name="a", streams=[views])\n{text}')
    assert refused.value.given == given


def test_the_shop_runs_in_at_most_four_drivers() -> None:
    shop = declared()
    assert len(shop.groups) <= 4
    assert [stream for stream in shop.streams if shop.group_of(stream) is None] == []


def test_each_stream_of_the_shop_belongs_to_the_module_that_declares_it() -> None:
    shop = declared()
    assert shop.modules["revenue-by-region"] == shop.modules["archive-orders"] == "topologies.orders"
    assert shop.modules["views-last-100"] == "topologies.windows"
    assert "topologies.shared_drivers" not in shop.modules.values()


def test_a_module_of_the_shop_alone_has_a_driver_for_each_stream() -> None:
    assert declared("topologies.orders").groups == {}
