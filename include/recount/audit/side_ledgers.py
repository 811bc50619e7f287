"""The stream's lists of single records (late ledger, rejected records, dead letters) against the recomputed ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

import polars as pl

from recount.core.finding import UNLISTED
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.verdict import Difference

LATE_LEDGER, DEAD_LETTERS = "late ledger", "dead letters"
RECORD = ("topic", "partition", "offset")
MAX_DIFFERENCES = 1_000

Rows = TypeVar("Rows")
"""Polars' or Spark's rows."""
_Place = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison(Generic[Rows]):
    """What the stream has ``listed`` in ``place``, and what it should have: ``values`` of records, by their place."""

    kind: str
    place: str
    recomputed: Rows
    listed: Rows
    values: Sequence[str]
    by_window: bool = False


def late_records(recomputed: Rows, ledger: Rows) -> Comparison[Rows]:
    """The late ledger beside the recomputed late (record, window) pairs.

    A record can be late for several operators, and for one that has no windows: then its lines are compared together.
    """
    return Comparison(
        kind=LATE_LEDGER,
        place="late table",
        recomputed=recomputed,
        listed=ledger,
        values=("timestamp_ms", "stream_time_ms", "key", WINDOW_END, "margin_ms"),
        by_window=True,
    )


def rejected_records(recomputed: Rows, table: Rows) -> Comparison[Rows]:
    """The table of rejected records beside the recomputed bad records."""
    return Comparison(
        kind=DEAD_LETTERS,
        place="rejected table",
        recomputed=recomputed,
        listed=table,
        values=("timestamp_ms", "reason"),
    )


def posted_letters(recomputed: Rows, letters: Rows, topic: str) -> Comparison[Rows]:
    """The dead-letter topic beside the recomputed bad records; a letter written twice counts."""
    return Comparison(kind=DEAD_LETTERS, place=topic, recomputed=recomputed, listed=letters, values=("reason",))


def side_ledger_differences(comparisons: Sequence[Comparison[pl.DataFrame]]) -> list[Difference]:
    """Where the lists differ, at most ``MAX_DIFFERENCES`` of each: what does not pair one to one, with equal values.

    One more says so where there are more.
    """
    found = []
    for one in comparisons:
        listed = list(islice(_differences(one), MAX_DIFFERENCES + 1))
        found += listed[:MAX_DIFFERENCES]
        if len(listed) > MAX_DIFFERENCES:
            found.append(unlisted_difference(one, listed[-1]))
    return found


def unlisted_difference(comparison: Comparison[Rows], first: Difference) -> Difference:
    """What stands for the differences of ``comparison`` from ``first`` on, which are not listed."""
    return Difference(
        kind=comparison.kind,
        place=comparison.place,
        verdict=UNLISTED,
        expected="no further record differs",
        actual="further records differ",
        cause=f"more than {MAX_DIFFERENCES} records differ: audit from the beginning once the listed ones are repaired",
        evidence=first.evidence,
    )


def difference(
    comparison: Comparison[Rows], row: Mapping[str, Any], should: Sequence[str], does: Sequence[str]
) -> Difference:
    """What is wrong where the place in ``row`` ``should`` say something and says something else."""
    verdict = _verdict(should, does)
    return Difference(
        kind=comparison.kind,
        place=comparison.place,
        verdict=verdict,
        window_start=row[WINDOW_START],
        expected=next(iter(should), None),
        actual=next(iter(does), None),
        cause=_CAUSES[verdict],
        evidence=(f"{row['topic']}-{row['partition']}@{row['offset']}",),
    )


def _differences(comparison: Comparison[pl.DataFrame]) -> Iterator[Difference]:
    should, does = (_said(comparison, rows) for rows in (comparison.recomputed, comparison.listed))
    wrong = (place for place in should.keys() | does.keys() if should.get(place) != does.get(place))
    for place in sorted(wrong, key=_null_first):
        row = dict(zip((*RECORD, WINDOW_START), place, strict=True))
        yield difference(comparison, row, should.get(place, ()), does.get(place, ()))


def _said(comparison: Comparison[pl.DataFrame], rows: pl.DataFrame) -> dict[_Place, list[str]]:
    """What is said of each record, and window where these matter."""
    windows = [WINDOW_START] if comparison.by_window else []
    said: dict[_Place, list[str]] = {}
    for row in rows.select(*RECORD, *windows, *comparison.values).iter_rows(named=True):
        place = (*(row[name] for name in RECORD), row[WINDOW_START] if windows else None)
        told = {name: row[name] for name in comparison.values if row[name] is not None}
        said.setdefault(place, []).append(json.dumps(told, ensure_ascii=False, separators=(",", ":")))
    return {place: sorted(lines) for place, lines in said.items()}


def _null_first(place: _Place) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in place]


def _verdict(should: Sequence[str], does: Sequence[str]) -> str:
    if not should:
        return "extra"
    if len(does) < len(should):
        return "lost"
    return "altered" if set(does) != set(should) or len(does) == len(should) else "duplicated"


_CAUSES = {
    "lost": "the stream did not list a record that the log and its stream time make one",
    "extra": "the stream lists a record that the log and its stream time do not make one",
    "altered": "the stream judged the record by another time, key or reason than the log gives",
    "duplicated": "the record is listed more than once",
}
