"""Reduce and fold: Python functions over the values of one result in log order, and rows as they see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from functools import partial, reduce
from operator import itemgetter
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from recount.declare.aggregates import Fold
from recount.declare.columns import TIMESTAMP
from recount.declare.functions import as_declared, failed, of_another_type, own_value
from recount.declare.schema import FieldType
from recount.engine.driver.signs_of_work import worked
from recount.engine.operators.accumulator_kinds import VALUE, Values
from recount.engine.operators.batch_rows import ORDER, origin
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.formats.json_values import arrow_type

_UNCHANGING = (type(None), bool, int, float, str, Decimal)
_NULL = type(None)
_PLAIN: Mapping[str, set[type]] = {
    "string": {str, _NULL},
    "long": {int, _NULL},
    "double": {float, int, _NULL},
    "boolean": {bool, _NULL},
}
"""The types whose values Polars and Arrow take or refuse as ``require_returned`` does. Of others Polars makes a list of
the characters of a text, or panics; Arrow makes 0 of a decimal with very many places."""
PythonRow = Mapping[str, Any]


class FoldedSession(NamedTuple):
    """A session as it stood after some of its records, and what they were folded to."""

    start_ms: int
    end_ms: int
    folded: Any


class Trial:
    """A fold that grows value by value, those of a session (``gap_ms``) as ``folded_session`` takes them in."""

    def __init__(self, fold: Fold, gap_ms: int | None) -> None:
        self._fold, self._gap_ms = fold, gap_ms
        self._taken: list[Mapping[str, Any]] = []
        self._state = self._begun()

    @classmethod
    def after(cls, fold: Fold, gap_ms: int | None, values: Values) -> Trial:
        """The trial after ``values``, which have been tried before; it fails where one raises all the same."""
        trial = cls(fold, gap_ms)
        for one in values:
            try:
                trial.take(one)
            except Exception as error:
                raise failed("a reduce or fold", _readable(one[ORDER]), error) from error
        return trial

    def take(self, one: Mapping[str, Any]) -> None:
        """Add the value ``one``; where a function raises, so does this, and the value has not been."""
        try:
            self._state = self._after(self._state, one)
        except Exception:
            if not self._is_unchanging():
                # the function may have changed in part what it was given
                self._state = self._begun()
                for earlier in self._taken:
                    self._state = self._after(self._state, earlier)
            raise
        self._taken.append(one)

    def _begun(self) -> Any:
        return _initial(self._fold) if self._gap_ms is None else []

    def _after(self, state: Any, one: Mapping[str, Any]) -> Any:
        if self._gap_ms is None:
            return _added(self._fold, state, one[VALUE])
        return _grown(self._fold, state, one, self._gap_ms)

    def _is_unchanging(self) -> bool:
        amounts = [self._state] if self._gap_ms is None else [session.folded for session in self._state]
        return all(isinstance(amount, _UNCHANGING) for amount in amounts)


def folded(fold: Fold, values: Values) -> Any:
    """All ``values``, one after the other; a reduce starts with the first that is not null."""
    accumulator, place = _initial(fold), ""
    try:
        for one in values:
            place = one.get(ORDER) or ""
            accumulator = _added(fold, accumulator, one[VALUE])
    except Exception as error:
        raise failed("a reduce or fold", _readable(place), error) from error
    return accumulator


def folded_session(fold: Fold, values: Values, gap_ms: int) -> Any:
    """The ``values`` of a session as Kafka Streams folds them: a record joins the sessions around it, then adds itself.

    A record begins at ``initial``, merges the sessions within ``gap_ms``, earliest first, and adds its value last: with
    initial "0" and "+" for both functions, values 1 and 2 are 0+1 after the first record and 0+0+1+2 after the second.
    """
    sessions: list[FoldedSession] = []
    place = ""
    try:
        for one in values:
            place = one.get(ORDER) or ""
            sessions = _grown(fold, sessions, one, gap_ms)
        # ``only`` may have passed over the very record that bridged them
        return reduce(partial(_merged, fold), (known.folded for known in sessions)) if sessions else _initial(fold)
    except Exception as error:
        raise failed("a reduce or fold", _readable(place), error) from error


def _grown(fold: Fold, sessions: Sequence[FoldedSession], one: Mapping[str, Any], gap_ms: int) -> list[FoldedSession]:
    start_ms = end_ms = at_ms = one[TIMESTAMP]
    accumulator = _initial(fold)
    apart = []
    for known in sessions:
        if known.start_ms - gap_ms <= at_ms <= known.end_ms + gap_ms:
            accumulator = _merged(fold, accumulator, known.folded)
            start_ms, end_ms = min(start_ms, known.start_ms), max(end_ms, known.end_ms)
        else:
            apart.append(known)
    grown = FoldedSession(start_ms, end_ms, _added(fold, accumulator, one[VALUE]))
    return sorted([*apart, grown], key=itemgetter(0, 1)) if apart else [grown]


def _readable(order: str) -> str:
    return str(origin(pl.Series([order]))[0])


def _initial(fold: Fold) -> Any:
    """A copy for each fold, even if ``initial`` always returns the same list."""
    return None if fold.initial is None else deepcopy(fold.initial())


def _merged(fold: Fold, accumulator: Any, other: Any) -> Any:
    """A reduce never sees a null: a session that has only nulls adds nothing."""
    if fold.initial is None and (accumulator is None or other is None):
        return other if accumulator is None else accumulator
    return fold.merger(accumulator, other)


def _added(fold: Fold, accumulator: Any, value: Any) -> Any:
    worked()
    if fold.initial is None and (accumulator is None or value is None):
        return own_value(value) if accumulator is None else accumulator
    return fold.adder(accumulator, own_value(value))


def python_rows(rows: pl.DataFrame, fields: Mapping[str, FieldType]) -> Iterator[dict[str, Any]]:
    """Each of ``rows`` as its ``fields`` by name; each is a sign of work."""
    named = rows.select(pl.col(field_column(name)).alias(name) for name in fields)
    for row in named.iter_rows(named=True):
        worked()
        yield row


def frame_of(made: Sequence[PythonRow], fields: Mapping[str, FieldType], maker: object) -> pl.DataFrame:
    """The columns of ``fields``; what a row lacks is null. Raises ``Terminal`` where a value has not its type."""
    return pl.DataFrame([_column(made, name, kind, maker) for name, kind in fields.items()])


def _column(made: Sequence[PythonRow], name: str, kind: FieldType, maker: object) -> pl.Series:
    returned = values = [row.get(name) for row in made]
    if not set(map(type, values)) <= _PLAIN.get(kind.kind, set()):
        values = [as_declared(row, {name: kind}, maker)[name] for row in made]
    try:
        # Polars would round a decimal to its scale, and panic at a NaN; Arrow, which the recompute asks, cuts 1.5 to 1
        taken = pa.array(returned, arrow_type(kind))
        given = taken if (kind.element or kind).kind == "decimal" else values
        column = pl.Series(field_column(name), given, polars_type(kind), strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise of_another_type(f"{name}: {error}", kind, name, maker) from error
    if column.dtype.is_float() and not column.is_finite().all():
        raise of_another_type(f"{name}: {column.filter(~column.is_finite())[0]}", kind, name, maker)
    return column
