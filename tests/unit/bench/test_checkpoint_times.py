from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.checkpoint_times import processing_span_ms


def _write(folder: Path, name: str, text: str, at_ms: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two batches that end at record 30 and at record 50, and an empty one after them."""
    for batch, (end, planned_ms, committed_ms) in enumerate(
        [(10, 1_000, 2_000), (30, 2_500, 4_000), (30, 4_500, 9_000)]
    ):
        offsets = f'v1\n{{"batchTimestampMs":0}}\n{{"orders":{{"0":{end},"1":20}}}}'
        _write(tmp_path / "offsets", str(batch), offsets, planned_ms)
        _write(tmp_path / "commits", str(batch), "v1\n{}", committed_ms)
    _write(tmp_path / "offsets", ".2.crc", "", 0)
    return tmp_path


def test_the_span_ends_with_the_batch_that_holds_the_last_record_not_with_an_empty_one(
    checkpoint: Path,
) -> None:
    assert processing_span_ms(checkpoint, 50) == (1_000, 4_000)
    assert processing_span_ms(checkpoint, 31) == (1_000, 4_000)


def test_the_span_of_what_the_first_batch_holds_is_that_batch(checkpoint: Path) -> None:
    assert processing_span_ms(checkpoint, 30) == (1_000, 2_000)


def test_what_leaves_in_the_end_is_in_the_span_even_if_a_batch_without_records_lets_it_go(checkpoint: Path) -> None:
    assert processing_span_ms(checkpoint, 50, to_the_end=True) == (1_000, 9_000)


def test_the_records_of_several_sources_add_up(tmp_path: Path) -> None:
    _write(tmp_path / "offsets", "0", 'v1\n{}\n{"orders":{"0":10}}\n{"payments":{"0":9}}', 1_000)
    _write(tmp_path / "commits", "0", "v1\n{}", 2_000)

    assert processing_span_ms(tmp_path, 19) == (1_000, 2_000)


def test_a_query_that_did_not_reach_the_last_record_has_no_span(checkpoint: Path) -> None:
    with pytest.raises(StopIteration):
        processing_span_ms(checkpoint, 51)
