"""Item 1.4: a field that was added to a source is null, and unchecked, in records that were read before."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tests.whole_topic import whole_topic

from recount.declare.operators.nodes import Source
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.recompute.decoding import DecodePass

SOURCE = Source(topic=Topic(name="clicks", key="user", value=RecordSchema.of(n=LONG, m=LONG, w=STRING)))


def decoded(since: dict[str, dict[int, int]], *batches: list[int], partition: int = 1) -> list[tuple[object, ...]]:
    """Offset, ``m``, ``w`` and reason of records all of which have a text ``w``, and ``m`` a text at odd offsets."""
    flow = whole_topic(source=SOURCE, needs_record_key=False)
    decode = DecodePass(flow=flow, limits={}, read_since=since)
    rows = [
        pa.RecordBatch.from_pylist(
            [
                {
                    "partition": partition,
                    "offset": offset,
                    "timestamp_ms": 0,
                    "key": b"ada",
                    "value": json.dumps({"n": 1, "m": "text" if offset % 2 else offset, "w": "w"}).encode(),
                }
                for offset in offsets
            ],
            schema=pa.schema(
                {
                    "partition": pa.int32(),
                    "offset": pa.int64(),
                    "timestamp_ms": pa.int64(),
                    "key": pa.binary(),
                    "value": pa.binary(),
                }
            ),
        )
        for offsets in batches
    ]
    made = [row for batch in decode(iter(rows)) for row in batch.to_pylist()]
    return [(row["offset"], row["m"], row["w"], row["reason"]) for row in made]


@pytest.mark.parametrize("batches", [([3, 4, 5, 6],), ([3], [4, 5], [6]), ([3, 4], [5, 6])])
def test_before_it_was_read_a_field_is_null_and_any_value_of_it_is_good(batches: tuple[list[int], ...]) -> None:
    found = decoded({"m": {1: 5, 0: 1}}, *batches)
    assert found == [(3, None, "w", None), (4, None, "w", None), (5, None, None, "schema"), (6, 6, "w", None)]


def test_each_of_several_fields_is_read_from_its_own_offset() -> None:
    found = decoded({"m": {1: 4}, "w": {1: 6}}, [2, 3, 4, 6, 8])
    assert found == [
        (2, None, None, None),
        (3, None, None, None),
        (4, 4, None, None),
        (6, 6, "w", None),
        (8, 8, "w", None),
    ]


def test_a_partition_that_came_after_the_upgrade_was_read_with_the_field_from_its_first_record() -> None:
    assert decoded({"m": {0: 9}}, [0, 1]) == [(0, 0, "w", None), (1, None, None, "schema")]
