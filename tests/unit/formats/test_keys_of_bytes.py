"""Keys of records that are any bytes: the same base64 to interpreter, stream, recompute and lens; and their erasure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.engine import LogRecord
from tests.unit.formats.three_readers import OUT, by_all

from recount.declare.aggregates import count
from recount.declare.fingerprint import Declared
from recount.declare.groups import Archive
from recount.declare.operators.keys_and_fields import raw_key
from recount.declare.operators.nodes import KEY
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import KeyForm, Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.lifecycle.archived_records import ArchiveErasure
from recount.lifecycle.erasing import Order
from recount.runtime.errors import InvalidDeclaration
from recount.runtime.settings import Settings
from recount.tables.places import Tables

TEXT = Topic(name="events", key="id", value=RecordSchema.of(n=LONG))
BYTES = replace(TEXT, key_form="bytes")


def grouped(topic: Topic) -> Topology:
    """By the key that records came with."""
    counts = stream(topic).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count())
    return Topology(name="counts", sinks=[counts.emit_final().to(OUT)])


def key_by_all(topic: Topic, key: bytes | None) -> str | None:
    """The key in rows, or the reason why the record is bad."""
    [told] = by_all(topic, [LogRecord(key=key)])
    return told if isinstance(told, str) else told[KEY]


@given(st.binary(max_size=9))
def test_any_bytes_are_a_key_in_base64_and_lead_back_to_them(key: bytes) -> None:
    text = key_by_all(BYTES, key)
    assert text is not None
    assert raw_key(BYTES, text) == key


def test_the_form_of_a_key_is_another_meaning_and_only_of_sources() -> None:
    text, raw = (Declared.of(grouped(topic)) for topic in (TEXT, BYTES))
    assert text.fingerprint != raw.fingerprint
    assert "key_form" not in str(text.document)
    with pytest.raises(InvalidDeclaration, match="read only"):
        stream(TEXT).to(replace(OUT, key_form="bytes"))
    with pytest.raises(InvalidDeclaration, match="key_form"):
        replace(TEXT, key_form="hex")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "key", "offsets"),
    [
        ("text", "ann", [0, 2]),
        ("text", "AQI=", [3]),
        ("bytes", "YW5u", [0, 2]),
        ("bytes", "AQI=", [1]),
        ("bytes", "ann", []),
    ],
)
def test_an_archive_finds_the_records_of_a_key_by_its_form(
    settings: Settings, form: KeyForm, key: str, offsets: list[int]
) -> None:
    topic = replace(TEXT, key_form=form)
    keys = [b"ann", b"\1\2", b"ann", b"AQI=", None]
    rows = {"partition": [0] * 5, "offset": list(range(5)), "key": keys}
    frame = pl.DataFrame(rows, schema={"partition": pl.Int32(), "offset": pl.Int64(), "key": pl.Binary()})
    write_deltalake(Tables(settings.data).archive("events"), frame.to_arrow())
    erasure = archive_erasure(settings, Archive(topic=topic), key, grouped(topic))
    assert erasure.places() == [(0, offset) for offset in offsets]
    # a reader that declares the key otherwise has it in its rows, too
    both = replace(erasure, declared=Archive(topic=TEXT), order=_order("AQI="))
    assert both.places() == [(0, offset) for offset in ([1, 3] if form == "bytes" else [3])]


def archive_erasure(settings: Settings, archive: Archive, key: str, *readers: Topology) -> ArchiveErasure:
    """Of the ``key``, whose records lie where the ``settings`` say."""
    return ArchiveErasure(settings=settings, declared=archive, readers=readers, order=_order(key))


def _order(key: str) -> Any:
    return Order(key=key, by="a test", reason="a test")
