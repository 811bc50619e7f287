"""Windows of every kind from single records, which are kept: placed one by one, aggregated in columns."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import polars as pl

from recount.declare.columns import IS_NULL, REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.operators.event_time import can_be_revised
from recount.declare.operators.nodes import WindowedAggregate
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_operator import Output
from recount.engine.operators.batch_rows import JUDGED, META, OFFSET, ORDER, rows_schema
from recount.engine.operators.pane_kinds import Placed, SessionPane
from recount.engine.operators.panes import PLACE, PLACED, UNBOUNDED, Pane, Placing, Step, pane_of
from recount.engine.operators.windowed_state import BOUNDS, LATEST, ledger
from recount.engine.stage.polars_expressions import field_column
from recount.engine.state.keyed_rows import NUMBER, KeyedRows

_STEP, _REPLACING = "__step", "__replacing"
_MEMBERS_AT_ONCE = 500_000
"""So many records of steps are aggregated together: a record is in many steps, and all at once would fill memory."""
REPLACES = pl.col(OFFSET).is_null() & (pl.col(REVISION) > 0) & pl.col(ORDER).str.starts_with("\x00")
"""A window's result in a higher revision stands in place of the one before; the update of a table is its own record."""


@dataclass
class KeptRecords:
    """All accepted records, each with its accumulators; of last n those only that are held.

    Records of closed windows are kept: a partition that was idle may still have records on time for them. Those of
    sliding windows are dropped once the last window that they define, ``[ts + 1, ts + 1 + difference]``, is closed by
    the stream time of every partition, those of time windows with the newest one that holds them, those of sessions
    with their session, unless one that goes on is cut by where it began.
    """

    node: WindowedAggregate
    accumulators: Accumulators
    states: dict[str, KeyedRows] = field(init=False)

    def __post_init__(self) -> None:
        self._key = field_column(self.node.key)
        self._forgets = isinstance(self.node.windows, LastN) and not can_be_revised(self.node.input)
        key = rows_schema(self.node.input.fields)[self._key]
        place = {**META, JUDGED: META[STREAM_TIME], NUMBER: pl.Int64()}
        schema = {self._key: key, **{name: place[name] for name in PLACE}}
        self._records = KeyedRows({**schema, **self.accumulators.schema}, [NUMBER])
        self.states = {"records": self._records}

    def changes(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The windows changed and withdrawn, without what is in them."""
        placing, _ = self._place(rows, output, lists_members=False)
        return self._frame(placing.steps).drop(_STEP)

    def updates(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The aggregates of each window after each of its changes."""
        placing, records = self._place(rows, output, lists_members=True)
        results = self._aggregated(enumerate(one.members for one in placing.steps), records)
        return self._frame(placing.steps).join(results, on=_STEP, how="left", maintain_order="left").drop(_STEP)

    def forget(self, settled_ms: int) -> None:
        """Drop records that are in no window which another record can change."""
        match self.node.windows:
            case SessionWindows() as windows:
                old = self._records.until(TIMESTAMP, settled_ms - windows.settles_ms(0))
                settled = [
                    one.number
                    for pane in self._panes(self._records.of(old, [self._key])).values()
                    if isinstance(pane, SessionPane)
                    for one in pane.settled(settled_ms)
                ]
                self._records.remove(old.filter(_among(settled)))
                return
            case SlidingWindows() as windows:
                closes_ms = pl.col(TIMESTAMP) + windows.closes_ms(1 + windows.difference_ms)
            case TimeWindows() as windows:
                into_newest_ms = (pl.col(TIMESTAMP) - windows.first_start_ms) % windows.advance_ms
                closes_ms = pl.col(TIMESTAMP) - into_newest_ms + windows.closes_ms(windows.size_ms)
            case _:
                return
        self._records.remove(self._records.until(TIMESTAMP, settled_ms, closes_ms <= settled_ms))

    def values(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """Aggregated from the records that are in the windows now."""
        records = self._records.of(wanted, [self._key])
        panes = self._panes(records)
        asked = wanted.select(self._key, *BOUNDS).with_row_index(_STEP).with_columns(pl.col(_STEP).cast(pl.Int64))
        members = (
            (step, [one.number for one in panes[key].members((start_ms, end_ms))])
            for step, key, start_ms, end_ms in asked.iter_rows()
            if key in panes
        )
        return asked.join(self._aggregated(members, records), on=_STEP, how="inner").drop(_STEP)

    def _aggregated(self, members: Iterable[tuple[int, Sequence[int]]], records: pl.DataFrame) -> pl.DataFrame:
        """The accumulators of each step from the numbers of its members."""
        return pl.concat(
            self.accumulators.merged(_pairs(some).join(records, on=NUMBER), [_STEP], **LATEST)
            for some in _in_parts(members)
        )

    def _frame(self, steps: Iterable[Step]) -> pl.DataFrame:
        rows = [(number, one.key, *one.window, one.order) for number, one in enumerate(steps)]
        schema = {_STEP: pl.Int64(), self._key: self._records.schema[self._key]}
        return pl.DataFrame(rows, {**schema, **dict.fromkeys(BOUNDS, pl.Int64()), ORDER: pl.String()}, orient="row")

    def _panes(self, records: pl.DataFrame) -> dict[Any, Pane]:
        """The pane of each key, the key that was there first first."""
        return {key: pane_of(self.node.windows, placed) for key, placed in self._by_key(records).items()}

    def _by_key(self, records: pl.DataFrame) -> dict[Any, list[Placed]]:
        found: dict[Any, list[Placed]] = {}
        for key, *place in records.sort(NUMBER).select(self._key, *PLACED).rows():
            found.setdefault(key, []).append(Placed._make(place))
        return found

    def _place(self, rows: pl.DataFrame, output: Output, *, lists_members: bool) -> tuple[Placing, pl.DataFrame]:
        """Place ``rows``; and all records that their keys had before or have now."""
        arrived = self._numbered(rows)
        revised = self._records.of(arrived.filter(REPLACES), [ORDER])
        known = self._records.of(pl.concat([arrived.select(self._key), revised.select(self._key)]), [self._key])
        columns = list(self._records.schema)
        new = self.accumulators.lifted(arrived).select(columns)
        records = pl.concat([known.select(columns), new])
        placing = Placing(windows=self.node.windows, panes=self._panes(known), lists_members=lists_members)
        places = arrived.select(self._key, IS_NULL, REPLACES.alias(_REPLACING), *PLACED)
        for key, is_null, replaces, *place in places.rows():
            record = Placed._make(place)
            if replaces:
                placing.replace(record)
            if replaces and is_null:
                placing.gone.add(record.number)
            else:
                placing.add(key, record)
        self._note(placing, arrived, output)
        self._remember(placing, known, new)
        return placing, records

    def _numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        first = self._records.highest(NUMBER) + 1
        numbers = pl.Series(NUMBER, range(first, first + rows.height), pl.Int64)
        return rows.with_columns(numbers)

    def _note(self, placing: Placing, arrived: pl.DataFrame, output: Output) -> None:
        """Fates, and which windows were missed."""
        output.note(arrived.filter(_among(placing.late)), "late")
        output.note(arrived.filter(_among(placing.counted)), "counted")
        if placing.missed:
            windows = self.node.windows
            assert not isinstance(windows, GlobalWindow | LastN), "no record is late for these"
            bounds: dict[str, pl.DataType] = dict.fromkeys(BOUNDS, pl.Int64())
            missed = pl.DataFrame(placing.missed, {NUMBER: pl.Int64(), **bounds}, orient="row")
            output.ledger(ledger(missed.join(arrived, on=NUMBER, maintain_order="left"), self._key, windows))

    def _remember(self, placing: Placing, known: pl.DataFrame, new: pl.DataFrame) -> None:
        gone = set(placing.gone)
        if self._forgets:
            held = {one.number for pane in placing.panes.values() for one in pane.members(UNBOUNDED)}
            gone |= {*known[NUMBER], *new[NUMBER]} - held
        self._records.remove(known.filter(_among(gone)))
        self._records.put(new.filter(~_among(gone)))


def _among(numbers: Iterable[int]) -> pl.Expr:
    return pl.col(NUMBER).is_in(sorted(numbers))


def _pairs(members: Sequence[tuple[int, Sequence[int]]]) -> pl.DataFrame:
    steps = [step for step, numbers in members for _ in numbers]
    flat = list(chain.from_iterable(numbers for _, numbers in members))
    return pl.DataFrame({_STEP: steps, NUMBER: flat}, {_STEP: pl.Int64(), NUMBER: pl.Int64()})


def _in_parts(members: Iterable[tuple[int, Sequence[int]]]) -> Iterator[list[tuple[int, Sequence[int]]]]:
    """At least one, each of about ``_MEMBERS_AT_ONCE`` numbers."""
    part: list[tuple[int, Sequence[int]]] = []
    size = 0
    for one in members:
        part.append(one)
        size += len(one[1])
        if size >= _MEMBERS_AT_ONCE:
            yield part
            part, size = [], 0
    yield part
