"""Output records of many rows, column by column: the bytes of ``declare.output``, and which fit their topic.

Row by row a record takes 12 to 25 microseconds, most of them in ``json``; so it takes a quarter of that.
"""

import json
from collections.abc import Iterator, Mapping

import polars as pl

from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.expressions import JSON_SIZE, Column
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START, Filter
from recount.declare.operators.tables import TableFilter
from recount.declare.output import (
    ORIGIN_HEADER,
    REVISION_HEADER,
    SOURCE_HEADER,
    WINDOW_HEADER,
    Fits,
    encode_value,
    fits_of,
    time_header,
    version_header,
)
from recount.declare.schema import FieldType
from recount.declare.topology import Written
from recount.engine.stage.polars_expressions import compiled, field_column
from recount.formats.registry_encoders import Encode, encoder_of
from recount.kafka.dead_letters import Headers, KafkaRecord

_STREAM = (ORIGIN_HEADER, b"stream")
_ESCAPED = r'[\x00-\x1f"\\]'
"""What JSON does not take in a text as it is."""
_MOST_OF_A_NUMBER, _MOST_OF_A_CHARACTER = 48, 6
"""Bytes in JSON: of a decimal of 38 digits, with room to spare, and of a byte of a text that has to be escaped."""
_MOST_OF_A_NAME = 12
"""Bytes of a character of a field's name: JSON writes those beyond ASCII as two escapes at most."""


RECORD_SCHEMA: dict[str, pl.DataType] = {
    **dict.fromkeys(("key", "value", "revision", "window", "source"), pl.Binary()),
    RESULT_TIME: pl.Int64(),
}
"""The columns of which a sink's records are made: bytes as Kafka has them, and the time."""


def records_as(table: str) -> str:
    """The name under which the ``record_columns`` of the output ``table`` leave a task that has written its rows."""
    return f"records {table}"


def record_columns(sink: Written, rows: pl.DataFrame, values: pl.Series | None = None) -> pl.DataFrame:
    """The columns (``RECORD_SCHEMA``) of the records that ``sink`` writes for ``rows`` of its output table.

    ``values`` are the ``encoded_values`` of ``rows``, where they are known.
    """
    return rows.select(
        _bytes(pl.col(sink.key)).alias("key"),  # a STRING or a LONG: no other type can be declared as one
        pl.lit(encoded_values(sink, rows) if values is None else values).alias("value"),
        _bytes(pl.col(REVISION)).alias("revision"),
        _window(sink).alias("window"),
        _bytes(pl.col(ORIGIN) if ORIGIN in rows.columns else pl.lit(None)).alias("source"),
        pl.col(RESULT_TIME),
    )


def output_records(sink: Written, columns: pl.DataFrame, *, version: int = 1) -> Iterator[KafkaRecord]:
    """The records that ``sink`` writes, each as ``output_record`` makes it, of their ``record_columns``."""
    topic = sink.topic.name
    own = (_STREAM, *version_header(version))
    for key, value, revision, window, source, timestamp_ms in columns.iter_rows():
        headers: Headers = ((REVISION_HEADER, revision), *own)
        if window is not None:
            headers = (*headers, (WINDOW_HEADER, window))
        if source is not None:
            headers = (*headers, (SOURCE_HEADER, source))
        if timestamp_ms == 0:
            headers = (*headers, *time_header(timestamp_ms))
        yield KafkaRecord(topic, key, value, headers, timestamp_ms)


def encoded_values(sink: Written, rows: pl.DataFrame) -> pl.Series:
    """The values of the records that ``sink`` writes for ``rows`` of its output table; null where the row deletes."""
    encode = encoder_of(sink)
    if encode is not None:
        return _one_by_one(encode, rows)
    plain = sink.topic.plain_field
    text = _object(sink, rows) if plain is None else plain_text(rows[plain], sink.fields[plain])
    encoded = pl.when(~pl.col(IS_NULL)).then(text) if IS_NULL in rows.columns else text
    return rows.select(_bytes(encoded).alias("value")).to_series()


def _one_by_one(encode: Encode, rows: pl.DataFrame) -> pl.Series:
    deletes = rows[IS_NULL] if IS_NULL in rows.columns else [False] * rows.height
    made = [None if gone else encode(row) for row, gone in zip(rows.iter_rows(named=True), deletes, strict=True)]
    return pl.Series("value", made, pl.Binary)


def _object(sink: Written, rows: pl.DataFrame) -> pl.Expr:
    return json_object(rows, {name: kind for name, kind in sink.fields.items() if name != KEY})


def json_object(rows: pl.DataFrame, fields: Mapping[str, FieldType]) -> pl.Expr:
    parts: list[pl.Expr] = []
    for name, kind in fields.items():
        parts += [pl.lit(f"{',' if parts else '{'}{json.dumps(name)}:"), _json(rows[name], kind)]
    return pl.concat_str(*parts, pl.lit("}")) if parts else pl.lit("{}")


def plain_text(cells: pl.Series, kind: FieldType) -> pl.Expr:
    cell = pl.col(cells.name)
    return cell if kind.kind == "string" else pl.when(cell.is_not_null()).then(_json(cells, kind))


def _json(cells: pl.Series, kind: FieldType) -> pl.Expr:
    """Each of the ``cells`` as ``encode_value`` writes it; what is not plain it writes itself."""
    cell = pl.col(cells.name)
    match kind.kind:
        case "long" | "decimal":
            text = cell.cast(pl.String)
        case "boolean":
            text = pl.when(cell).then(pl.lit("true")).when(~cell).then(pl.lit("false"))
        case "string" if not cells.str.contains(_ESCAPED).any():
            text = pl.concat_str(pl.lit('"'), cell, pl.lit('"'))
        case _:
            text = pl.lit(pl.Series([_alone(value) for value in cells.to_list()], dtype=pl.String()))
    return text.fill_null("null")


def _alone(value: object) -> str:
    return encode_value({"": value}).decode()[len('{"":') : -1]


def _window(sink: Written) -> pl.Expr:
    bounded = WINDOW_START in sink.fields
    return _bytes(pl.format("{}/{}", WINDOW_START, WINDOW_END) if bounded else pl.lit(None))


def _bytes(cell: pl.Expr) -> pl.Expr:
    return cell.cast(pl.String).cast(pl.Binary)


def passing(node: Filter | TableFilter, rows: pl.DataFrame) -> pl.Expr:
    fits = fits_of(node)
    if fits is not None:
        return pl.lit(fitting(fits, rows, node.input.fields))
    return compiled(node.predicate, node.input.fields).cast(pl.Boolean).fill_null(False)


def fitting(fits: Fits, rows: pl.DataFrame, fields: Mapping[str, FieldType]) -> pl.Series:
    """Whether the result that is made of each of the ``rows`` of ``fields`` fits."""
    key, *value = (argument.name for argument in fits.measured.arguments if isinstance(argument, Column))
    cells = rows.select(pl.col(field_column(name)).alias(name) for name in dict.fromkeys([key, *value]))
    if _most(cells, fields) <= fits.limit:
        return pl.repeat(True, cells.height, dtype=pl.Boolean(), eager=True)
    if fits.measured.operator == JSON_SIZE:
        text = json_object(cells, {name: fields[name] for name in value})
    else:
        text = plain_text(cells[value[0]], fields[value[0]])
    sizes = [part.str.len_bytes().cast(pl.Int64).fill_null(0) for part in (pl.col(key).cast(pl.String), text)]
    return cells.select(fits=sizes[0] + sizes[1] <= fits.limit)["fits"]


def _most(cells: pl.DataFrame, fields: Mapping[str, FieldType]) -> float:
    """A number of bytes that no result of ``cells`` comes to, from the longest text of each column."""
    most = 2.0 * _MOST_OF_A_NUMBER
    for name in cells.columns:
        kind = fields[name]
        if kind.element is not None:
            return float("inf")
        longest = cells[name].str.len_bytes().max() if kind.kind == "string" else None
        text = _MOST_OF_A_CHARACTER * longest if isinstance(longest, int) else 0
        # a key is in the record's key and in the value
        most += 2 * (_MOST_OF_A_NUMBER + text) + _MOST_OF_A_NAME * len(name)
    return most
