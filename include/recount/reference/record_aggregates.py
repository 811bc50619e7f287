"""The value of an aggregate over the records of one window: computed from all of them, every time."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal, localcontext
from functools import partial, reduce
from typing import Any

from recount.declare.aggregates import (
    EXACT,
    MAX_SUM_PRECISION,
    Aggregate,
    Fold,
    fits,
    mean_of_doubles,
    sum_of_doubles,
    too_large,
)
from recount.declare.evaluation import evaluate
from recount.declare.functions import as_declared, own_value
from recount.declare.schema import DOUBLE, LONG, FieldType
from recount.reference.records import Record, Row

SKETCH_SIZE = 1_024
_HASH_RANGE = 1 << 60


def results(
    aggregates: Mapping[str, Aggregate],
    records: Iterable[Record],
    gap_ms: int | None = None,
    passed_over: Callable[[str, Record], bool] = lambda _name, _record: False,
    about: Row | None = None,
) -> Row:
    """Every aggregate over ``records``, taken in log order, less those that it has passed over.

    With the ``gap_ms`` of a session, folds merge as it did. ``about`` says to an error what the results are about.
    """
    ordered = sorted(records, key=lambda record: record.order)
    made = {}
    for name, aggregate in aggregates.items():
        taken = [record for record in ordered if not passed_over(name, record)]
        made[name] = _result(aggregate, taken, gap_ms)
        if aggregate.kind == "sum" and made[name] is not None:
            _require_room(name, aggregate, taken, made[name], about or {})
    return made


def _require_room(name: str, aggregate: Aggregate, records: Sequence[Record], total: Any, about: Row) -> None:
    """Raise ``SumTooLarge`` where no value of the type of the sum is ``total``, naming the record that adds most."""
    assert aggregate.of is not None
    added = [(evaluate(aggregate.of, one.row), one) for one in records if takes(aggregate, one)]
    added = [(value, one) for value, one in added if value is not None]
    kind = LONG
    if isinstance(total, float):
        kind = DOUBLE
    elif isinstance(total, Decimal):
        scale = max(0, *(-int(value.as_tuple().exponent) for value, _ in added))
        kind = FieldType(kind="decimal", precision=MAX_SUM_PRECISION, scale=scale)
    if fits(total, kind):
        return
    with localcontext(EXACT):
        error = too_large(name, sum(Decimal(value) for value, _ in added), kind, about)
    most = (min if error.is_negative else max)(added, key=lambda pair: pair[0])[1].entry
    raise error if most is None else error.naming(f"{most.topic}-{most.partition}@{most.offset}", "of its records")


def folded_as_declared(made: Row, aggregates: Mapping[str, Aggregate], fields: Mapping[str, FieldType]) -> Row:
    """``made``, what a fold among the ``aggregates`` returned as its type in ``fields``; else raises ``Terminal``."""
    folds = {name: aggregate for name, aggregate in aggregates.items() if aggregate.fold is not None}
    declared = [as_declared(made, {name: fields[name]}, f"the {one.kind} {name}") for name, one in folds.items()]
    return {**made, **dict(pair for one in declared for pair in one.items())}


def try_fold(aggregate: Aggregate, records: Iterable[Record], gap_ms: int | None) -> None:
    """Call the functions of a fold for ``records``, as far as these lead to one another; what they raise is raised."""
    assert aggregate.fold is not None
    timed = _timed(aggregate, sorted(records, key=lambda record: record.order))
    if gap_ms is None:
        _folded(aggregate.fold, timed)
    else:
        _sessions(aggregate.fold, timed, gap_ms)


def takes(aggregate: Aggregate, record: Record) -> bool:
    return aggregate.where is None or evaluate(aggregate.where, record.row) is True


def _timed(aggregate: Aggregate, records: Iterable[Record]) -> list[tuple[int, Any]]:
    assert aggregate.of is not None
    taken = (record for record in records if takes(aggregate, record))
    return [(record.timestamp_ms, own_value(evaluate(aggregate.of, record.row))) for record in taken]


def _result(aggregate: Aggregate, records: Sequence[Record], gap_ms: int | None) -> Any:
    if aggregate.of is None:
        return sum(takes(aggregate, record) for record in records)
    timed = _timed(aggregate, records)
    if aggregate.fold is not None:
        return _folded_sessions(aggregate.fold, timed, gap_ms) if gap_ms is not None else _folded(aggregate.fold, timed)
    values = [value for _, value in timed if value is not None]
    match aggregate.kind:
        case "count":
            return len(values)
        case "distinct":
            return len(set(values))
        case "distinct sketch":
            return sketched(values)
    if not values:
        return None
    match aggregate.kind:
        case "sum":
            return _sum(values)
        case "avg":
            return mean_of_doubles(values) if isinstance(values[0], float) else float(_sum(values)) / len(values)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "first":
            return values[0]
        case "last":
            return values[-1]
    raise AssertionError(aggregate)


def _sum(values: Sequence[Any]) -> Any:
    if isinstance(values[0], float):
        return sum_of_doubles(values)
    with localcontext(EXACT):
        return sum(values)


def _folded(fold: Fold, timed: Iterable[tuple[int, Any]]) -> Any:
    accumulator = _initial(fold)
    for _, value in timed:
        accumulator = _added(fold, accumulator, value)
    return accumulator


def _folded_sessions(fold: Fold, timed: Iterable[tuple[int, Any]], gap_ms: int) -> Any:
    sessions = _sessions(fold, timed, gap_ms)
    if not sessions:
        return _initial(fold)
    return reduce(partial(_merged, fold), (accumulator for _, _, accumulator in sessions))


def _sessions(fold: Fold, timed: Iterable[tuple[int, Any]], gap_ms: int) -> list[tuple[int, int, Any]]:
    """The folds of sessions: each record first merges those it joins, earliest first, then adds its own value.

    With ``initial`` "0", values 1 and 2, and "+" between: the first record makes 0+1, the second merges 0 with 0+1 and
    adds 2, which is 0+0+1+2, as in Kafka Streams.
    """
    sessions: list[tuple[int, int, Any]] = []
    for timestamp_ms, value in timed:
        joined = [s for s in sessions if s[0] - gap_ms <= timestamp_ms <= s[1] + gap_ms]
        accumulator = _initial(fold)
        for _, _, other in joined:
            accumulator = _merged(fold, accumulator, other)
        accumulator = _added(fold, accumulator, value)
        start = min([timestamp_ms, *(s[0] for s in joined)])
        end = max([timestamp_ms, *(s[1] for s in joined)])
        sessions = sorted([*(s for s in sessions if s not in joined), (start, end, accumulator)], key=lambda s: s[:2])
    return sessions


def _initial(fold: Fold) -> Any:
    """A copy for each fold, even if ``initial`` always returns the same list."""
    return None if fold.initial is None else deepcopy(fold.initial())


def _merged(fold: Fold, one: Any, other: Any) -> Any:
    """A reduce passes over a session without a value."""
    if fold.initial is None and (one is None or other is None):
        return other if one is None else one
    return fold.merger(one, other)


def _added(fold: Fold, accumulator: Any, value: Any) -> Any:
    if fold.initial is None and (accumulator is None or value is None):
        return value if accumulator is None else accumulator
    return fold.adder(accumulator, value)


def sketched(values: Iterable[Any]) -> int:
    """An estimate of how many values differ, from the ``SKETCH_SIZE`` smallest of their hashes; exact below that.

    Source: Bar-Yossef et al., Counting Distinct Elements in a Data Stream (2002): the k-th smallest of n uniform
    hashes is near k / n of their range. The hash is the first 60 bits of MD5 of the value's text, so that every
    engine has it.
    """
    hashes = {int(hashlib.md5(str(value).encode(), usedforsecurity=False).hexdigest()[:15], 16) for value in values}
    if len(hashes) < SKETCH_SIZE:
        return len(hashes)
    smallest = sorted(hashes)[:SKETCH_SIZE]
    return round((SKETCH_SIZE - 1) * _HASH_RANGE / smallest[-1])
