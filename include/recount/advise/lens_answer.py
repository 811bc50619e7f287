"""Answers of other engines as values, for terminal, JSON or page: records dropped, results that differ.

Differences are counted between the fewest and the most.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

from recount.advise.engine_clocks import DROPPED, ENGINES, OURS, RESULT, STRUCTURED_STREAMING, judged_by, least, most
from recount.advise.lens_log import Modelled, Reaching, Span, reaching
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.windows import SessionWindows
from recount.reference.record_aggregates import results
from recount.runtime.times import readable

FIRST = 10
"""How many records and results are listed of each engine, unless more are asked for."""
_PLACES = 10
_JUDGED = "is_judged"


@dataclass(frozen=True)
class Between:
    """A number between two, inclusive; the log says it exactly where they are the same."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"


@dataclass(frozen=True, kw_only=True)
class DroppedRecord:
    """A record that Recount counts and the engine drops; ``is_certain``: in whatever order it has read."""

    place: str
    key: str | int
    time_ms: int
    is_certain: bool


@dataclass(frozen=True, kw_only=True)
class OtherResult:
    """One result of Recount, and what the engine has of it, each as a row of window bounds and aggregates.

    Theirs are several where a session fell apart, none where the result is lost. ``dropped`` are the first places of
    records that are missing. Of a window of which not all records were read no values are given: ``ours`` is None.
    """

    key: str | int
    window_start: int
    window_end: int
    is_certain: bool
    ours: Mapping[str, Any] | None
    theirs_at_least_dropped: Sequence[Mapping[str, Any]]
    theirs_at_most_dropped: Sequence[Mapping[str, Any]]
    dropped: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class EngineAnswer:
    """One engine: what it would have dropped and answered, and what is ``assumed`` of it, in sentences.

    ``dropped`` records are missing from a result that they fall into, ``dropped_of_ours`` from one in which Recount
    counts them. Of Recount's results ``changed`` are made of other records, and ``lost`` among them of none;
    ``added`` are results that Recount has not. Of the first ``records`` and ``results`` those are first that are
    certain.
    """

    engine: str
    assumed: Sequence[str]
    dropped: Between
    dropped_of_ours: Between
    lost: Between
    changed: Between
    added: Between
    records: Sequence[DroppedRecord]
    results: Sequence[OtherResult]


@dataclass(frozen=True, kw_only=True)
class LensAnswer:
    """The ``records`` that reach the aggregation in the interval, and what each engine would have made of them.

    ``late`` of them are late for a window by Recount itself; its ``results`` have one of them. ``read`` records were
    read in ``seconds``, those before the interval included.
    """

    stream: str
    windows: str
    start_ms: int | None
    end_ms: int | None
    batches: int
    batch_records: int | None
    records: int
    late: int
    results: int
    read: int
    seconds: float
    engines: Sequence[EngineAnswer]

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON; decimals are texts."""
        said = asdict(self)
        cost = {"read": said.pop("read"), "seconds": round(said.pop("seconds"), 3)}
        return {**said, "cost": cost}


def looked_at(
    modelled: Modelled,
    span: Span,
    log: Iterable[pa.RecordBatch],
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    batch_records: int | None = None,
    first: int = FIRST,
) -> LensAnswer:
    """The answers of the other engines to ``log``, which is that of ``span``."""
    begun = time.monotonic()
    found = reaching(modelled, span, log)
    judged = judged_by(span, found)
    answers, asked = _Answers(found, span, judged, first), judged.filter(_JUDGED)
    return LensAnswer(
        stream=modelled.topology.name,
        windows=str(modelled.windows),
        start_ms=start_ms,
        end_ms=end_ms,
        batches=span.batches,
        batch_records=batch_records,
        records=asked["row"].n_unique(),
        late=asked.filter(~pl.col(OURS))["row"].n_unique(),
        results=asked.filter(OURS)[RESULT].n_unique(),
        read=found.read,
        engines=[answers.of(engine) for engine in ENGINES],
        seconds=time.monotonic() - begun,
    )


@dataclass(frozen=True)
class _Answers:
    """The counts of an engine, and its first records and results, with their keys, places and values."""

    found: Reaching
    span: Span
    judged: pl.DataFrame
    first: int

    def of(self, engine: str) -> EngineAnswer:
        """Return the answer of ``engine``."""
        surely, maybe = (pl.col(name(engine)) == DROPPED for name in (least, most))
        asked, known = self.judged.filter(_JUDGED), _results(self.judged, engine)
        of_ours = asked.filter(OURS)
        dropped = of_ours.filter(maybe).group_by("row").agg(is_sure=surely.any())
        records = dropped.sort("is_sure", "row", descending=[True, False]).head(self.first)
        order = {"is_lost": True, "is_changed": True, "start": False, "key": False}
        changed = known.filter("may_be_changed").sort(*order, descending=list(order.values())).head(self.first)
        return EngineAnswer(
            engine=engine,
            assumed=list(_assumed(engine, self.found)),
            dropped=Between(*(asked.filter(which)["row"].n_unique() for which in (surely, maybe))),
            dropped_of_ours=Between(*(of_ours.filter(which)["row"].n_unique() for which in (surely, maybe))),
            lost=Between(*(known.filter(which).height for which in ("is_lost", "may_be_lost"))),
            changed=Between(*(known.filter(which).height for which in ("is_changed", "may_be_changed"))),
            added=_added(self.judged, engine),
            records=[self._record(row, is_sure) for row, is_sure in records.iter_rows()],
            results=[self._result(engine, *row) for row in changed.select(RESULT, "is_changed").iter_rows()],
        )

    def _record(self, row: int, is_certain: bool) -> DroppedRecord:
        key, time_ms = self.found.rows.select("key", "time_ms").row(row)
        return DroppedRecord(place=self._place(row), key=self.found.keys[key], time_ms=time_ms, is_certain=is_certain)

    def _result(self, engine: str, result: int, is_certain: bool) -> OtherResult:
        of_it = self.judged.filter(pl.col(RESULT) == result)
        key, start, end = of_it.select("key", "start", "end").row(0)
        is_whole = start >= self.span.whole_since_ms
        missing = of_it.filter(OURS, pl.col(most(engine)) == DROPPED)["row"].to_list()
        bounds = {WINDOW_START: start, WINDOW_END: end}
        theirs = [self._theirs(of_it, name(engine), bounds) if is_whole else [] for name in (least, most)]
        return OtherResult(
            key=self.found.keys[key],
            window_start=start,
            window_end=end,
            is_certain=is_certain,
            ours={**bounds, **self._values(of_it.filter(OURS)["row"])} if is_whole else None,
            theirs_at_least_dropped=theirs[0],
            theirs_at_most_dropped=theirs[1],
            dropped=[self._place(row) for row in missing[:_PLACES]],
        )

    def _theirs(self, of_it: pl.DataFrame, reading: str, bounds: Mapping[str, int]) -> Sequence[Mapping[str, Any]]:
        """Every result of the engine that has one of these records."""
        found = []
        for number in sorted(set(of_it[reading].to_list()) - {DROPPED}):
            theirs = self.judged.filter(pl.col(reading) == number)
            if isinstance(self.found.modelled.windows, SessionWindows):
                start, end = theirs.select(pl.col("time_ms").min(), pl.col("time_ms").max().alias("end")).row(0)
                bounds = {WINDOW_START: start, WINDOW_END: end}
            found.append({**bounds, **self._values(theirs["row"])})
        return found

    def _values(self, rows: pl.Series) -> dict[str, Any]:
        """The aggregates over the records of these rows, by the reference interpreter."""
        modelled = self.found.modelled
        gap_ms = modelled.windows.gap_ms if isinstance(modelled.windows, SessionWindows) else None
        made = results(modelled.aggregate.aggregates, self.found.records(rows.sort().to_list()), gap_ms)
        return {name: format(value, "f") if isinstance(value, Decimal) else value for name, value in made.items()}

    def _place(self, row: int) -> str:
        partition, offset = self.found.rows.select("partition", "offset").row(row)
        return f"{self.span.topic}-{partition}@{offset}"


def _results(judged: pl.DataFrame, engine: str) -> pl.DataFrame:
    """Recount's results with a record that is asked about, each with what it may have become.

    It is changed for certain by a record that is dropped, or added, for certain. It may be changed by one that may be,
    or where its records are in another session, or in several.
    """
    ours, (surely, maybe) = pl.col(OURS), (pl.col(name(engine)) == DROPPED for name in (least, most))
    may_be_changed = ((ours & maybe) | (~ours & ~surely)).any()
    for name in (least(engine), most(engine)):
        kept = pl.col(name).filter(pl.col(name) != DROPPED)
        judged = judged.with_columns(pl.when(pl.col(name) != DROPPED).then(pl.len().over(name)).alias(f"size {name}"))
        may_be_changed |= ~((kept.n_unique() == 1) & (pl.col(f"size {name}").max() == ours.sum()))
    grouped = judged.drop_nulls(RESULT).group_by(RESULT)
    found = grouped.agg(
        pl.col("key", "start").first(),
        pl.col(_JUDGED).any(),
        has_ours=ours.any(),
        is_lost=surely.all(),
        may_be_lost=maybe.all(),
        is_changed=((ours & surely) | (~ours & ~maybe)).any(),
        may_be_changed=may_be_changed,
    )
    return found.filter(_JUDGED, "has_ours")


def _added(judged: pl.DataFrame, engine: str) -> Between:
    """The fewest are added where the most records are dropped."""
    known = judged.with_columns(stands=pl.col(OURS).any().over(RESULT) & pl.col(RESULT).is_not_null())
    found = []
    for name in (most(engine), least(engine)):
        theirs = known.filter(pl.col(name) != DROPPED).group_by(name)
        added = theirs.agg(pl.col("stands").any(), pl.col(_JUDGED).any()).filter(_JUDGED, ~pl.col("stands"))
        found.append(added.height)
    return Between(min(found), max(found))


def _assumed(engine: str, found: Reaching) -> Iterator[str]:
    """The sentences about ``engine``."""
    modelled = found.modelled
    grace, has_sessions = readable(modelled.windows.grace_ms), isinstance(modelled.windows, SessionWindows)
    if engine == STRUCTURED_STREAMING:
        yield f"a watermark with a delay of {grace}, on all partitions, set where the topic is read"
        yield (
            "fewest dropped: batches follow without a pause, and a batch is judged by those before the one before it;"
            " most dropped: Spark runs a batch without data after each, and all batches before count"
        )
        if has_sessions:
            yield "sessions in the output mode append: one that has ended by the watermark is joined no more"
        return
    yield f"a grace of {grace}, and tasks that never restart: one that does begins with no stream time"
    if modelled.is_spread_by_key:
        yield (
            "the records of a batch come before those of the next one; in which order the partitions of one batch pass "
            "the repartition topic is open, so the numbers are bounds over all such orders"
        )
    else:
        yield "records keep their key, so a task reads one partition, and its stream time is in the log"
        places = found.rows.group_by("key").agg(pl.col("partition").n_unique())
        if several := places.filter(pl.col("partition") > 1).height:
            yield (
                f"{several:,} keys lie in several partitions: Kafka Streams has a result of "
                "each partition, which are taken together here"
            )
    if has_sessions:
        yield "a store that keeps every session that a record can still join"
