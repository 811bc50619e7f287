"""Answers of other engines as a document: records dropped, results that differ.

Differences are counted between the fewest and the most.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
COUNTS = {
    "records dropped": "dropped",
    "of these counted by Recount": "dropped_of_ours",
    "results lost": "lost",
    "results changed or lost": "changed",
    "results that Recount has not": "added",
}
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class LensAnswer:
    """The ``records`` that reach the aggregation in the interval, and what each engine would have made of them.

    ``late`` of them are late for a window by Recount itself; its ``results`` have one of them. ``cost`` says how many
    were read in how many seconds, those before the interval included.

    Of each engine, what is ``assumed`` of it, and numbers between the least and the most that can be: ``dropped``
    records are missing from a result that they fall into, ``dropped_of_ours`` from one in which Recount counts them. Of
    Recount's results ``changed`` are made of other records, and ``lost`` among them of none; ``added`` are results that
    Recount has not. Of its first ``records`` and ``results`` those are first that are certain in whatever order it has
    read. Results are rows of window bounds and aggregates: ``ours`` (None where not all records of the window were
    read), and theirs, which are several where a session fell apart, none where the result is lost.
    """

    said: Figures

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON; decimals are texts."""
        return dict(self.said)


def looked_at(
    modelled: Modelled, span: Span, log: Iterable[pa.RecordBatch], *, first: int = FIRST, **asked: int | None
) -> LensAnswer:
    """The answers of the other engines to ``log``, which is that of ``span``; what was ``asked`` is part of it."""
    begun = time.monotonic()
    found = reaching(modelled, span, log)
    judged = judged_by(span, found)
    answers, of_interval = _Answers(found, span, judged, first), judged.filter(_JUDGED)
    said = {
        "stream": modelled.topology.name,
        "windows": str(modelled.windows),
        **dict.fromkeys(("start_ms", "end_ms", "batch_records")),
        **asked,
        "batches": span.batches,
        "records": of_interval["row"].n_unique(),
        "late": of_interval.filter(~pl.col(OURS))["row"].n_unique(),
        "results": of_interval.filter(OURS)[RESULT].n_unique(),
        "engines": [answers.of(engine) for engine in ENGINES],
    }
    return LensAnswer({**said, "cost": {"read": found.read, "seconds": round(time.monotonic() - begun, 3)}})


@dataclass(frozen=True)
class _Answers:
    """The counts of an engine, and its first records and results, with their keys, places and values."""

    found: Reaching
    span: Span
    judged: pl.DataFrame
    first: int

    def of(self, engine: str) -> Figures:
        surely, maybe = (pl.col(name(engine)) == DROPPED for name in (least, most))
        asked, known = self.judged.filter(_JUDGED), _results(self.judged, engine)
        of_ours = asked.filter(OURS)
        dropped = of_ours.filter(maybe).group_by("row").agg(is_sure=surely.any())
        records = dropped.sort("is_sure", "row", descending=[True, False]).head(self.first)
        order = {"is_lost": True, "is_changed": True, "start": False, "key": False}
        changed = known.filter("may_be_changed").sort(*order, descending=list(order.values())).head(self.first)
        bounds = (
            [asked.filter(which)["row"].n_unique() for which in (surely, maybe)],
            [of_ours.filter(which)["row"].n_unique() for which in (surely, maybe)],
            [known.filter(which).height for which in ("is_lost", "may_be_lost")],
            [known.filter(which).height for which in ("is_changed", "may_be_changed")],
            sorted(_added(self.judged, name(engine)) for name in (least, most)),
        )
        return {
            "engine": engine,
            "assumed": list(_assumed(engine, self.found)),
            **{name: {"least": few, "most": many} for name, (few, many) in zip(COUNTS.values(), bounds, strict=True)},
            "records": [self._record(row, is_sure) for row, is_sure in records.iter_rows()],
            "results": [self._result(engine, *row) for row in changed.select(RESULT, "is_changed").iter_rows()],
        }

    def _record(self, row: int, is_certain: bool) -> Figures:
        key, time_ms = self.found.rows.select("key", "time_ms").row(row)
        return {"place": self._place(row), "key": self.found.keys[key], "time_ms": time_ms, "is_certain": is_certain}

    def _result(self, engine: str, result: int, is_certain: bool) -> Figures:
        of_it = self.judged.filter(pl.col(RESULT) == result)
        key, start, end = of_it.select("key", "start", "end").row(0)
        is_whole = start >= self.span.whole_since_ms
        missing = of_it.filter(OURS, pl.col(most(engine)) == DROPPED)["row"].to_list()
        bounds = {WINDOW_START: start, WINDOW_END: end}
        theirs = [self._theirs(of_it, name(engine), bounds) if is_whole else [] for name in (least, most)]
        return {
            "key": self.found.keys[key],
            **bounds,
            "is_certain": is_certain,
            "ours": {**bounds, **self._values(of_it.filter(OURS)["row"])} if is_whole else None,
            "theirs_at_least_dropped": theirs[0],
            "theirs_at_most_dropped": theirs[1],
            "dropped": [self._place(row) for row in missing[:_PLACES]],
        }

    def _theirs(self, of_it: pl.DataFrame, reading: str, bounds: Figures) -> Sequence[Figures]:
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


def _added(judged: pl.DataFrame, reading: str) -> int:
    """How many results Recount has not, by one reading: the fewest where the most records are dropped."""
    known = judged.with_columns(stands=pl.col(OURS).any().over(RESULT) & pl.col(RESULT).is_not_null())
    theirs = known.filter(pl.col(reading) != DROPPED).group_by(reading)
    return theirs.agg(pl.col("stands", _JUDGED).any()).filter(_JUDGED, ~pl.col("stands")).height


def _assumed(engine: str, found: Reaching) -> Iterator[str]:
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
