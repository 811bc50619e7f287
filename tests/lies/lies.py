"""Lies about the outputs of a stream: each is told of a row of its own, on the topic, in the table, or in both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import Row
from tests.spark.audit.stage import Stage

from recount.audit.topologies.identity import Identity, identity_of
from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import BATCH, GENERATION, IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.core.topology import Written

Found = tuple[str, str | None, int | None]
"""Place, key and start of the window of a difference."""
_OWN = (GENERATION, BATCH, RESULT_TIME, REVISION, ORIGIN, IS_NULL)
_FORGED = {"string": "nobody", "long": 987_654_321}


@dataclass(frozen=True, kw_only=True)
class Lie:
    """``tell`` says whether the lie fits a row, and tells it; the audit must see it in ``places``."""

    name: str
    places: tuple[str, ...]
    tell: Callable[[Stage, Written, Row], bool]


def _lost(stage: Stage, sink: Written, row: Row) -> bool:
    stage.change(sink, row, None)
    return True


def _doubled_in_table(stage: Stage, sink: Written, row: Row) -> bool:
    stage.append(sink, row.asDict())
    return True


def _doubled_on_topic(stage: Stage, sink: Written, row: Row) -> bool:
    stage.publish(sink, row.asDict())
    return True


def _altered_in_table(stage: Stage, sink: Written, row: Row) -> bool:
    other = with_other_value(sink, row)
    if other is not None:
        stage.change(sink, row, other)
    return other is not None


def _altered_on_topic(stage: Stage, sink: Written, row: Row) -> bool:
    other = with_other_value(sink, row)
    if other is not None:
        stage.publish(sink, other)
    return other is not None


def _revised(stage: Stage, sink: Written, row: Row) -> bool:
    """Both places agree, as after an update that the log does not make."""
    other = with_other_value(sink, row)
    if other is None or not identity_of(sink).is_latest:
        return False
    revised = {**other, REVISION: row[REVISION] + 1}
    stage.append(sink, revised)
    stage.publish(sink, revised)
    return True


def _moved(stage: Stage, sink: Written, row: Row) -> bool:
    if WINDOW_START not in sink.fields:
        return False
    stage.change(sink, row, {**row.asDict(), WINDOW_START: row[WINDOW_START] + 1, WINDOW_END: row[WINDOW_END] + 1})
    return True


def _forged(stage: Stage, sink: Written, row: Row) -> bool:
    forged = {**row.asDict(), sink.key: _FORGED[sink.fields[sink.key].kind]}
    stage.append(sink, forged)
    stage.publish(sink, forged)
    return True


TOPIC, TABLE = "topic", "table"
LIES = (
    Lie(name="a row lost from the table", places=(TABLE,), tell=_lost),
    Lie(name="a row twice in the table", places=(TABLE,), tell=_doubled_in_table),
    Lie(name="a record twice on the topic", places=(TOPIC,), tell=_doubled_on_topic),
    Lie(name="another value in the table", places=(TABLE,), tell=_altered_in_table),
    Lie(name="another value on the topic", places=(TOPIC,), tell=_altered_on_topic),
    Lie(name="a revision that the log does not make, in both", places=(TOPIC, TABLE), tell=_revised),
    Lie(name="a window moved by 1 ms in the table", places=(TABLE,), tell=_moved),
    Lie(name="a row that the log does not make, in both", places=(TOPIC, TABLE), tell=_forged),
)


@dataclass(frozen=True, kw_only=True)
class Told:
    """A lie that was told about a sink; the audit must find ``seen``, all of it."""

    lie: str
    sink: str
    seen: frozenset[Found]


def tell_all(stage: Stage, sink: Written) -> Iterator[Told]:
    """Tell each of ``LIES`` about a row of its own of ``sink``, as long as there are rows and lies that fit them."""
    victims = _victims(stage, sink)
    for lie in LIES:
        for row in victims:
            if not lie.tell(stage, sink, row):
                continue
            victims.remove(row)
            key = _FORGED[sink.fields[sink.key].kind] if lie.tell is _forged else row[sink.key]
            places = {TOPIC: f"topic {sink.topic.name}", TABLE: f"table outputs/{sink.table}"}
            start = _start(sink, row)
            starts = [start] if start is None or lie.tell is not _moved else [start, start + 1]
            seen = frozenset((places[place], str(key), at) for place in lie.places for at in starts)
            yield Told(lie=lie.name, sink=sink.topic.name, seen=seen)
            break


def _victims(stage: Stage, sink: Written) -> list[Row]:
    """The last row of each key and window: so the differences of two lies are told apart."""
    rows = [row for row in stage.rows(sink) if row[sink.key] is not None]
    last = {identity_in(identity_of(sink), sink, row): row for row in rows}
    places = Counter((row[sink.key], _start(sink, row)) for row in last.values())
    found = {(row[sink.key], _start(sink, row)): row for row in last.values() if not said_in(row, IS_NULL)}
    return [
        found[place] for place, _ in sorted(places.items(), key=lambda one: (one[1], str(one[0]))) if place in found
    ]


def _start(sink: Written, row: Row) -> int | None:
    return row[WINDOW_START] if WINDOW_START in sink.fields else None


def said_in(row: Row, column: str) -> Any:
    """What ``row`` says in a column that tables of single aggregations lack."""
    return row.asDict().get(column)


def identity_in(identity: Identity, sink: Written, row: Row) -> tuple[Any, ...]:
    window = (row[WINDOW_START], row[WINDOW_END]) if identity.has_bounds else ()
    return (row[sink.key], *window, said_in(row, ORIGIN))


def with_other_value(sink: Written, row: Row) -> Mapping[str, Any] | None:
    """``row`` with another value in the first field that is neither key nor bound of a window; None: there is none."""
    for name, kind in sink.fields.items():
        if name in (sink.key, WINDOW_START, WINDOW_END, "__key") or row[name] is None:
            continue
        changed = _changed(row[name], kind.kind)
        if changed is not None:
            return {**row.asDict(), name: changed}
    return None


def _changed(value: Any, kind: str) -> Any:
    match value:
        case bool():
            return not value
        case int() | float() | Decimal():
            return value + 1
        case str():
            return f"{value}!"
        case list():
            return [*value, *value[:1]] if value else None
    return None
