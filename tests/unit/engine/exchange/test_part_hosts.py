"""A part that does not answer is an error that says so, not a broken task."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest

from recount.engine.exchange.part_hosts import FAILED, Request, ask
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.runtime.errors import Transient

REQUEST = Request(
    run="one",
    parts=2,
    plan=b"",
    state="",
    before=(0, 0),
    span=BatchRange(batch=0, timestamp_ms=0, start={}, end={}),
    clock=PartitionClock.after(None),
    whole=False,
    outputs={},
)


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("recount.engine.exchange.part_hosts._LONGEST_FOLDER", 1_000)
    [(name, _)] = ask(REQUEST)  # makes the folder; the empty plan fails in the process
    [folder] = tmp_path.iterdir()
    assert name == FAILED
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    [(name, error)] = ask(REQUEST)
    assert name == FAILED
    with pytest.raises(Transient, match="open to others"):
        raise pickle.loads(error)  # noqa: S301 - made just now
