"""Fidelity: every due result is there exactly once per revision, with the value that the log gives it.

All claims about a key and window (the recomputed result, the copies on Kafka, the rows in Delta) are lined up in one
row, and each place is judged from that row. The table ``reconciliation`` keeps what each side says, so that others can
judge it again. Its row is a row of a sink (``verdicts`` has its verdict, this table has none):

| columns | what they are |
| --- | --- |
| ``sink``, ``table``, ``key``, ``window_start``, ``window_end``, ``origin`` | which row; text and milliseconds |
| ``<side>`` of ``expected``, ``kafka``, ``delta`` | the last revision, or each row of the origin: JSON, no doubles |
| ``<side>_doubles`` | the doubles of these, one row after the other, in the order of the declaration |
| ``expected_at_ms``, ``kafka_kept_since_ms`` | event time; since when the topic keeps records (null: ever) |
| ``delta_kept_since_ms`` | since when the table keeps rows, by ``window_end``, else event time (null: ever) |
| ``compaction_takes`` | whether compaction may have taken the row from the topic |
| ``is_held`` | whether a suppression still held the row back: it may have any value or none |
| ``<place>_lowest``, ``_highest``, ``_revisions``, ``_copies`` | of the revisions there, and the most copies of one |
| ``<place>_first`` | the revision that the first one must be; null where revisions may lack |
| ``<place>_stood`` | the revision that stood there when an earlier audit ended: none is written before it |
| ``<place>_lacks``, ``places_differ`` | whether an earlier revision is in the other place only, or other there |
| ``<place>_latest``, ``_latest_doubles``, ``_corrections`` | corrections, and the most copies of one |

``<place>_latest`` has the rows of each correction after its revision, without those that have left the topic by its
rules.
"""

from __future__ import annotations

import polars as pl

from recount.audit.compare.published import DELTA, KAFKA
from recount.audit.compare.results import EXPECTED
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START

MATCH, LOST, DUPLICATED, ALTERED, EXTRA, EXPIRED = "match", "lost", "duplicated", "altered", "extra", "expired"
PLACES = (KAFKA, DELTA)
SIDES = (EXPECTED, *PLACES)
_TEXTS, _DOUBLES = pl.List(pl.String()), pl.List(pl.Float64())
_OF_PLACE = {
    "lowest": pl.Int32(),
    "highest": pl.Int32(),
    "revisions": pl.Int64(),
    "copies": pl.Int64(),
    "first": pl.Int32(),
    "stood": pl.Int32(),
    "lacks": pl.Boolean(),
    "latest": _TEXTS,
    "latest_doubles": _DOUBLES,
    "corrections": pl.Int64(),
}
SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("sink", "table", "key"), pl.String()),
    **dict.fromkeys((WINDOW_START, WINDOW_END), pl.Int64()),
    "origin": pl.String(),
    **dict.fromkeys(SIDES, _TEXTS),
    **{f"{side}_doubles": _DOUBLES for side in SIDES},
    **dict.fromkeys(("expected_at_ms", "kafka_kept_since_ms", "delta_kept_since_ms"), pl.Int64()),
    **dict.fromkeys(("compaction_takes", "is_held", "places_differ"), pl.Boolean()),
    **{f"{place}_{name}": kind for place in PLACES for name, kind in _OF_PLACE.items()},
}
