"""A certificate can be checked with nothing but files, and no change of it goes unnoticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recount.audit.certificate import certificates_in, load, verify_file
from recount.audit.page import page
from recount.core.certificate import Unverified, certified, fingerprint
from recount.core.errors import Terminal

PARTITION = {
    "topic": "orders",
    "partition": 0,
    "start": 0,
    "end": 12,
    "records": 10,
    "counted": 8,
    "late": 1,
    "filtered": 0,
    "null_key": 0,
    "dead_lettered": 1,
    "control": 2,
    "aborted": 0,
    "compacted": 0,
    "expired": 0,
    "unaccounted": 0,
    "stream_time_ms": 1_000,
}
MISS = {
    "key": "EU",
    "window_start": 0,
    "window_end": 300_000,
    "published": '{"orders":5}',
    "complete": '{"orders":6}',
    "late_records": 1,
    "late": ["orders-0@7 +180000 ms"],
    "explained": True,
}


def findings(audit: str) -> dict[str, Any]:
    """The document of a small audit that matched, with one explained grace miss."""
    return {
        "audit": audit,
        "stream": "revenue",
        "outcome": "match",
        "interval_ms": [None, None],
        "source": "kafka",
        "seed": None,
        "cut": {"generation": 0, "batch": 3, "batch_timestamp_ms": 1_000, "frontier_ms": 900},
        "batches": 4,
        "declaration": {"source": "orders", "steps": [], "aggregation": "count", "sink": "revenue", "table": "revenue"},
        "partitions": [PARTITION],
        "totals": {name: PARTITION[name] for name in ("records", "counted", "late", "filtered", "null_key")}
        | {"dead_lettered": 1},
        "published_ends": {"0": 3},
        "results": 2,
        "verdicts": {"kafka": {"match": 2}, "delta": {"match": 2}, "completeness": {"kept": 1, "missed": 1}},
        "differences_found": 0,
        "differences": [],
        "grace_misses_found": 1,
        "grace_misses": [MISS],
        "charted": "orders",
        "series": [{"window_start": 0, "expected": "5", "published": "5", "complete": "6"}],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three nights of one stream."""
    previous = None
    for audit in ("night-1", "night-2", "night-3"):
        previous = certified(findings(audit), previous)
        (tmp_path / f"{audit}.json").write_text(json.dumps(previous))
    return tmp_path


def changed(folder: Path, audit: str, change: Callable[[dict[str, Any]], object], *, rehash: bool = False) -> Path:
    path = folder / f"{audit}.json"
    document = json.loads(path.read_text())
    change(document)
    if rehash:
        document["sha256"] = fingerprint(document)
    path.write_text(json.dumps(document))
    return path


def test_a_chain_of_certificates_verifies_to_its_first(folder: Path) -> None:
    checked = verify_file(folder / "night-3.json")
    assert len(checked) == 4
    assert "chain is complete" in checked[-1]


def test_a_chain_whose_predecessor_is_not_at_hand_says_where_it_ends(folder: Path) -> None:
    missing = load(folder / "night-2.json")["sha256"]
    (folder / "night-2.json").unlink()
    assert missing in verify_file(folder / "night-3.json")[-1]


def test_a_changed_certificate_does_not_verify(folder: Path) -> None:
    path = changed(folder, "night-3", lambda document: document["verdicts"]["kafka"].update(match=3))
    with pytest.raises(Unverified, match="sha256"):
        verify_file(path)


def test_a_changed_predecessor_breaks_the_chain_even_when_it_was_hashed_again(folder: Path) -> None:
    changed(folder, "night-1", lambda document: document.update(source="archive"), rehash=True)
    assert "chain ends here" in verify_file(folder / "night-3.json")[-1]
    changed(folder, "night-2", lambda document: document.update(source="archive"))
    with pytest.raises(Unverified, match="sha256"):
        verify_file(folder / "night-2.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["partitions"][0].update(counted=9),
        lambda document: document["totals"].update(late=2),
        lambda document: document["verdicts"]["delta"].update(match=1),
        lambda document: document.update(outcome="violation"),
        lambda document: document.update(differences_found=1),
        lambda document: document["verdicts"]["kafka"].update({"match": 1, "lost": 1}),
        lambda document: document["grace_misses"][0].update(explained=False),
        lambda document: document["partitions"][0].update(control=1, unaccounted=1),
    ],
)
def test_a_certificate_that_contradicts_itself_does_not_verify(
    folder: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(Unverified):
        verify_file(changed(folder, "night-3", change, rehash=True))


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(Terminal):
        certificates_in(tmp_path)
    with pytest.raises(Terminal):
        load(tmp_path / "missing.json")


def test_the_page_stands_alone_and_names_every_difference_by_its_offsets() -> None:
    difference = {
        "kind": "output",
        "place": "topic revenue",
        "verdict": "duplicated",
        "key": "<b>EU</b>",
        "window_start": 0,
        "window_end": 300_000,
        "expected": '{"orders":5}',
        "actual": '{"orders":5}',
        "cause": "one revision was written 2 times",
        "evidence": ["revenue-0@0", "revenue-0@23"],
    }
    document = findings("night-1") | {"outcome": "violation", "differences_found": 1, "differences": [difference]}
    html = page(certified(document, None))
    for text in ("duplicated", "revenue-0@23", "orders-0@7 +180000 ms", "&lt;b&gt;EU&lt;/b&gt;", "<svg"):
        assert text in html
    assert "http" not in html
    assert "<script" not in html
