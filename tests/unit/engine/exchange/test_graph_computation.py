"""Records of a batch that are read again are those asked for, byte for byte; one that is gone is an error."""

from __future__ import annotations

import polars as pl
import pytest
from tests.unit.engine.engine import LogRecord, arrow_batch, cut

from recount.engine.exchange.graph_computation import RAW_SCHEMA, RawStage, with_raw
from recount.engine.stage.intake import PLACE, from_ipc
from recount.runtime.errors import Terminal

BATCH = arrow_batch("orders", 1, 7, [LogRecord(partition=1, key=b"\xff", value=bytes([n])) for n in range(4)])


def places(*offsets: int, partition: int = 1) -> pl.DataFrame:
    return pl.DataFrame([("orders", partition, offset) for offset in offsets], PLACE, orient="row")


def read(asked: pl.DataFrame) -> pl.DataFrame:
    stage = RawStage.of(asked)
    sent = [from_ipc(one["ipc"]) for batch in stage(cut(BATCH, [1, 1, 3])) for one in batch.to_pylist()]
    return pl.concat([pl.DataFrame(schema=RAW_SCHEMA), *sent])


def test_the_records_asked_for_come_as_they_are() -> None:
    assert read(places(8, 10)).rows() == [("orders", 1, 8, b"\xff", b"\x01"), ("orders", 1, 10, b"\xff", b"\x03")]
    assert read(places(8, partition=0)).is_empty()


def test_a_record_that_is_gone_is_an_error() -> None:
    assert with_raw(places(10, 7), read)["record_value"].to_list() == [b"\x03", b"\x00"]
    with pytest.raises(Terminal, match="not there"):
        with_raw(places(7, 11), read)
