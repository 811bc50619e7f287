from __future__ import annotations

from pathlib import Path

import pytest
from bench.lens_engines import Held, batches_in

from recount.lens.differing_results import Between


def test_batches_without_data_are_none(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    for batch, (first, second) in enumerate([(10, 20), (10, 20), (30, 20), (30, 25)]):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{{"orders":{{"0":{first},"1":{second}}}}}'
        (tmp_path / "offsets" / str(batch)).write_text(text)
    found = batches_in(tmp_path)
    assert {p: bounds.tolist() for p, bounds in found.items()} == {0: [0, 10, 30, 30], 1: [0, 20, 20, 25]}


@pytest.mark.parametrize(("dropped", "holds"), [(1, False), (2, True), (5, True), (6, False)])
def test_a_count_beyond_the_bounds_does_not_hold(dropped: int, holds: bool) -> None:
    assert Held(job="j", engine="e", reading="r", model=Between(2, 5), dropped=dropped).holds == holds
