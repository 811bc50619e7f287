"""Rows between operators: a frame with each row's fields, its time and its place in the log.

A field ``name`` is in ``field_column(name)``; beside the fields a row has the columns of ``META``:

* ``topic``, ``partition``, ``offset``: where the record entered; null in a *derived* row (a join's result, a window's),
  which is never late, because what made it was on time;
* ``timestamp_ms``: event time;
* ``stream_time_ms``: by which stream time the row is judged further down, where an operator has held it back; null in
  any other, which the clock of the judging operator judges;
* ``reached_ms``: the largest event time that the record's batch had read of its partition up to the record; null in a
  derived row, and in one that an operator kept: no state holds it;
* ``order``: a text that sorts as the log does, see ``LOG_ORDER``;
* ``recount_is_null``: the value is null (of a table: the key was deleted); all fields but the key, and a window's
  bounds, are null then;
* ``recount_revision``: counts the results of one key and window from 0;
* ``superseded``: a change of a versioned table that is older than the key's latest one.

The rows of a frame are in the order in which they happen. A join's row is made of one row of each side, either of which
may be missing. Python functions of a topology have rows as dictionaries.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.schema import FieldType
from recount.declare.topology import Written
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.runtime.times import told_time, told_window

TOPIC, PARTITION, OFFSET = "topic", "partition", "offset"
ORDER, SUPERSEDED = "order", "superseded"
REACHED = "reached_ms"
WITHIN = "within"
"""Sorts the rows that one record led to, see ``nth``; empty for a record itself, and for a derived row."""
ENTRY = (TOPIC, PARTITION, OFFSET)
JUDGED = "judged_ms"
"""The column in which an operator notes by which stream time it judges each row; it does not leave with them."""
META: dict[str, pl.DataType] = {
    TOPIC: pl.String(),
    PARTITION: pl.Int32(),
    OFFSET: pl.Int64(),
    TIMESTAMP: pl.Int64(),
    STREAM_TIME: pl.Int64(),
    REACHED: pl.Int64(),
    ORDER: pl.String(),
    WITHIN: pl.String(),
    IS_NULL: pl.Boolean(),
    REVISION: pl.Int32(),
    SUPERSEDED: pl.Boolean(),
}
LOG_ORDER = pl.format(
    "{}\x00{}{}",
    pl.col(TOPIC),
    pl.col(PARTITION).cast(pl.String).str.zfill(10),
    pl.col(OFFSET).cast(pl.String).str.zfill(19),
)
"""The ``order`` of a record of the log: by topic, partition, offset; of a join's result, that of both sides in turn."""
_PLACES = r"\x00\d{38}[^\x00]*\x00|([^\x00]+)\x00(\d{10})(\d{19})"
"""What an ``order`` is put together from: orders of windows' results, and (in groups) of records of the log."""
_HAS_WINDOW = r"^\x00|\x00\d{29}\x00"
PLACE_IN_LOG = pl.format("{}-{}@{}", TOPIC, PARTITION, OFFSET)
"""The ``origin`` of a record that comes straight from the log."""
_WRITTEN: dict[str, pl.DataType] = {
    RESULT_TIME: META[TIMESTAMP],
    **{name: META[name] for name in (REVISION, IS_NULL)},
    ORIGIN: pl.String(),
}
RIGHT = "right "
"""Before the columns of the right side, where a frame has the rows of both."""
_NO, _FIRST = pl.lit(False), pl.lit(0, META[REVISION])


def window_order(start: pl.Expr, end: pl.Expr, key: pl.Expr) -> pl.Expr:
    """The ``order`` of a window's result: before every record of the log, by start, end and key."""
    bounds = (bound.cast(pl.String).str.zfill(19) for bound in (start, end))
    return pl.format("\x00{}{}{}\x00", *bounds, key.cast(pl.String))


def time_order() -> pl.Expr:
    """The ``order`` of a record by event time, and by its present ``order`` among those of one time."""
    return pl.concat_str(window_order(pl.col(TIMESTAMP), pl.lit(0), pl.lit("")), pl.col(ORDER))


def nth(number: pl.Expr) -> pl.Expr:
    """``WITHIN`` of row number ``number`` that an operator made of a row, or that goes to its reader of this number."""
    return pl.concat_str(WITHIN, number.cast(pl.String).str.zfill(9)).alias(WITHIN)


def origin(orders: pl.Series) -> pl.Series:
    """The records of the log in ``orders`` as a person reads them: ``orders-0@12+payments-3@7``; null without any."""
    if orders.str.contains(_HAS_WINDOW).any():
        return _places_among_windows(orders)
    most = orders.str.count_matches("\x00", literal=True).max()
    if not isinstance(most, int) or most == 0:
        return pl.Series(ORIGIN, [None] * len(orders), pl.String())
    pieces = orders.str.split_exact("\x00", most).struct.unnest()
    places = [_place(pl.col(f"field_{n}"), pl.col(f"field_{n + 1}"), is_first=n == 0) for n in range(most)]
    return pieces.select(_unless_empty(pl.concat_str(places, separator="+", ignore_nulls=True))).to_series()


def _place(before: pl.Expr, after: pl.Expr, *, is_first: bool) -> pl.Expr:
    """A record's place, from what stands ``before`` and ``after`` the ``\\x00`` in its order."""
    topic = before if is_first else before.str.slice(29)
    return pl.format("{}-{}@{}", topic, after.str.slice(0, 10).cast(pl.Int64), after.str.slice(10, 19).cast(pl.Int64))


def _places_among_windows(orders: pl.Series) -> pl.Series:
    """``origin`` of any orders; four times slower."""
    places = orders.str.replace_all(_PLACES, "$1\x01$2\x02$3+").str.replace_all("\x01\x02+", "", literal=True)
    plain = places.str.replace_all(r"\x010*(\d)", "-$1").str.replace_all(r"\x020*(\d)", "@$1").str.strip_suffix("+")
    return pl.select(_unless_empty(pl.lit(plain))).to_series()


def _unless_empty(places: pl.Expr) -> pl.Expr:
    return pl.when(places != "").then(places).alias(ORIGIN)


def place_of(row: Mapping[str, Any], key: str) -> str:
    """Where the record of a row entered from the log, for people; of a derived one its ``key``, window and origin."""
    if row[OFFSET] is not None:
        return f"{row[TOPIC]}-{row[PARTITION]}@{row[OFFSET]}"
    start, end = (row.get(field_column(name)) for name in (WINDOW_START, WINDOW_END))
    told = {
        "key": repr(row.get(field_column(key))),
        "window": None if start is None else told_window(start, end),
        "made of": origin(pl.Series([row[ORDER]]))[0],
        "time": told_time(row[TIMESTAMP]),
    }
    return "a derived row: " + ", ".join(f"{name} {said}" for name, said in told.items() if said is not None)


def rows_schema(fields: Mapping[str, FieldType]) -> dict[str, pl.DataType]:
    """The columns of rows with ``fields``."""
    return {**{field_column(name): polars_type(kind) for name, kind in fields.items()}, **META}


def kept_schema(fields: Mapping[str, FieldType]) -> dict[str, pl.DataType]:
    """The columns of rows with ``fields`` that an operator keeps for a later batch."""
    return {name: kind for name, kind in rows_schema(fields).items() if name != REACHED}


def with_reached(kept: pl.DataFrame) -> pl.DataFrame:
    """Rows that were ``kept``, with all columns of rows."""
    return kept.with_columns(pl.lit(None, META[REACHED]).alias(REACHED))


def no_rows(fields: Mapping[str, FieldType]) -> pl.DataFrame:
    return pl.DataFrame(schema=rows_schema(fields))


def written_schema(fields: Mapping[str, FieldType]) -> dict[str, pl.DataType]:
    """The columns of a sink's table: the fields, event time, revision, whether it deletes, where it came from."""
    return {**{name: polars_type(kind) for name, kind in fields.items()}, **_WRITTEN}


def as_written(rows: pl.DataFrame, sink: Written, *, origin: pl.Expr) -> pl.DataFrame:
    """``rows`` with the columns of the sink's table; ``origin`` says where each came from.

    A plain value that is null is a deletion: the topic cannot tell one from the other.
    """
    named = [pl.col(field_column(name)).alias(name) for name in sink.fields]
    plain = sink.topic.plain_field
    is_null = pl.col(IS_NULL) if plain is None else pl.col(IS_NULL) | pl.col(field_column(plain)).is_null()
    told = (pl.col(TIMESTAMP).alias(RESULT_TIME), REVISION, is_null, origin.alias(ORIGIN))
    return rows.select(*named, *told)


def prefixed(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.rename(lambda column: RIGHT + column)


def joined_fields(
    node: StreamStreamJoin | StreamTableJoin | TableTableJoin, *, left: bool = True, right: bool = True
) -> Iterator[pl.Expr]:
    """The fields of ``node`` over a frame with the rows of both sides, of the left, or of the right only.

    The key is that of the side that there is; of a name on both sides the left row's value holds.
    """
    for name, kind in node.fields.items():
        column, source = field_column(name), pl.lit(None, polars_type(kind))
        if name == node.key:
            source = pl.col(column) if left else pl.col(RIGHT + field_column(node.right.key))
        elif left and name in node.left.fields:
            source = pl.col(column)
        elif right and name in node.right.fields:
            source = pl.col(RIGHT + column)
        yield source.alias(column)


def derived(
    timestamp_ms: pl.Expr,
    order: pl.Expr,
    *,
    is_null: pl.Expr = _NO,
    revision: pl.Expr = _FIRST,
    superseded: pl.Expr = _NO,
) -> Iterator[pl.Expr]:
    """The columns of ``META`` for rows that entered nowhere; by default not deleted, revision 0, current."""
    told = {IS_NULL: is_null, REVISION: revision, SUPERSEDED: superseded, WITHIN: pl.lit("")}
    columns = {**told, TIMESTAMP: timestamp_ms, ORDER: order}
    for name, kind in META.items():
        yield columns.get(name, pl.lit(None, kind)).alias(name)
