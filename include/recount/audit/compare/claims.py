"""Claims about a sink by the recompute, its topic and its Delta table, all in the same columns.

``key`` and ``origin`` are text, ``window_start`` and ``window_end`` milliseconds, each null where the identity has
none; ``entry`` is the row: its fields (null: a deletion), ``is_null`` and ``at_ms``; ``revision`` and ``evidence`` are
null where nobody wrote it. ``standing``: an earlier audit found all revisions before this one in order.
"""

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import types as T

from recount.audit.carry.delta_frames import frame_at
from recount.audit.compare.committed import rows_of
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import (
    AT,
    DELETES,
    DELTA,
    KAFKA,
    LATER,
    NO_REVISION,
    NUMBER,
    OF_BACKFILL,
    ORIGIN,
    PLACE,
    PublishedRows,
    is_after,
)
from recount.audit.compare.results import COMPLETE, EXPECTED, RELATIVE_TOLERANCE
from recount.audit.cut.audited_ledger import Order
from recount.declare import columns
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.output import encode_value
from recount.declare.schema import FieldType
from recount.kafka.connection import Connection
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, Window, named
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.raw_log import Log, Ranges
from recount.recompute.spark_columns import spark_type
from recount.tables.places import Tables

IDENTITY = ("key", WINDOW_START, WINDOW_END, "origin")
SIDE, ENTRY, REVISION, EVIDENCE, STANDING = "side", "entry", "revision", "evidence", "standing"
ROW, IS_NULL, AT_MS = "row", "is_null", "at_ms"
MAX_KEYS = 10_000
"""Rows of so many keys are looked up in a table of results; of more the whole table is read."""


def entry_type(identity: Identity) -> T.StructType:
    """The type of the entries of a sink."""
    row = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in identity.fields.items()])
    parts = {IS_NULL: T.BooleanType(), ROW: row, AT_MS: T.LongType()}
    return T.StructType([T.StructField(name, kind) for name, kind in parts.items()])


def of_recompute(results: Frame, identity: Identity, side: str) -> Frame:
    """Return the claims of ``Recomputed.results`` about the sink."""
    unwritten = {REVISION: F.lit(None).cast("int"), EVIDENCE: F.lit(None).cast("string")}
    at_ms, is_null, origin = (F.col(name) for name in (columns.RESULT_TIME, columns.IS_NULL, columns.ORIGIN))
    return _claims(results, identity, at_ms, is_null, origin, {SIDE: F.lit(side), **unwritten})


def on_kafka(handover: Handover, connection: Connection, log: Log, identity: Identity, ranges: Ranges) -> Frame:
    """The committed records of the sink's topic, many from ``log``, with ``OF_BACKFILL``."""
    rows = PublishedRows.of(identity.written, identity.fields)
    told = rows_of(handover, connection, log, identity.written.topic.name, ranges, rows.schema, rows)
    extra = {
        SIDE: F.lit(KAFKA),
        REVISION: F.col(NUMBER),
        EVIDENCE: F.col(PLACE),
        OF_BACKFILL: F.col(OF_BACKFILL),
    }
    return _claims(told, identity, F.col(AT), F.col(DELETES), F.col(ORIGIN), extra)


def in_delta(database: Database, tables: Tables, identity: Identity, cut: Order) -> Frame:
    """The rows of the sink's table; those of batches after ``cut`` are on the side ``LATER``."""
    return _in_delta(frame_at(database, tables.output(identity.written.table)), identity, cut)


def in_delta_since(
    database: Database, tables: Tables, identity: Identity, cut: Order, seed: Order, wrong: Frame
) -> Frame:
    """The same of the batches after ``seed``, and of the identities in ``wrong`` also the rows of those before.

    ``wrong`` has with each identity the revision that stood before (null: none): earlier ones are left out.
    """
    fresh = _in_delta(frame_at(database, tables.output(identity.written.table), after=seed), identity, cut)
    if wrong.is_empty():
        return fresh
    stood = wrong.select(*IDENTITY, F.col(REVISION).alias("__stood"))
    found = _before(database, tables, identity, seed, cut, wrong).join(stood, IDENTITY, nulls_fit=True)
    is_judged = F.col("__stood").is_null() | (F.col(REVISION) >= F.col("__stood")) | (F.col(REVISION) == NO_REVISION)
    stands = F.coalesce(F.col(REVISION) == F.col("__stood"), F.lit(False))
    return fresh.union(found.where(is_judged).with_column(STANDING, stands).select(*fresh.columns))


def judged_before(database: Database, tables: Tables, identity: Identity, seed: Order, asked: Frame) -> Frame:
    """The rows of the identities ``asked`` in batches up to ``seed``, judged in order: all sides have them.

    Of rows that replace each other the last one, which stands in both places.
    """
    before = _before(database, tables, identity, seed, seed, asked)
    found = before.join(asked.select(*IDENTITY).distinct(), IDENTITY, "left_semi", nulls_fit=True)
    if identity.is_latest:
        newest_first = Window.of(*IDENTITY).sorted(F.col(REVISION).descending())
        found = found.with_column("__rank", F.row_number().over(newest_first)).where(F.col("__rank") == 1)
        found = found.with_column(STANDING, F.lit(True))
    sides = F.each_of(F.array(EXPECTED, COMPLETE, KAFKA, DELTA)).alias(SIDE)
    return found.drop(SIDE).select(*(one for one in found.columns if one != SIDE), sides).select(*before.columns)


def _before(database: Database, tables: Tables, identity: Identity, seed: Order, cut: Order, asked: Frame) -> Frame:
    """The rows of batches up to ``seed``: of many keys all, of few those of the keys in ``asked``."""
    keys = [row["key"] for row in asked.select("key").distinct().sorted_by("key", at_most=MAX_KEYS + 1).rows()]
    kind = identity.written.fields[identity.written.key].kind
    of_keys = {identity.written.key: [one if one is None or kind == "string" else int(one) for one in keys]}
    path = tables.output(identity.written.table)
    rows = frame_at(database, path, up_to=seed, among=of_keys if len(keys) <= MAX_KEYS else None)
    return _in_delta(rows, identity, cut)


def _in_delta(rows: Frame, identity: Identity, cut: Order) -> Frame:
    evidence = F.concat_known(
        f"outputs/{identity.written.table} batch ", F.col(columns.GENERATION), "/", F.col(columns.BATCH)
    )
    return of_rows(rows, identity, F.when(is_after(cut), LATER).otherwise(DELTA), evidence)


def of_rows(rows: Frame, identity: Identity, side: Column, evidence: Column, **more: Column) -> Frame:
    """``rows`` of the sink's table, or of that of its corrections; ``more`` are further columns of the claims."""
    revision = F.coalesce(F.col(columns.REVISION), F.lit(NO_REVISION)).cast("int")
    # tables of windows of earlier releases lack what would be empty in them
    is_null, origin = F.lit(False), F.lit(None)
    if columns.IS_NULL in rows.columns:
        is_null = F.coalesce(columns.IS_NULL, F.lit(False))
    if columns.ORIGIN in rows.columns:
        origin = F.col(columns.ORIGIN)
    extra = {SIDE: side, REVISION: revision, EVIDENCE: evidence, **more}
    return _claims(rows, identity, F.col(columns.RESULT_TIME), is_null, origin, extra)


def of_traced(results: Frame, identity: Identity, *further: str) -> Frame:
    """The identities of ``results`` that ``Tracing`` found, with ``further`` columns of them."""
    at_ms, is_null = F.col(columns.RESULT_TIME), F.col(columns.IS_NULL)
    more = {name: F.col(name) for name in further}
    return _claims(results, identity, at_ms, is_null, F.col(columns.ORIGIN), more).select(*IDENTITY, *further)


def _claims(
    frame: Frame,
    identity: Identity,
    at_ms: Column,
    is_null: Column,
    origin: Column,
    extra: Mapping[str, Column],
) -> Frame:
    fields = {name: named(name).cast(spark_type(kind)) for name, kind in identity.fields.items()}
    nothing = F.lit(None)
    has_bounds = identity.has_bounds
    start, end = (fields[bound] if has_bounds else nothing for bound in (WINDOW_START, WINDOW_END))
    if identity.is_latest:
        made_of = nothing
    else:
        at = nothing if has_bounds else F.concat("at ", at_ms)
        made_of = F.coalesce(origin, at) if identity.has_origin else at
    row = F.when(~is_null, F.struct(*(column.alias(name) for name, column in fields.items())))
    entry = F.struct(is_null.alias(IS_NULL), row.alias(ROW), at_ms.cast("long").alias(AT_MS))
    return frame.select(
        fields[identity.written.key].cast("string").alias("key"),
        start.cast("long").alias(WINDOW_START),
        end.cast("long").alias(WINDOW_END),
        made_of.cast("string").alias("origin"),
        entry.alias(ENTRY),
        F.lit(False).alias(STANDING),
        *(column.alias(name) for name, column in extra.items()),
    )


def text_of(entry: Mapping[str, Any] | None) -> str | None:
    """The row of ``entry`` and its time, without fields that are null; ``deleted`` for a deletion.

    >>> text_of({"is_null": False, "row": {"n": 2, "most": None}, "at_ms": 7})
    '{"row":{"n":2},"timestamp_ms":7}'
    """
    if entry is None:
        return None
    if entry[ROW] is None:
        return "deleted"
    row = encode_value({name: value for name, value in entry[ROW].items() if value is not None}).decode()
    return f'{{"row":{row},"timestamp_ms":{entry[AT_MS]}}}'


row_text = F.by_python(text_of, T.StringType())


def same_entry(one: Column, other: Column, identity: Identity) -> Column:
    """Whether two entries are equal, doubles within a relative 1e-9; two deletions are, whatever they deleted."""
    doubles = [name for name, kind in identity.fields.items() if kind.kind == "double"]
    if not doubles:
        same = one.part(ROW).equals_or_both_null(other.part(ROW))
    else:
        parts = [
            _same_value(one.part(ROW).part(name), other.part(ROW).part(name), kind)
            for name, kind in identity.fields.items()
        ]
        no_rows = one.part(ROW).is_null() & other.part(ROW).is_null()
        both_rows = one.part(ROW).is_not_null() & other.part(ROW).is_not_null()
        same = no_rows | (both_rows & reduce(and_, parts))
    return same & one.part(AT_MS).equals_or_both_null(other.part(AT_MS)) if identity.is_timed else same


def same_entry_or_none(one: Column, other: Column, identity: Identity) -> Column:
    """The same, where null is no row."""
    both = one.is_not_null() & other.is_not_null()
    return (one.is_null() & other.is_null()) | (both & same_entry(one, other, identity))


def _same_value(one: Column, other: Column, kind: FieldType) -> Column:
    same = one.equals_or_both_null(other)
    if kind.kind != "double":
        return same
    near = F.magnitude(one - other) <= F.greatest(F.magnitude(one), F.magnitude(other)) * RELATIVE_TOLERANCE
    return same | F.coalesce(near, F.lit(False))  # the difference of two infinite ones is no number
