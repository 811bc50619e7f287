"""Answers of other engines as values, for terminal, JSON or page: records dropped, results that differ.

Differences are counted between the fewest and the most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from recount.advise.lens.engine_clocks import DROPPED, OURS, RESULT, least, most

JUDGED = "judged"
"""The column that says whether a record is one of those that are asked about."""


@dataclass(frozen=True)
class Between:
    """A number between two, inclusive; the log says it exactly where they are the same."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"

    @property
    def document(self) -> Mapping[str, int]:
        """Both numbers as JSON."""
        return {"least": self.least, "most": self.most}


@dataclass(frozen=True, kw_only=True)
class Differing:
    """How the results of one engine differ from Recount's.

    ``dropped`` records are missing from a result that they fall into, ``dropped_of_ours`` from one in which Recount
    counts them. Of Recount's results ``changed`` are made of other records, and ``lost`` among them of none;
    ``added`` are results that Recount has not. ``rows`` and ``results`` are the first of them, those first that are
    certain, each with whether it is.
    """

    dropped: Between
    dropped_of_ours: Between
    lost: Between
    changed: Between
    added: Between
    rows: Sequence[tuple[int, bool]]
    results: Sequence[tuple[int, bool]]


def differing(judged: pl.DataFrame, engine: str, first: int) -> Differing:
    """Return how ``engine`` differs in ``judged``, with the first so many records and results."""
    low, high = pl.col(least(engine)), pl.col(most(engine))
    flags = judged.select(
        "row",
        "key",
        "start",
        RESULT,
        OURS,
        JUDGED,
        least(engine),
        most(engine),
        surely=low == DROPPED,
        maybe=high == DROPPED,
    )
    asked = flags.filter(JUDGED)
    results = _results(flags, engine)
    dropped = asked.filter(pl.col(OURS) & pl.col("maybe")).group_by("row").agg(pl.col("surely").any())
    return Differing(
        dropped=Between(_rows(asked, pl.col("surely")), _rows(asked, pl.col("maybe"))),
        dropped_of_ours=Between(_rows(asked, pl.col(OURS) & pl.col("surely")), dropped.height),
        lost=Between(int(results["is_lost"].sum()), int(results["may_be_lost"].sum())),
        changed=Between(int(results["is_changed"].sum()), int(results["may_be_changed"].sum())),
        added=_added(flags, engine),
        rows=list(dropped.sort("surely", "row", descending=[True, False]).head(first).iter_rows()),
        results=list(
            results.filter("may_be_changed")
            .sort("is_lost", "is_changed", "start", "key", descending=[True, True, False, False])
            .select(RESULT, "is_changed")
            .head(first)
            .iter_rows()
        ),
    )


def _rows(flags: pl.DataFrame, which: pl.Expr) -> int:
    return int(flags.filter(which)["row"].n_unique())


def _results(flags: pl.DataFrame, engine: str) -> pl.DataFrame:
    """Recount's results with a record that is asked about, each with what it may have become.

    It is changed for certain by a record that is dropped, or added, for certain. It may be changed by one that may be,
    or where its records are in another session, or in several.
    """
    ours, surely, maybe = pl.col(OURS), pl.col("surely"), pl.col("maybe")
    apart = []
    for name in (least(engine), most(engine)):
        size = pl.len().over(name)
        flags = flags.with_columns(pl.when(pl.col(name) != DROPPED).then(size).alias(f"size {name}"))
        kept = pl.col(name).filter(pl.col(name) != DROPPED)
        is_same = (kept.n_unique() == 1) & (pl.col(f"size {name}").max() == ours.sum())
        apart.append(~is_same)
    grouped = (
        flags.drop_nulls(RESULT)
        .group_by(RESULT)
        .agg(
            pl.col("key", "start").first(),
            pl.col(JUDGED).any(),
            has_ours=ours.any(),
            is_lost=surely.all(),
            may_be_lost=maybe.all(),
            is_changed=((ours & surely) | (~ours & ~maybe)).any(),
            may_be_changed=((ours & maybe) | (~ours & ~surely)).any() | apart[0] | apart[1],
        )
    )
    return grouped.filter(JUDGED, "has_ours")


def _added(flags: pl.DataFrame, engine: str) -> Between:
    """The fewest are added where the most records are dropped."""
    known = flags.with_columns(stands=pl.col(OURS).any().over(RESULT) & pl.col(RESULT).is_not_null())
    found = []
    for name in (most(engine), least(engine)):
        theirs = known.filter(pl.col(name) != DROPPED).group_by(name)
        added = theirs.agg(pl.col("stands").any(), pl.col(JUDGED).any()).filter(JUDGED, ~pl.col("stands"))
        found.append(added.height)
    return Between(min(found), max(found))


@dataclass(frozen=True, kw_only=True)
class DroppedRecord:
    """A record that Recount counts and the engine drops; ``is_certain``: in whatever order it has read.

    ``place`` is ``topic-partition@offset``.
    """

    place: str
    key: str | int
    time_ms: int
    is_certain: bool


@dataclass(frozen=True, kw_only=True)
class OtherResult:
    """One result of Recount, and what the engine has of it, at the fewest and at the most records dropped.

    ``ours`` and each of theirs is a row of window bounds and aggregates; theirs are several where a session fell apart,
    none where the result is lost. ``dropped`` are the first places of records that are missing. Of a window of which
    not all records were read no values are given: ``ours`` is None.
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
    """One engine: what it would have dropped and answered, and what is ``assumed`` of it, in sentences."""

    engine: str
    assumed: Sequence[str]
    dropped: Between
    dropped_of_ours: Between
    lost: Between
    changed: Between
    added: Between
    records: Sequence[DroppedRecord]
    results: Sequence[OtherResult]

    def document(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        counts = ("dropped", "dropped_of_ours", "lost", "changed", "added")
        return {
            "engine": self.engine,
            "assumed": list(self.assumed),
            **{name: getattr(self, name).document for name in counts},
            "records": [asdict(record) for record in self.records],
            "results": [asdict(result) for result in self.results],
        }


@dataclass(frozen=True, kw_only=True)
class LensAnswer:
    """The records that were looked at, and what each engine would have made of them.

    ``records`` reach the aggregation in the interval, of which ``late`` are late for a window by Recount itself, in
    ``batches`` batches, of ``batch_records`` where they were cut again; its ``results`` have one of these records.
    ``read`` records were read in ``seconds``, those before the interval included.
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
        names = ("stream", "windows", "start_ms", "end_ms", "batches", "batch_records", "records", "late", "results")
        return {
            **{name: getattr(self, name) for name in names},
            "cost": {"read": self.read, "seconds": round(self.seconds, 3)},
            "engines": [engine.document() for engine in self.engines],
        }
