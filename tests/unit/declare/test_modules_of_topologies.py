"""A module of topologies that cannot be imported is told with its file and line, in one sentence."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from recount.declare.registry import declared
from recount.runtime.errors import InvalidDeclaration, Terminal

TOPIC = "from recount.declare.topics import Topic\n\n"
BROKEN = {
    "an argument is missing": (TOPIC + 'orders = Topic(name="orders")\n', 3, "missing a required argument"),
    "a parenthesis is open": (TOPIC + 'orders = Topic(name="orders"\n', 3, "SyntaxError"),
    "a library is missing": ("import no_such_library\n", 1, "ModuleNotFoundError"),
    "a name is wrong": ("from recount.declare.topics import topic\n", 1, "ImportError"),
    "a function of its own fails": ("def rate():\n    return 1 / 0\n\n\nrates = rate()\n", 2, "ZeroDivisionError"),
}


@pytest.mark.parametrize(("text", "line", "kind"), BROKEN.values(), ids=BROKEN)
def test_a_module_that_cannot_be_imported_is_told_with_its_line(
    text: str, line: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = _written(text, tmp_path, monkeypatch)
    with pytest.raises(Terminal) as refused:
        declared("parcels")
    assert kind in str(refused.value.given)
    assert refused.value.place == f"{module}:{line}"
    assert f"{module}:{line}" in str(refused.value)


def test_a_declaration_that_is_refused_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _written(TOPIC + 'orders = Topic(\n    name="my orders",\n    key="id",\n)\n', tmp_path, monkeypatch)
    with pytest.raises(InvalidDeclaration, match="topic name") as refused:
        declared("parcels")
    assert refused.value.given == "my orders"
    assert refused.value.place == f"{module}:3"


SOURCES = """
from recount.declare.groups import Archive
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream

orders, visits = (Topic(name=name, key="id", value=RecordSchema.of(n=LONG)) for name in ("orders", "visits"))
copied = Topology(name="copied", sinks=[stream(orders).to(Topic(name="copies", key="id"))])
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            'mended = Topology(name="mended", sinks=[stream(visits).to(Topic(name="orders.dlq", key="id"))])',
            "by copied",
        ),
        (
            'again = Topology(name="again", sinks=[stream(visits).to(copied.sinks[0].topic)])',
            "written by copied and again",
        ),
        (
            'one, two = (Topology(name=name, sinks=[stream(visits).to(Topic(name=out, key="id"))])'
            ' for name, out in (("one", "a-b"), ("two", "a.b")))',
            "written by one and two",
        ),
        (
            'kept, mine = Archive(topic=visits), Topology(name="archive-visits", sinks=[stream(visits)'
            '.to(Topic(name="kept", key="id"))])',
            "lease",
        ),
        (
            'dotted = Topology(name="dotted", sinks=[stream(visits).to(Topic(name="orders_dlq", key="id"))])',
            "orders_dlq and orders.dlq",
        ),
        (
            'twice = Topology(name="twice", sinks=[stream(visits).to(Topic(name="a.b", key="id"), table="one"),'
            ' stream(visits).to(Topic(name="a_b", key="id"), table="other")])',
            "a.b and a_b",
        ),
        (
            'kept, old = (Archive(topic=Topic(name=name, key="id")) for name in ("visits-2", "visits-2.backfill"))',
            "consumer group",
        ),
    ],
)
def test_streams_that_would_write_over_each_other_are_refused(
    text: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters of one stream would be extra in the audits of the other, and one would fence the other for ever.

    Kafka creates no topic beside one that differs in . and _ only, and `recount reset` deletes the group of backfills.
    """
    _written(SOURCES, tmp_path, monkeypatch)
    assert list(declared("parcels").topologies) == ["copied"]
    monkeypatch.delitem(sys.modules, "parcels")
    _written(SOURCES + text, tmp_path, monkeypatch)
    with pytest.raises(InvalidDeclaration, match=what):
        declared("parcels")


def test_topics_of_others_that_differ_in_dots_are_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = 'one, other = (Topic(name=name, key="id", value=orders.value) for name in ("a.b", "a_b"))'
    _written(SOURCES + others, tmp_path, monkeypatch)
    assert {"a.b", "a_b"} <= declared("parcels").topics.keys()


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_source_without_an_archive_is_refused(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted = SOURCES.replace('key="id", value', f'key="id", cleanup_policy="{policy}", value')
    _written(compacted, tmp_path, monkeypatch)
    with pytest.raises(InvalidDeclaration, match="orders of copied") as refused:
        declared("parcels")
    assert "Archive(topic=orders)" in str(refused.value.remedy)
    monkeypatch.delitem(sys.modules, "parcels")
    _written(compacted + "kept = Archive(topic=orders)\n", tmp_path, monkeypatch)
    importlib.invalidate_caches()
    assert set(declared("parcels").streams) == {"copied", "archive-orders"}


def _written(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = folder / "parcels.py"
    module.write_text(text)
    _importable(folder, monkeypatch)
    return module


def _importable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "parcels", raising=False)
