"""A sink as it is queried: its columns, its keys and times, and the rows that its readers see as of a batch.

Readers see the newest row of each identity, with corrections, none deleted.

The rule is that of docs/audit.md, "Which row is newer": a correction takes the place of all rows that batches up to its
own had written, and what the stream writes in a later batch takes the place of the correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from recount.audit.compare.identity import Identity, closing_windows, identity_of
from recount.declare.columns import (
    BACKFILL_NUMBER,
    BATCH,
    GENERATION,
    IS_NULL,
    ORIGIN,
    PUBLISHED_AT,
    RESULT_TIME,
    REVISION,
)
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.schema import LONG_MAX, LONG_MIN, FieldType, is_unicode
from recount.declare.topology import Topology, Written
from recount.declare.windows import TimeWindows
from recount.formats.json_values import arrow_type
from recount.recompute.rules.result_rules import adds_up
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import earlier

if TYPE_CHECKING:
    from recount.serve.answer import Moment

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
OF_STREAM = -1
"""In place of the number of a backfill, in rows that the stream wrote."""
_AT, _CORRECTED_AT = "__at", "__corrected_at"
_WRITTEN = [GENERATION, BATCH, BACKFILL_NUMBER]


class BadQuestion(Terminal):
    """A question that cannot be answered, whatever the tables hold."""


@dataclass(frozen=True)
class AskedSink:
    topology: Topology
    written: Written

    @property
    def name(self) -> str:
        return self.written.topic.name

    @cached_property
    def identity(self) -> Identity:
        """Which rows replace each other; raises ``Terminal`` where the declaration does not say it."""
        return identity_of(self.written)

    @cached_property
    def objection(self) -> Terminal | None:
        """Why its rows cannot be asked for; None where they can."""
        try:
            assert self.identity
        except Terminal as refused:
            return refused
        return None

    @cached_property
    def ends_count(self) -> bool:
        """Whether a record at the end of a window is in it: in sessions and sliding windows, not in the others."""
        closing = closing_windows(self.identity)
        return closing is not None and not isinstance(closing[1], TimeWindows)

    @property
    def key(self) -> str:
        return self.written.key

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The fields of a row; the key that a record came with is left out where it has another one now."""
        return {name: kind for name, kind in self.written.fields.items() if name == self.key or name != KEY}

    def key_of(self, text: str) -> str | int:
        """The key that ``text`` names, of the declared type; raises ``BadQuestion``."""
        kind = self.fields[self.key].kind
        if kind == "string":
            if not is_unicode(text):
                raise BadQuestion.of("key-no-unicode", given=ascii(text)[:100], name=self.name)
            return text
        number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        if number is None or not LONG_MIN <= number <= LONG_MAX:
            raise BadQuestion.of("key-no-number", given=text[:100], name=self.name, kind=kind.upper(), key=self.key)
        return number

    def require_windows(self) -> None:
        if not self.identity.has_bounds:
            raise BadQuestion.of(
                "rows-without-windows", given="a window", name=self.name, fields=", ".join(self.fields)
            )

    def require_countable(self, name: str) -> None:
        """Raise ``BadQuestion`` where rows cannot be counted by a field ``name``."""
        countable = [one for one, kind in self.fields.items() if kind.kind != "list"]
        if name not in countable:
            raise BadQuestion.of("not-countable", given=name[:100], name=self.name, countable=", ".join(countable))


def asked_sink(topology: Topology, name: str | None) -> AskedSink:
    """The sink of ``topology`` that is called ``name``, or its only one; raises ``BadQuestion``."""
    sinks = {written.topic.name: written for written in topology.written}
    if name is None and len(sinks) == 1:
        [name] = sinks
    if name not in sinks:
        raise BadQuestion.of(
            "which-sink",
            given=name and name[:100],
            name=topology.name,
            expected=f"one of {', '.join(sinks)}" if sinks else "a stream that writes to a topic: it has actions only",
        )
    return AskedSink(topology, sinks[name])


def missing_columns(sink: AskedSink, there: Iterable[str]) -> list[str]:
    """The columns of the rows that are not among those that are ``there``."""
    return sorted({*sink.fields, GENERATION} - set(there))


def seen_rows(
    outputs: DeltaTable, corrections: DeltaTable | None, sink: AskedSink, moment: Moment, wanted: pl.Expr | None = None
) -> pl.LazyFrame:
    """Rows that readers see at ``moment`` of the ``wanted`` (None: all), a condition on each row alone.

    ``outputs`` and ``corrections`` (None: no such table) are the tables of ``sink``. Columns: the fields,
    ``recount_timestamp_ms``, ``recount_revision``, ``recount_origin`` of rows of records, the batch and, of a
    correction, the number of its backfill, else ``OF_STREAM``.
    """
    generation, batch = moment.order
    parts = [_as_rows(outputs, sink, earlier((generation, batch + 1)), of_backfill=False)]
    if corrections is not None:
        by_then = pl.lit(value=True) if moment.at_ms is None else pl.col(PUBLISHED_AT) <= moment.at_ms
        parts.append(_as_rows(corrections, sink, by_then, of_backfill=True))
    written = pl.concat(parts, how="vertical")
    if wanted is not None:
        written = written.filter(wanted)
    if sink.identity.is_latest:
        seen = _latest(written, sink, corrections)
    else:
        seen = written if corrections is None else _since_corrected(written, sink)
    kept = seen.filter(~pl.col(IS_NULL)).drop(IS_NULL)
    return kept if sink.identity.has_origin else kept.drop(ORIGIN)


def _as_rows(table: DeltaTable, sink: AskedSink, by_then: pl.Expr, *, of_backfill: bool) -> pl.LazyFrame:
    """Rows of ``table`` ``by_then``, in the columns of rows; a table lacks columns that would be empty in it."""
    there = {field.name for field in table.schema().fields}
    withdraws = not adds_up(sink.written.input)

    def known(name: str, kind: pl.DataType, otherwise: object = None, *, known: bool = True) -> pl.Expr:
        return (pl.col(name) if known and name in there else pl.lit(otherwise)).cast(kind).alias(name)

    types = pl.DataFrame(
        pa.schema([(name, arrow_type(kind)) for name, kind in sink.fields.items()]).empty_table()
    ).schema
    return (
        pl.scan_delta(table)
        .filter(by_then)
        .select(
            *(pl.col(name).cast(kind) for name, kind in types.items()),
            known(RESULT_TIME, pl.Int64()),
            known(REVISION, pl.Int32()),
            # an aggregation of time windows withdraws nothing: who marks its rows does not hide them
            known(IS_NULL, pl.Boolean(), otherwise=False, known=withdraws).fill_null(value=False),
            known(ORIGIN, pl.String()),
            known(GENERATION, pl.Int32()),
            known(BATCH, pl.Int64()),
            known(BACKFILL_NUMBER, pl.Int64(), otherwise=OF_STREAM, known=of_backfill),
        )
    )


def _latest(written: pl.LazyFrame, sink: AskedSink, corrections: DeltaTable | None) -> pl.LazyFrame:
    """The newest row of each key and window. Corrections of an earlier release may name no batch: revisions count."""
    bounds = [WINDOW_START, WINDOW_END] if sink.identity.has_bounds else []
    has_batches = corrections is None or GENERATION in {field.name for field in corrections.schema().fields}
    order = [*_WRITTEN, REVISION] if has_batches else [REVISION, BACKFILL_NUMBER]
    return written.sort(order).unique([sink.key, *bounds], keep="last", maintain_order=True)


def _since_corrected(written: pl.LazyFrame, sink: AskedSink) -> pl.LazyFrame:
    """Rows of an identity after its last correction, or the rows of the correction where there are none."""
    identity = sink.identity
    by_time = pl.lit(None) if identity.has_bounds else pl.lit("at ") + pl.col(RESULT_TIME).cast(pl.String)
    origin = (pl.coalesce(ORIGIN, by_time) if identity.has_origin else by_time).cast(pl.String).alias("__origin")
    bounds = [WINDOW_START, WINDOW_END] if identity.has_bounds else []
    rows = written.sort(_WRITTEN).with_columns(origin, pl.struct(_WRITTEN).rle_id().alias(_AT))
    group = [sink.key, *bounds, "__origin"]
    corrected_at = pl.col(_AT).filter(pl.col(BACKFILL_NUMBER) > OF_STREAM).max().over(group)
    rows = rows.with_columns(corrected_at.alias(_CORRECTED_AT))
    goes_on = (pl.col(_AT) > pl.col(_CORRECTED_AT)).any().over(group)
    is_seen = (
        pl.col(_CORRECTED_AT).is_null()
        | (pl.col(_AT) > pl.col(_CORRECTED_AT))
        | (~goes_on & (pl.col(_AT) == pl.col(_CORRECTED_AT)))
    )
    return rows.filter(is_seen).drop("__origin", _AT, _CORRECTED_AT)
