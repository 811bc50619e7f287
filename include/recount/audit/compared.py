"""What each side says of every row that an audit judged, as values and counts, so that others can judge them again.

A row of the table ``reconciliation`` is a row of a sink (``verdicts`` has its verdict, this table has none):

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
| ``<place>_latest``, ``_latest_doubles``, ``_corrections`` | with corrections, and the most copies of one |

Of any topology but a single aggregation ``<place>_latest`` has the corrections only: the rows of each after its
revision, without those that have left the topic as they may.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from recount.audit.fidelity import PLACES
from recount.audit.results import EXPECTED
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import JUDGED_KEY, RESULT_TIME
from recount.recompute.flow import Flow

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


def compared_results(judged: pl.DataFrame, flow: Flow, kafka_kept_since_ms: int | None) -> pl.DataFrame:
    """What the sides say of the results ``judged``, which has the columns of ``fidelity.line_up``."""
    sink = flow.sink
    told = {EXPECTED: pl.col(EXPECTED), **{place: pl.col(f"{place}_result") for place in PLACES}}
    columns = {
        "sink": pl.lit(sink.topic.name),
        "table": pl.lit(sink.table),
        "key": pl.col(JUDGED_KEY),
        "expected_at_ms": pl.col(EXPECTED).struct.field(RESULT_TIME),
        "kafka_kept_since_ms": pl.lit(kafka_kept_since_ms),
        "compaction_takes": pl.lit(value=False),
        "is_held": pl.lit(value=False),
    }
    for side, result in told.items():
        columns |= {side: _texts(result, flow), f"{side}_doubles": _doubles(result, flow)}
    for place in PLACES:
        is_whole = place != "kafka" or "compact" not in sink.topic.cleanup_policy
        latest = pl.col(f"{place}_latest")
        columns |= {
            f"{place}_first": pl.lit(0 if is_whole else None),
            f"{place}_latest": _texts(latest, flow),
            f"{place}_latest_doubles": _doubles(latest, flow),
        }
    found = {name: columns.get(name, pl.col(name) if name in judged.columns else pl.lit(None)) for name in SCHEMA}
    return judged.select(column.cast(SCHEMA[name]).alias(name) for name, column in found.items())


def _texts(result: pl.Expr, flow: Flow) -> pl.Expr:
    """The result without its doubles, as a list of one text, or of none where there is no result."""
    exact = [*_aggregates(flow, is_double=False), RESULT_TIME]
    text = pl.struct(result.struct.field(name) for name in exact).struct.json_encode()
    return pl.when(result.is_not_null()).then(pl.concat_list(text)).otherwise(pl.lit([], _TEXTS))


def _doubles(result: pl.Expr, flow: Flow) -> pl.Expr:
    names = _aggregates(flow, is_double=True)
    if not names:
        return pl.lit([], _DOUBLES)
    values = pl.concat_list(result.struct.field(name) for name in names)
    return pl.when(result.is_not_null()).then(values).otherwise(pl.lit([], _DOUBLES))


def _aggregates(flow: Flow, *, is_double: bool) -> Sequence[str]:
    return [name for name in flow.aggregate.aggregates if (flow.aggregate.fields[name].kind == "double") == is_double]
