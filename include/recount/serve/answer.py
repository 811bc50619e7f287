"""The answer to a question: rows, the batch and frontier that they are from, whether audits have judged them.

``table_of`` shows an answer to people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, Self

import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from recount.declare.columns import BACKFILL_NUMBER, BATCH, GENERATION, ORIGIN, PREFIX, RESULT_TIME, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.output import encode_value
from recount.declare.topology import Topology
from recount.runtime.errors import Transient
from recount.runtime.times import roughly, told_time
from recount.serve.asked_sink import OF_STREAM, AskedSink, missing_columns, seen_rows
from recount.serve.question import Question
from recount.tables.batch_proofs import RUNS, Proofs, complete_audits, released_by
from recount.tables.ledger import BatchProof
from recount.tables.places import Released, Tables, ageing

Order = tuple[int, int]
AUDITED, ROWS = "recount_audited", "recount_rows"
"""Whether the newest audit has judged the row; how many rows a count is of."""
_TIES = [RESULT_TIME, GENERATION, BATCH]
_TIMES = {WINDOW_START, WINDOW_END, RESULT_TIME}
_NOT_SHOWN = {GENERATION, BATCH, BACKFILL_NUMBER, ORIGIN}
_HEADS = {RESULT_TIME: "time", REVISION: "revision", AUDITED: "audited"}


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The last batch that had been recorded at ``asked_ms``: its rows, and those of all batches before it, count.

    ``at_ms`` is the past time that was asked for, None where it was now. ``newest`` is the last batch of all.
    """

    asked_ms: int
    at_ms: int | None
    proof: BatchProof
    newest: Order

    @classmethod
    def of(cls, tables: Tables, stream: str, at_ms: int | None, now_ms: int) -> Self | str:
        """The newest batch of ``stream``, or the newest recorded by ``at_ms``; a text: why there is none yet."""
        proofs = Proofs(state=tables.state(stream), moved_to=tables.ledger(stream))
        newest = proofs.newest()
        if newest is None:
            return f"{stream} has not committed a batch yet"
        if at_ms is None:
            return cls(asked_ms=now_ms, at_ms=None, proof=newest, newest=newest.order)
        then = proofs.last_recorded_by(at_ms)
        if then is None:
            return f"{stream} had not committed a batch by then"
        return cls(asked_ms=at_ms, at_ms=at_ms, proof=then.proof, newest=newest.order)

    @property
    def order(self) -> Order:
        return self.proof.order

    @property
    def document(self) -> Mapping[str, Any]:
        """The moment as part of an answer."""
        recorded_ms = self.proof.batch_timestamp_ms
        return {
            "generation": self.proof.generation,
            "batch": self.proof.batch,
            "recorded_ms": recorded_ms,
            # the clock that recorded the batch may be ahead of this one
            "age_ms": max(0, self.asked_ms - recorded_ms),
            "frontier_ms": self.proof.frontier_ms,
        }


@dataclass(frozen=True, kw_only=True)
class JudgedTo:
    """An audit of a stream; it names the open findings of all nights.

    It judged every row up to the batch ``cut`` and, by table, the corrections of the first ``backfills``.
    """

    audit: str
    outcome: str
    finished_ms: int
    cut: Order
    frontier_ms: int | None
    backfills: Mapping[str, int]

    @classmethod
    def of(cls, audit: Mapping[str, Any]) -> Self:
        return cls(
            audit=audit["audit"],
            outcome=audit["outcome"],
            finished_ms=audit["finished_ms"],
            cut=(audit["generation"], audit["batch"]),
            frontier_ms=audit["frontier_ms"],
            backfills={table: checksums["backfills"] for table, checksums in audit.get("tables", {}).items()},
        )

    def document(self, moment: Moment) -> Mapping[str, Any]:
        """The audit as part of an answer from ``moment``."""
        generation, batch = self.cut
        return {
            "audited": moment.order <= self.cut,
            "audit": self.audit,
            "outcome": self.outcome,
            "finished_ms": self.finished_ms,
            "generation": generation,
            "batch": batch,
            "frontier_ms": self.frontier_ms,
        }


@dataclass(frozen=True, kw_only=True)
class Audits:
    """All complete audits of a stream, those that have judged furthest first, and what they have released."""

    all: tuple[JudgedTo, ...] = ()
    released: Released | None = None

    def judged_to(self, newest: Order) -> JudgedTo | None:
        """The audit that has judged furthest, and of those the last one, of a stream whose last batch is ``newest``.

        One that has judged a later batch is younger than the backup from which the stream was restored: the batches
        that there are now it has not seen.
        """
        return next((one for one in self.all if one.cut <= newest), None)

    @classmethod
    def of(cls, tables: Tables, topology: Topology) -> Audits:
        """Audits of ``topology`` now. Their documents are read once: after years of nights they are megabytes."""
        path = tables.audit(topology.name, RUNS)
        if not DeltaTable.is_deltatable(path):
            return cls()
        table = DeltaTable(path)
        return _audits(tables.root, topology.name, str(table.metadata().id), table.version())


@lru_cache(maxsize=1_000)
def _audits(root: str, stream: str, table: str, version: int) -> Audits:  # noqa: ARG001
    found = complete_audits(root, stream)
    judged = [JudgedTo.of(one) for one in found]
    furthest_first = sorted(judged, key=lambda one: (one.cut, one.finished_ms), reverse=True)
    return Audits(all=tuple(furthest_first), released=released_by(found))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``rows`` are at most as many as were asked for, of a ``total``; not one where it is ``not_ready``.

    Rows of event times before ``kept_since_ms`` may have been removed by the stream's retention.
    """

    sink: AskedSink
    asked_ms: int
    moment: Moment | None = None
    judged: JudgedTo | None = None
    not_ready: str | None = None
    kept_since_ms: int | None = None
    total: int = 0
    rows: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def state(self) -> Literal["ready", "not ready"]:
        """Whether there is something to answer from. That there is not is an answer as well."""
        return "not ready" if self.moment is None else "ready"

    @property
    def document(self) -> dict[str, Any]:
        return {
            "stream": self.sink.topology.name,
            "sink": self.sink.name,
            "state": self.state,
            "reason": self.not_ready,
            "asked_ms": self.asked_ms,
            "as_of": None if self.moment is None else self.moment.document,
            "audit": None if self.judged is None or self.moment is None else self.judged.document(self.moment),
            "kept_since_ms": self.kept_since_ms,
            "total": self.total,
        }

    def to_json(self) -> bytes:
        """One JSON object; rows are written as on Kafka, decimals as numbers with all their digits."""
        rows = b",".join(encode_value(row) for row in self.rows)
        return json.dumps(self.document, ensure_ascii=False).encode()[:-1] + b',"rows":[' + rows + b"]}"


def answer(tables: Tables, question: Question, now_ms: int) -> Answer:
    """The answer from the ``tables`` as they are; raises ``Transient`` where a file goes away as it is read.

    A batch counts once it is in the ledger: then its rows are in every table.
    """
    with reading(question.sink.topology.name):
        return _answer(tables, question, now_ms)


@contextmanager
def reading(stream: str) -> Iterator[None]:
    """Whatever cannot be read meanwhile of the tables of ``stream`` is ``Transient``."""
    try:
        yield
    except (DeltaError, OSError, pl.exceptions.PolarsError) as error:
        raise Transient.of(
            "tables-unreadable", given=f"{type(error).__name__}: {error}"[:500], stream=stream
        ) from error


def _answer(tables: Tables, question: Question, now_ms: int) -> Answer:
    sink = question.sink
    asked_ms = now_ms if question.at_ms is None else question.at_ms
    sink.identity  # noqa: B018 - it raises where the rows cannot be distinguished
    moment = Moment.of(tables, sink.topology.name, question.at_ms, now_ms)
    if isinstance(moment, str):
        return Answer(sink=sink, asked_ms=asked_ms, not_ready=moment)
    outputs, corrections = (
        DeltaTable(path) if DeltaTable.is_deltatable(path) else None
        for path in (tables.output(sink.written.table), tables.corrections(sink.written.table))
    )
    objection = _objection(sink, outputs)
    if outputs is None or objection is not None:
        return Answer(sink=sink, asked_ms=asked_ms, not_ready=objection)
    audits = Audits.of(tables, sink.topology)
    judged = audits.judged_to(moment.newest)
    gone = None if ageing(sink.written) is None else audits.released
    total, rows = _rows(seen_rows(outputs, corrections, sink, moment, question.wanted), question, judged)
    return Answer(
        sink=sink,
        asked_ms=asked_ms,
        moment=moment,
        judged=judged,
        kept_since_ms=None if gone is None else gone.before_ms,
        total=total,
        rows=rows,
    )


def _objection(sink: AskedSink, outputs: DeltaTable | None) -> str | None:
    """Why there is no answer from the table of results; None where there is one."""
    if outputs is None:
        return f"the table outputs/{sink.written.table} is not there"
    missing = missing_columns(sink, [field.name for field in outputs.schema().fields])
    if missing:
        return f"the table outputs/{sink.written.table} has no {', '.join(missing)}: another declaration made it"
    return None


def _rows(seen: pl.LazyFrame, question: Question, judged: JudgedTo | None) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and the first of them."""
    if question.count_by is not None:
        counted = seen.group_by(question.count_by).agg(pl.len().alias(ROWS)).collect()
        in_order = counted.sort(ROWS, question.count_by, descending=[True, False])
        return int(counted[ROWS].sum()), in_order.head(question.limit).to_dicts()
    sink = question.sink
    number = pl.col(BACKFILL_NUMBER)
    marked = seen.with_columns(
        _is_audited(sink, judged).alias(AUDITED), pl.when(number > OF_STREAM).then(number).alias(BACKFILL_NUMBER)
    )
    bounds = [WINDOW_END, WINDOW_START] if sink.identity.has_bounds else []
    found = marked.collect()
    newest = [*bounds, *_TIES]
    is_descending = [*([True] * len(newest)), False]
    # to sort all rows of a large table would take ten times as long
    first = found.top_k(question.limit, by=[*newest, sink.key], reverse=[not one for one in is_descending])
    rows = first.sort([*newest, sink.key], descending=is_descending)
    rows = rows.select(*sink.fields, *(name for name in rows.columns if name.startswith(PREFIX)))
    return found.height, rows.to_dicts()


def _is_audited(sink: AskedSink, judged: JudgedTo | None) -> pl.Expr:
    if judged is None:
        return pl.lit(value=False)
    generation, batch = judged.cut
    same = (pl.col(GENERATION) == generation) & (pl.col(BATCH) <= batch)
    backfills = judged.backfills.get(sink.written.table, 0)
    of_stream = pl.col(BACKFILL_NUMBER) == OF_STREAM
    by_stream = ((pl.col(GENERATION) < generation) | same).fill_null(value=False)
    return pl.when(of_stream).then(by_stream).otherwise(pl.col(BACKFILL_NUMBER) < backfills)


def table_of(answer: Answer) -> Table:
    names = [name for name in (answer.rows[0] if answer.rows else ()) if name not in _NOT_SHOWN]
    table = Table(box=SIMPLE)
    for name in names:
        table.add_column(_HEADS.get(name, name))
    for row in answer.rows:
        table.add_row(*(Text(_cell(name, row[name])) for name in names))
    return table


def told(answer: Answer) -> Iterator[str]:
    if answer.moment is None:
        yield f"not ready: {answer.not_ready}"
        return
    more = answer.total - len(answer.rows)
    is_cut = more > 0 and AUDITED in answer.rows[0]
    yield f"rows: {answer.total:,}" + (f", of which the newest {len(answer.rows):,} are shown" if is_cut else "")
    said = answer.moment.document
    frontier_ms = said["frontier_ms"]
    frontier = "none yet" if frontier_ms is None else told_time(frontier_ms)
    yield (
        f"as of batch {said['generation']}/{said['batch']}, recorded {told_time(said['recorded_ms'])} UTC,"
        f" {roughly(said['age_ms'])} before; frontier {frontier}"
    )
    if answer.judged is None:
        yield "never audited"
    else:
        judged = answer.judged.document(answer.moment)
        reach = (
            "up to this batch" if judged["audited"] else f"up to batch {judged['generation']}/{judged['batch']} only"
        )
        yield f"audited {reach}: {judged['outcome']} ({judged['audit']})"
    if answer.kept_since_ms is not None:
        yield f"rows of times before {told_time(answer.kept_since_ms)} may have been removed by retention"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return format(value, "f")
    text = told_time(value) if name in _TIMES else ("no", "yes")[value] if isinstance(value, bool) else str(value)
    # a terminal would obey control characters, and a value comes from any writer to the topic
    return text if text.isprintable() else repr(text)
