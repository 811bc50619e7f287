"""Lies about the outputs of a stream: each is told of a row of its own, on the topic, in the table, or in both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from examples.shop.shop_records import CLOSING
from pyspark.sql import Row
from tests.delta_logs import commit, said
from tests.spark.audit.stage import Stage

from recount.audit.compare.identity import Identity, identity_of
from recount.declare.columns import BATCH, GENERATION, IS_NULL, ORIGIN, REVISION
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Written

Seen = tuple[str, int | None]
"""The key that a difference names, or its evidence where it names none, and the start of its window."""
Found = tuple[str, Seen]
"""Place of a difference, and what it names there."""
_FORGED = {"string": "nobody", "long": 987_654_321}
_GREATEST = {"string": "\uffff", "long": 2**62}
_NO_BATCH = 987_654


@dataclass(frozen=True, kw_only=True)
class Lie:
    """``tell`` lies about a row, and says what the audit must see in ``places``; None where the lie does not fit."""

    name: str
    places: tuple[str, ...]
    tell: Callable[[Stage, Written, Row], Sequence[Seen] | None]


def _lost(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    stage.change(sink, row, None)
    return [_named(sink, row)]


def _doubled_in_table(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    stage.append(sink, row.asDict())
    return [_named(sink, row)]


def _doubled_on_topic(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    stage.publish(sink, row.asDict())
    return [_named(sink, row)]


def _altered_in_table(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    other = with_other_value(sink, row)
    if other is None:
        return None
    stage.change(sink, row, other)
    return [_named(sink, row)]


def _altered_on_topic(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    other = with_other_value(sink, row)
    if other is None:
        return None
    stage.publish(sink, other)
    return [_named(sink, row)]


def _revised(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    """Both places agree, as after an update that the log does not make."""
    other = with_other_value(sink, row)
    if other is None or not identity_of(sink).is_latest:
        return None
    revised = {**other, REVISION: row[REVISION] + 1}
    stage.append(sink, revised)
    stage.publish(sink, revised)
    return [_named(sink, row)]


def _moved(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    if WINDOW_START not in sink.fields:
        return None
    stage.change(sink, row, {**row.asDict(), WINDOW_START: row[WINDOW_START] + 1, WINDOW_END: row[WINDOW_END] + 1})
    key, start = _named(sink, row)
    return [(key, start), (key, row[WINDOW_START] + 1)]


def _forged(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    forged = {**row.asDict(), sink.key: _FORGED[sink.fields[sink.key].kind]}
    stage.append(sink, forged)
    stage.publish(sink, forged)
    return [(str(forged[sink.key]), _start(sink, row))]


def _of_no_batch(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    stage.append(sink, {**row.asDict(), BATCH: _NO_BATCH})
    return [(f"batch {row[GENERATION]}/{_NO_BATCH}", None)]


def _reordered(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    """The last revision and the one before it name each other's batch."""
    identity = identity_of(sink)
    if not identity.is_latest:
        return None
    same = [one for one in stage.rows(sink) if identity_in(identity, sink, one) == identity_in(identity, sink, row)]
    before = [one for one in same if (one[GENERATION], one[BATCH]) < (row[GENERATION], row[BATCH])]
    if not before:
        return None
    earlier = max(before, key=lambda one: one[REVISION])
    stage.change(sink, row, {**row.asDict(), GENERATION: earlier[GENERATION], BATCH: earlier[BATCH]})
    stage.change(sink, earlier, {**earlier.asDict(), GENERATION: row[GENERATION], BATCH: row[BATCH]})
    return [(f"batch {row[GENERATION]}/{row[BATCH]}", None)]


def _hidden(stage: Stage, sink: Written, row: Row) -> Sequence[Seen] | None:
    """The log of the table says that the keys of the file with the row are greater than any that readers look for."""
    path = stage.tables.output(sink.table)
    [file] = stage.files(sink, row)
    added = [one for one in said(path, "add") if one["path"] == file][-1]
    stats = {"minValues": {}, "maxValues": {}, **json.loads(added.get("stats") or "{}")}
    for bound in ("minValues", "maxValues"):
        stats[bound][sink.key] = _GREATEST[sink.fields[sink.key].kind]
    commit(path, [{"add": {**added, "stats": json.dumps(stats)}}])
    return [(f"file {file}", None)]


def _named(sink: Written, row: Row) -> Seen:
    return str(row[sink.key]), _start(sink, row)


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
    Lie(name="a row of a batch that never comes, in the table", places=(TABLE,), tell=_of_no_batch),
    Lie(name="two revisions in each other's batch, in the table", places=(TABLE,), tell=_reordered),
    Lie(name="a log of the table that hides a file from who looks for a key", places=(TABLE,), tell=_hidden),
)


@dataclass(frozen=True, kw_only=True)
class Told:
    """A lie that was told about a sink; the audit must find ``seen``, all of it."""

    lie: str
    sink: str
    seen: frozenset[Found]


def tell_all(stage: Stage, sink: Written) -> Iterator[Told]:
    """Tell each of ``LIES`` about a row of its own of ``sink``, as long as there are rows and lies that fit them."""
    places = {TOPIC: f"topic {sink.topic.name}", TABLE: f"table outputs/{sink.table}"}
    victims = _victims(stage, sink)
    for lie in LIES:
        for row in victims:
            seen = lie.tell(stage, sink, row)
            if seen is None:
                continue
            victims.remove(row)
            found = frozenset((places[place], one) for place in lie.places for one in seen)
            yield Told(lie=lie.name, sink=sink.topic.name, seen=found)
            break


def _victims(stage: Stage, sink: Written) -> list[Row]:
    """The last row of each key and window: so the differences of two lies are told apart.

    None of last records, which change no value of what they revise: where one of two such revisions is lost from the
    table, the audit cannot know that the topic does not have one too many.
    """
    rows = [row for row in stage.rows(sink) if row[sink.key] is not None and CLOSING not in str(row[sink.key])]
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
    return (row[sink.key], *window, None if identity.is_latest else said_in(row, ORIGIN))


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
