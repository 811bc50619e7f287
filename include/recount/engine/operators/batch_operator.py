"""Base class of a stream's operators: takes a batch's rows, judges lateness by a clock, and returns what leaves.

The clock has the stream times of the operator's source partitions, and the frontier over them. Every operator that
judges time has a clock of its own, because a record with a null key does not advance the stream time of an operator
that needs the key, while it advances those of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import polars as pl

from recount.declare.columns import STREAM_TIME, TIMESTAMP
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.engine.operators.batch_rows import (
    ENTRY,
    JUDGED,
    LOG_ORDER,
    META,
    OFFSET,
    PARTITION,
    REACHED,
    SUPERSEDED,
    TOPIC,
)
from recount.engine.operators.set_aside import RAISED_SCHEMA
from recount.engine.stage.intake import LATE_SCHEMA
from recount.engine.state.keyed_rows import KeyedRows

Partition = tuple[str, int]
TIMES_SCHEMA: dict[str, pl.DataType] = {name: META[name] for name in (*ENTRY, TIMESTAMP)}
_TIME_SCHEMA: dict[str, pl.DataType] = {TOPIC: pl.String(), PARTITION: pl.Int32(), STREAM_TIME: pl.Int64()}
_SOURCE = (TOPIC, PARTITION)
_NO_ENTRIES = pl.DataFrame(schema={name: META[name] for name in ENTRY})
_CARRIED, _PASSED_OVER, _EXACT, _IS_EXACT = "__carried_ms", "__passed_over", "__exact_ms", "__is_exact"
PLACE = "__place"
TURN = (TOPIC, REACHED, PARTITION, OFFSET)
"""The columns by which the records of a batch are taken."""
FRONTIER: Partition = ("", -1)
"""Under this identity the clock remembers its frontier: partitions have names and numbers from 0."""
Fate = Literal["counted", "late", "deduplicated", "null_value", "null_key", "filtered", "waiting"]
FATES: tuple[Fate, ...] = ("counted", "late", "deduplicated", "null_value", "null_key", "filtered", "waiting")
"""Where operators differ about a record, the first of these holds; one that no operator took up was filtered."""
FATE = "fate"
Published = Callable[[str], pl.LazyFrame]
FATE_TYPE = pl.Enum(FATES)
FATE_SCHEMA: dict[str, pl.DataType] = {**{name: META[name] for name in ENTRY}, FATE: FATE_TYPE}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch, as far as operators need to know it.

    ``reached`` is the largest event time that it has read of each partition, over all good records; ``stood`` the
    stream time of each before it. ``times`` (``TIMES_SCHEMA``) has all good records of the partitions of which an
    operator may pass some over, in offset order. ``known`` are all partitions that there are; ``awake`` those that hold
    the frontier back, for they are not idle. ``entered`` are the rows that came from the log, before any operator.
    ``refused`` (``ENTRY``) are the records that the operator at hand passes over, where its part of the rows is not
    all of them: None where it is. ``reduced`` are the windows that tasks have begun for it (``Reduction.schema``).
    ``published`` has the rows of an output table, by its name, that earlier batches have written.
    """

    reached: Mapping[Partition, int]
    stood: Mapping[Partition, int | None]
    times: pl.DataFrame
    known: Set[Partition]
    awake: Set[Partition]
    entered: Sequence[pl.DataFrame] = ()
    refused: pl.DataFrame | None = None
    reduced: pl.DataFrame | None = None
    published: Published | None = None

    @cached_property
    def turns(self) -> pl.DataFrame:
        """The place in the log (``LOG_ORDER``) of each row that ``entered``, and the columns of its turn."""
        places = (rows.select(*TURN, LOG_ORDER.alias(PLACE)) for rows in self.entered)
        return pl.concat(places).unique(PLACE)

    def judged(self, rows: pl.DataFrame) -> pl.DataFrame:
        """``rows`` with the stream time over all good records of their partitions in ``JUDGED``."""
        return with_judged(rows, time_frame(self.stood))

    def held_back(self, rows: pl.DataFrame) -> pl.DataFrame:
        """``rows`` of this batch as they go on from an operator that holds rows back and judges nobody."""
        return held_back(self.judged(rows))


def in_turn(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` of a batch's records in the order in which operators take them.

    Topic by topic; the partitions of one in the order of event time, as far as the offsets of each allow: by the
    largest time that the batch has read of the partition so far.
    """
    return rows.sort(TURN, maintain_order=True)


def time_frame(times: Mapping[Partition, int | None]) -> pl.DataFrame:
    """``times`` as a frame of topic, partition and stream time."""
    return pl.DataFrame([(*place, ms) for place, ms in times.items()], _TIME_SCHEMA, orient="row")


def with_judged(rows: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """``rows`` with the column ``JUDGED``: the row's own stream time, else that of its partition at its offset.

    ``before`` has the stream time of each partition before the batch. It is null if the row is derived: that is never
    late.
    """
    carried = before.rename({STREAM_TIME: _CARRIED})
    timed = rows.join(carried, on=_SOURCE, how="left", maintain_order="left")
    at_offset = pl.when(pl.col(REACHED).is_not_null()).then(pl.max_horizontal(REACHED, _CARRIED))
    return timed.with_columns(pl.coalesce(STREAM_TIME, at_offset).alias(JUDGED)).drop(_CARRIED)


def held_back(judged: pl.DataFrame) -> pl.DataFrame:
    """Rows as they go on from an operator that holds rows back: further down they are judged as they were here."""
    return judged.with_columns(pl.col(JUDGED).alias(STREAM_TIME)).drop(JUDGED)


class Above(NamedTuple):
    """The clock of an operator further up, and how far behind its frontier its results can be here.

    ``hands_on``: its rows come here themselves, so that those it refuses do not. Rows that it replaces can be
    ``revised_for_ms`` older than its results.
    """

    clock: Clock
    delay_ms: int
    hands_on: bool = True
    revised_for_ms: int = 0


@dataclass
class Clock:
    """The clock of one operator over the source ``topics`` that it waits for.

    ``delay_ms`` is how far behind the frontier the operators above let their results go. No clock runs ahead of those
    ``above``, the nearest operators further up that judge time: what they refused does not advance it, and its frontier
    waits for theirs. Below an operator that ``holds_back`` records all of them advance it as they are read: whether one
    has a key shows only later. Unless time ``settles``, rows can come from above however old they are.

    Call ``advance`` once a batch, inputs first, before ``judged`` and ``frontier_ms`` are asked.
    """

    topics: frozenset[str]
    delay_ms: int = 0
    above: Sequence[Above] = ()
    holds_back: bool = False
    settles: bool = True
    state: KeyedRows = field(init=False)
    before_ms: int | None = field(init=False, default=None)
    _frontier_ms: int | None = field(init=False, default=None)
    _settled_ms: int | None = field(init=False, default=None)
    _before: pl.DataFrame = field(init=False)
    _exact: pl.DataFrame = field(init=False)
    _passed_over: pl.DataFrame = field(init=False)
    _is_awake: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.state = KeyedRows(_TIME_SCHEMA, _SOURCE)
        self._before = pl.DataFrame(schema=_TIME_SCHEMA)
        self._exact = pl.DataFrame(schema={name: META[name] for name in (*ENTRY, STREAM_TIME)})
        self._passed_over = _NO_ENTRIES

    @property
    def frontier_ms(self) -> int | None:
        """The frontier after the batch, less the delay; it never falls back. ``before_ms`` is the one before it."""
        return self._frontier_ms

    @property
    def settled_ms(self) -> int | None:
        """The time before which any record is late from every partition.

        None while one of them has never spoken, or where time never settles. Unlike the frontier it waits for idle
        partitions too: one that speaks again is on time by its own stream time.
        """
        return self._settled_ms

    def advance(self, batch: Batch, refused: pl.DataFrame = _NO_ENTRIES, keyed: pl.DataFrame = _NO_ENTRIES) -> None:
        """Take the batch's records in, but not those that have no key (``refused``), or that a clock above passed over.

        A record of which one row has a key (``keyed``) counts in any case. Both have the columns of ``ENTRY``. Where
        the batch says what is refused, that counts.
        """
        if batch.refused is not None:
            refused, keyed = batch.refused, _NO_ENTRIES
        if not self.holds_back:
            without = pl.concat(
                [refused.select(ENTRY), *(one.clock._passed_over for one in self.above if one.hands_on)]
            )
            self._passed_over = (
                without.filter(pl.col(TOPIC).is_in(self.topics))
                .unique(maintain_order=True)
                .join(keyed.select(ENTRY), on=ENTRY, how="anti", maintain_order="left")
            )
        self._before = self.state.rows.filter(pl.col(TOPIC) != FRONTIER[0])
        carried = {(topic, partition): ms for topic, partition, ms in self._before.iter_rows()}
        self._exact = self._exactly(batch)
        after = {place: ms for place, ms in batch.reached.items() if place[0] in self.topics}
        after = {place: max(ms, carried.get(place, ms)) for place, ms in after.items()}
        ends = self._exact.group_by(_SOURCE, maintain_order=True).agg(pl.col(STREAM_TIME).last())
        after |= {(topic, partition): ms for topic, partition, ms in ends.iter_rows()}
        self.state.put(time_frame({place: ms for place, ms in after.items() if ms is not None}))
        self._advance_frontier(batch)

    def _exactly(self, batch: Batch) -> pl.DataFrame:
        """The records of ``Batch.times`` with the stream time at each, for which those passed over do not count."""
        marked = self._passed_over.with_columns(pl.lit(True).alias(_PASSED_OVER))
        timed = (
            batch.times.filter(pl.col(TOPIC).is_in(self.topics))
            .join(marked, on=ENTRY, how="left", maintain_order="left")
            .join(self._before.rename({STREAM_TIME: _CARRIED}), on=_SOURCE, how="left", maintain_order="left")
        )
        counted = pl.when(pl.col(_PASSED_OVER).is_null()).then(pl.col(TIMESTAMP))
        running = counted.cum_max().forward_fill().over(_SOURCE)
        return timed.select(*ENTRY, pl.max_horizontal(running, _CARRIED).alias(STREAM_TIME))

    @property
    def exact(self) -> pl.DataFrame:
        """The records of ``Batch.times``, each with the stream time at its own offset."""
        return self._exact

    def judged(self, rows: pl.DataFrame) -> pl.DataFrame:
        """``rows`` with the stream time by which each is judged in ``JUDGED``: of its own partition at its own offset.

        One that was held back brings it along; a derived row, which is never late, has none.
        """
        judged = with_judged(rows, self._before)
        if self._exact.is_empty():
            return judged
        known = self._exact.select(*ENTRY, pl.col(STREAM_TIME).alias(_EXACT), pl.lit(True).alias(_IS_EXACT))
        found = judged.join(known, on=ENTRY, how="left", maintain_order="left")
        is_exact = pl.col(STREAM_TIME).is_null() & pl.col(_IS_EXACT).fill_null(False)
        exactly = pl.when(is_exact).then(pl.col(_EXACT)).otherwise(pl.col(JUDGED))
        return found.with_columns(exactly.alias(JUDGED)).drop(_EXACT, _IS_EXACT)

    def _advance_frontier(self, batch: Batch) -> None:
        times = {(topic, partition): ms for topic, partition, ms in self.state.rows.iter_rows()}
        self.before_ms = times.get(FRONTIER)
        self._frontier_ms = self.before_ms
        self._is_awake = any(topic in self.topics for topic, _ in batch.awake)
        awake = [(one.clock.frontier_ms, one.delay_ms) for one in self.above if one.clock._is_awake]
        reached = _least([self._slowest(batch.awake, times), *_delayed(awake)])
        if reached is not None:
            self._frontier_ms = reached if self.before_ms is None else max(reached, self.before_ms)
            topic, partition = FRONTIER
            self.state.put(pl.DataFrame([(topic, partition, self._frontier_ms)], self.state.schema, orient="row"))
        settled = [(one.clock.settled_ms, one.delay_ms + one.revised_for_ms) for one in self.above]
        self._settled_ms = _least([self._slowest(batch.known, times), *_delayed(settled)]) if self.settles else None

    def _slowest(self, partitions: Iterable[Partition], times: Mapping[Partition, int]) -> int | None:
        """The smallest stream time of those ``partitions`` that are read here, less the delay; None if one has none."""
        slowest = _least([times.get(source) for source in partitions if source[0] in self.topics])
        return None if slowest is None else slowest - self.delay_ms


def _delayed(times: Iterable[tuple[int | None, int]]) -> Iterator[int | None]:
    return (None if ms is None else ms - delay_ms for ms, delay_ms in times)


def _least(times: Iterable[int | None]) -> int | None:
    """The smallest of ``times``; None where one is not known, or there are none."""
    found = list(times)
    known = [ms for ms in found if ms is not None]
    return min(known) if known and len(known) == len(found) else None


@dataclass
class Output:
    """The result of an operator for a batch: rows that leave, late records (``LATE_SCHEMA``), and fates of records.

    ``asked`` says of a lookup how many rows asked for one of the table, and how many of these found none.
    ``raised`` are the records for which its function raised (``RAISED_SCHEMA``).
    """

    rows: pl.DataFrame
    late: list[pl.DataFrame] = field(default_factory=list)
    fates: list[pl.DataFrame] = field(default_factory=list)
    asked: tuple[int, int] | None = None
    raised: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RAISED_SCHEMA))

    def note(self, rows: pl.DataFrame, fate: Fate) -> None:
        """Say what became of the records behind ``rows``; derived rows have none."""
        entered = rows.filter(pl.col(OFFSET).is_not_null())
        if not entered.is_empty():
            self.fates.append(entered.select(*ENTRY, pl.lit(fate, FATE_TYPE).alias(FATE)))

    def ledger(self, late: pl.DataFrame) -> None:
        """Enter ``late`` rows, which have the columns of ``LATE_SCHEMA``, in the late ledger."""
        if not late.is_empty():
            self.late.append(late.select(list(LATE_SCHEMA)))


class Operator(Protocol):
    @property
    def states(self) -> Mapping[str, KeyedRows]: ...

    @property
    def clocks(self) -> Mapping[str, Clock]: ...

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Take the rows of each input port and let go what is due; advance every clock once."""


def current(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` without the changes of a versioned table that are history only: few operators read those."""
    return rows.filter(~pl.col(SUPERSEDED)) if rows[SUPERSEDED].any() else rows


def on_time(
    rows: pl.DataFrame, clock: Clock, *, bound_ms: int, key: pl.Expr, output: Output, passed_ms: int | None = None
) -> pl.DataFrame:
    """``rows`` without the late ones, which go to the ledger: late is ``ts + bound < stream time`` of its partition.

    Where the stream time is less than ``passed_ms``, that counts. The margin is 0 for a record that came 1 ms too late
    for the bound. The rows on time have their stream time in ``JUDGED``.
    """
    reached = pl.max_horizontal(JUDGED, pl.lit(passed_ms, pl.Int64))
    margin = reached - pl.col(TIMESTAMP) - bound_ms - 1
    judged = clock.judged(rows)
    is_late = (margin >= 0).fill_null(False)
    late = judged.filter(is_late)
    output.note(late, "late")
    output.ledger(late_for_all(late, reached, key, margin))
    return judged.filter(~is_late)


def late_for_all(late: pl.DataFrame, reached: pl.Expr, key: pl.Expr, margin: pl.Expr) -> pl.DataFrame:
    """``late`` rows as the ledger has them that are late for no window in particular."""
    return late.with_columns(
        reached.alias(STREAM_TIME),
        key.cast(pl.String).alias("key"),
        margin.alias("margin_ms"),
        pl.lit(None, pl.Int64).alias(WINDOW_START),
        pl.lit(None, pl.Int64).alias(WINDOW_END),
    )
