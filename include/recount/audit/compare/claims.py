"""Claims about a sink by the recompute, its topic and its Delta table, all in the same columns.

``key`` and ``origin`` are text, ``window_start`` and ``window_end`` milliseconds, each null where the identity has
none; ``entry`` is the row: its fields (null: a deletion), ``is_null`` and ``at_ms``; ``revision`` and ``evidence`` are
null where nobody wrote it. ``standing``: an earlier audit found all revisions before this one in order.

A published JSON value must be one that a stream writes: Spark's reader takes more, and rounds what it takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from decimal import Decimal, InvalidOperation
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.audit.carry.delta_frames import delta_frame
from recount.audit.compare import published as published_values
from recount.audit.compare.committed import as_text, committed_records, event_time_ms, header
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import BY_BACKFILL, DELTA, KAFKA, LATER, NO_REVISION, is_after
from recount.audit.compare.results import COMPLETE, EXPECTED, RELATIVE_TOLERANCE
from recount.audit.cut.audited_ledger import Order
from recount.declare import columns
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.output import ORIGIN_HEADER, REVISION_HEADER, SOURCE_HEADER, WINDOW_HEADER, encode_value
from recount.declare.plain_values import PlainValue
from recount.declare.schema import FieldType
from recount.declare.topology import Written
from recount.kafka.connection import Connection
from recount.recompute.raw_log import Ranges
from recount.recompute.spark_columns import named, spark_type
from recount.tables.places import Tables

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9.]+[eE][+-]?[0-9]+')
_PLACES_WITHOUT_EXPONENT = 6
"""Java and Python write a decimal without exponent that is not below 0.000001."""
IDENTITY = ("key", WINDOW_START, WINDOW_END, "origin")
SIDE, ENTRY, REVISION, EVIDENCE, STANDING = "side", "entry", "revision", "evidence", "standing"
ROW, IS_NULL, AT_MS = "row", "is_null", "at_ms"
OF_BACKFILL = "of_backfill"
_WHOLE = "-?(0|[1-9][0-9]*)"
_NUMBER = rf"{_WHOLE}(\.[0-9]+)?([eE][+-]?[0-9]+)?"


def is_written_so(value: Column, fields: Mapping[str, FieldType]) -> Column:
    """Whether the bytes ``value`` are the encoding of a row of ``fields``, see ``is_encoded``; null for a null."""
    asked = F.udf(lambda one: None if one is None else is_encoded(bytes(one), fields), "boolean")
    return asked(value)


def is_encoded(value: bytes, fields: Mapping[str, FieldType]) -> bool:
    """Whether ``value`` is what ``encode_value`` makes of a row of ``fields``, of which some may be missing.

    They are missing from what was written before they were declared.
    """
    try:
        row = {name: one for name, one in typed_row(_read(value), fields).items() if name != KEY}
    except (ValueError, KeyError, AttributeError, RecursionError, InvalidOperation, OverflowError):
        return False
    return encode_value({name: row[name] for name in fields if name in row}) == value


def kept_rows(text: str, fields: Mapping[str, FieldType]) -> list[tuple[dict[str, Any] | None, int]]:
    """The rows, each with its time, of which an audit has kept ``text``, see ``kept_for_backfills``."""
    said = _read(text)
    return [(one["row"] and typed_row(one["row"], fields), int(one["at_ms"])) for one in said]


def typed_row(said: Any, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The members of a JSON object as ``fields`` hold them; ``ValueError`` or ``KeyError`` for what they do not."""
    return {name: _typed(one, fields[name]) for name, one in said.items()}


def _read(text: str | bytes) -> Any:
    return json.loads(text, parse_float=_Number, parse_int=_Number)


def plain_decimals(text: Column, fields: Mapping[str, FieldType]) -> Column:
    """The JSON ``text`` that Spark has made of rows of ``fields``, decimals without exponents: it writes 4E-8."""
    names = frozenset(name for name, kind in fields.items() if _least_places(kind) > _PLACES_WITHOUT_EXPONENT)
    if not names:
        return text
    return F.udf(lambda one: None if one is None else with_plain_decimals(one, names), "string")(text)


def with_plain_decimals(text: str, names: Collection[str]) -> str:
    """The JSON ``text``, numbers of the members ``names`` without exponents.

    >>> with_plain_decimals('[{"e":4E-8,"x":1.0E-8,"s":"\\"e\\":4E-8"}]', {"e"})
    '[{"e":0.00000004,"x":1.0E-8,"s":"\\"e\\":4E-8"}]'
    """
    member = ""

    def plain(found: re.Match[str]) -> str:
        nonlocal member
        token = found[0]
        if token.startswith('"'):
            member = json.loads(token)  # of two texts that follow each other the second is a value: a name comes next
            return token
        return format(Decimal(token), "f") if member in names else token

    return _TOKEN.sub(plain, text)


def _least_places(kind: FieldType) -> int:
    return kind.scale if kind.element is None else _least_places(kind.element)


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _typed(said: Any, kind: FieldType) -> Any:
    """``said`` as ``kind`` holds it; what it does not hold as it is raises ``ValueError`` or is encoded otherwise."""
    if said is None:
        return None
    if kind.element is not None:
        return [_typed(one, kind.element) for one in _of(list, said)]
    match kind.kind:
        case "string" if not isinstance(said, _Number):
            return _of(str, said)
        case "boolean":
            return _of(bool, said)
        case "long":
            return int(_of(_Number, said))
        case "double":
            return float(said if isinstance(said, float) else _of(_Number, said))
        case "decimal":
            made = Decimal(_of(_Number, said))
            if made.as_tuple().exponent == -kind.scale:
                return made
    raise ValueError(said)


def _of(expected: type, said: Any) -> Any:
    if not isinstance(said, expected):
        raise ValueError(said)
    return said


def of_recompute(results: DataFrame, identity: Identity, side: str) -> DataFrame:
    """Return the claims of ``Recomputed.results`` about the sink."""
    fields = {name: named(name) for name in identity.fields}
    claimed = _claims(
        results, identity, fields, F.col(columns.RESULT_TIME), F.col(columns.IS_NULL), F.col(columns.ORIGIN)
    )
    return claimed.select(*claimed.columns, F.lit(side).alias(SIDE), *_unwritten())


def on_kafka(session: SparkSession, connection: Connection, identity: Identity, ranges: Ranges) -> DataFrame | None:
    """The committed records of the sink's topic; None where there is none.

    ``OF_BACKFILL``: whether the record says to be of a backfill. A record without our headers, or whose record key is
    not that of its value, has ``NO_REVISION``.
    """
    written = identity.written
    records = committed_records(session, connection, written.topic.name, ranges)
    if records is None:
        return None
    decoded = records.withColumn("decoded", _decoded(written)).withColumn("record_key", as_text(F.col("key")))
    fields = {name: F.col("decoded")[name] for name in identity.fields}
    if KEY in fields:
        fields[KEY] = F.col("record_key")
    if written.key in fields:
        fields[written.key] = F.coalesce(fields[written.key], F.col("record_key").cast(_type(identity, written.key)))
    window = F.split(header(WINDOW_HEADER), "/")
    for place, bound in enumerate((WINDOW_START, WINDOW_END)):
        if bound in fields:
            fields[bound] = F.coalesce(fields[bound], F.try_element_at(window, F.lit(place + 1)).try_cast("long"))
    revision = F.coalesce(header(REVISION_HEADER).try_cast("int"), F.lit(NO_REVISION))
    has_own_key = F.col("record_key").eqNullSafe(fields[written.key].cast("string"))
    has_own_key &= F.col("key").isNull() == F.col("record_key").isNull()
    evidence = F.concat_ws("", F.lit(f"{written.topic.name}-"), "partition", F.lit("@"), "offset")
    told = decoded.select(
        *(column.alias(name) for name, column in fields.items()),
        event_time_ms().alias("__at_ms"),
        F.col("value").isNull().alias("__is_null"),
        header(SOURCE_HEADER).alias("__origin"),
        F.when(has_own_key, revision).otherwise(NO_REVISION).alias("__revision"),
        evidence.alias("__evidence"),
        F.coalesce(header(ORIGIN_HEADER) == BY_BACKFILL, F.lit(False)).alias(OF_BACKFILL),
    )
    named_fields = {name: named(name) for name in identity.fields}
    extra = {
        SIDE: F.lit(KAFKA),
        REVISION: F.col("__revision"),
        EVIDENCE: F.col("__evidence"),
        OF_BACKFILL: F.col(OF_BACKFILL),
    }
    at_ms, is_null, origin = F.col("__at_ms"), F.col("__is_null"), F.col("__origin")
    return _claims(told, identity, named_fields, at_ms, is_null, origin, extra)


def _decoded(written: Written) -> Column:
    """Return every field of the value of a record; null where no stream writes such a value."""
    fields, declared = written.fields, written.topic.value
    if published_values.is_of_registry(written):
        return published_values.decoded(F.col("value"), written)
    if isinstance(declared, PlainValue):
        said = {name: F.lit(None).cast(spark_type(kind)) for name, kind in fields.items()}
        said[declared.name] = published(F.col("value"), declared)
        return F.struct(*(column.alias(name) for name, column in said.items()))
    schema = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in fields.items()])
    read = F.from_json(F.col("value").cast("string"), schema, {"prefersDecimal": "true"})
    return F.when(is_written_so(F.col("value"), fields), read)


def in_delta(session: SparkSession, tables: Tables, identity: Identity, cut: Order) -> DataFrame:
    """The rows of the sink's table; those of batches after ``cut`` are on the side ``LATER``."""
    return _in_delta(delta_frame(session, tables.output(identity.written.table)), identity, cut)


def in_delta_since(
    session: SparkSession, tables: Tables, identity: Identity, cut: Order, seed: Order, wrong: DataFrame
) -> DataFrame:
    """The same of the batches after ``seed``, and of the identities in ``wrong`` also the rows of those before.

    ``wrong`` has with each identity the revision that stood before (null: none): earlier ones are left out.
    """
    rows = delta_frame(session, tables.output(identity.written.table))
    fresh = _in_delta(rows.where(is_after(seed)), identity, cut)
    stood = wrong.select(*(F.col(name).alias(f"__{name}") for name in IDENTITY), F.col(REVISION).alias("__stood"))
    before = _in_delta(rows.where(~is_after(seed)), identity, cut)
    same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"__{name}")) for name in IDENTITY))
    is_judged = F.col("__stood").isNull() | (F.col(REVISION) >= F.col("__stood")) | (F.col(REVISION) == NO_REVISION)
    found = before.join(F.broadcast(stood), same).where(is_judged)
    stands = F.coalesce(F.col(REVISION) == F.col("__stood"), F.lit(False))
    return fresh.unionByName(found.withColumn(STANDING, stands).select(*fresh.columns))


def judged_before(
    session: SparkSession, tables: Tables, identity: Identity, seed: Order, asked: DataFrame
) -> DataFrame:
    """The rows of the identities ``asked`` in batches up to ``seed``, judged in order: all sides have them.

    Of rows that replace each other the last one, which stands in both places.
    """
    rows = delta_frame(session, tables.output(identity.written.table))
    before = _in_delta(rows.where(~is_after(seed)), identity, seed)
    told = asked.select(*(F.col(name).alias(f"__{name}") for name in IDENTITY))
    same = [F.col(name).eqNullSafe(F.col(f"__{name}")) for name in IDENTITY]
    found = before.join(F.broadcast(told), same, "left_semi")
    if identity.is_latest:
        newest_first = Window.partitionBy(*IDENTITY).orderBy(F.col(REVISION).desc())
        found = found.withColumn("__rank", F.row_number().over(newest_first)).where(F.col("__rank") == 1)
        found = found.withColumn(STANDING, F.lit(True))
    sides = F.explode(F.array(*map(F.lit, (EXPECTED, COMPLETE, KAFKA, DELTA)))).alias(SIDE)
    return found.drop(SIDE).select("*", sides).select(*before.columns)


def _in_delta(rows: DataFrame, identity: Identity, cut: Order) -> DataFrame:
    table = identity.written.table
    evidence = F.concat_ws("", F.lit(f"outputs/{table} batch "), columns.GENERATION, F.lit("/"), columns.BATCH)
    return of_rows(rows, identity, F.when(is_after(cut), LATER).otherwise(DELTA), evidence)


def of_rows(rows: DataFrame, identity: Identity, side: Column, evidence: Column, **more: Column) -> DataFrame:
    """``rows`` of the sink's table, or of that of its corrections; ``more`` are further columns of the claims."""
    fields = {name: named(name) for name in identity.fields}
    revision = F.coalesce(F.col(columns.REVISION), F.lit(NO_REVISION))
    # tables of windows of earlier releases lack what would be empty in them
    is_null = F.coalesce(columns.IS_NULL, F.lit(False)) if columns.IS_NULL in rows.columns else F.lit(False)
    origin = F.col(columns.ORIGIN) if columns.ORIGIN in rows.columns else F.lit(None)
    extra = {SIDE: side, REVISION: revision, EVIDENCE: evidence, **more}
    return _claims(rows, identity, fields, F.col(columns.RESULT_TIME), is_null, origin, extra)


def of_traced(results: DataFrame, identity: Identity, *further: str) -> DataFrame:
    """The identities of ``results`` that ``Tracing`` found, with ``further`` columns of them."""
    fields = {name: named(name) for name in identity.fields}
    at_ms, is_null = F.col(columns.RESULT_TIME), F.col(columns.IS_NULL)
    more = {name: F.col(name) for name in further}
    return _claims(results, identity, fields, at_ms, is_null, F.col(columns.ORIGIN), more).select(*IDENTITY, *further)


def _claims(
    frame: DataFrame,
    identity: Identity,
    fields: Mapping[str, Column],
    at_ms: Column,
    is_null: Column,
    origin: Column,
    extra: Mapping[str, Column] | None = None,
) -> DataFrame:
    nothing = F.lit(None)
    has_bounds = identity.has_bounds
    start, end = (fields[bound] if has_bounds else nothing for bound in (WINDOW_START, WINDOW_END))
    if identity.is_latest:
        whence = nothing
    else:
        at = nothing if has_bounds else F.concat(F.lit("at "), at_ms.cast("string"))
        whence = F.coalesce(origin, at) if identity.has_origin else at
    row = F.when(~is_null, F.struct(*(column.alias(name) for name, column in fields.items())))
    entry = F.struct(is_null.alias(IS_NULL), row.alias(ROW), at_ms.cast("long").alias(AT_MS))
    return frame.select(
        fields[identity.written.key].cast("string").alias("key"),
        start.cast("long").alias(WINDOW_START),
        end.cast("long").alias(WINDOW_END),
        whence.cast("string").alias("origin"),
        entry.alias(ENTRY),
        F.lit(False).alias(STANDING),
        *(column.alias(name) for name, column in (extra or {}).items()),
    )


def _unwritten() -> list[Column]:
    return [F.lit(None).cast("int").alias(REVISION), F.lit(None).cast("string").alias(EVIDENCE)]


def _type(identity: Identity, name: str) -> T.DataType:
    return spark_type(identity.written.fields[name])


def published(value: Column, declared: PlainValue) -> Column:
    """The bytes ``value`` as the type of ``declared`` holds them."""
    kind = declared.kind
    text = F.try_validate_utf8(value.cast("string"))
    if kind.kind == "string":
        return text
    # a cast alone would trim, round and take words such as Infinity
    return F.when(text.rlike(rf"\A({_written(kind)})\z"), text.try_cast(spark_type(kind)))


def _written(kind: FieldType) -> str:
    """How the stream writes values of ``kind``, as a pattern of Java."""
    match kind.kind:
        case "boolean":
            return "true|false"
        case "double":
            return _NUMBER
        case "decimal" if kind.scale:
            return rf"{_WHOLE}\.[0-9]{{{kind.scale}}}"
    return _WHOLE


def same_entry(one: Column, other: Column, identity: Identity) -> Column:
    """Whether two entries are equal, doubles within a relative 1e-9; two deletions are, whatever they deleted."""
    both_rows = ~one[IS_NULL] & ~other[IS_NULL]
    parts = [_same_value(one[ROW][name], other[ROW][name], kind) for name, kind in identity.fields.items()]
    equal = (one[IS_NULL] == other[IS_NULL]) & (~both_rows | reduce(lambda a, b: a & b, parts))
    return equal & one[AT_MS].eqNullSafe(other[AT_MS]) if identity.is_timed else equal


def same_entry_or_none(one: Column, other: Column, identity: Identity) -> Column:
    """The same, where null is no row."""
    none = one.isNull() & other.isNull()
    both = one.isNotNull() & other.isNotNull()
    return F.when(both, same_entry(one, other, identity)).otherwise(none)


def _same_value(one: Column, other: Column, kind: FieldType) -> Column:
    if kind.kind != "double":
        return one.eqNullSafe(other)
    near = F.abs(one - other) <= RELATIVE_TOLERANCE * F.greatest(F.abs(one), F.abs(other))
    return one.eqNullSafe(other) | F.coalesce(near, F.lit(False))  # the difference of two infinite ones is no number
