"""What is passed by mistake is refused where it is declared, with what was given, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recount.core.aggregates import count
from recount.core.errors import InvalidDeclaration
from recount.core.expressions import col
from recount.core.flow import cogroup
from recount.core.schema import LONG, STRING, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import stream, table
from recount.core.windows import tumbling

CLICKS = Topic(name="clicks", key="id", value=RecordSchema.of(a=LONG, w=STRING))
OUT: Any = Topic(name="out", key="id")
rows, users = stream(CLICKS), table(CLICKS)
MINUTE = rows.windowed_by(tumbling("1 min", grace="0 s"))
wrong: Any = {"topic": CLICKS, "name": "clicks", "function": lambda row: row["a"] > 1, "type": int}
bounds: Any = {"before": "1 s", "after": "1 s", "grace": "0 s"}

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "filter by a function": (lambda: rows.filter(wrong["function"]), "a function"),
    "filter by a text": (lambda: rows.filter(wrong["name"]), "'clicks', a str"),
    "filter of a table by a function": (lambda: users.filter(wrong["function"]), "a function"),
    "only what a text says": (lambda: rows.aggregate(n=count().only(wrong["name"])), "'clicks', a str"),
    "an aggregate by its field": (lambda: rows.aggregate(n=wrong["name"]), "'clicks', a str"),
    "an aggregate that is not called": (lambda: rows.aggregate(n=count), "a function"),
    "an aggregate of a group by its field": (lambda: users.group_by(w=col("w")).aggregate(n=wrong["name"]), "a str"),
    "an aggregate of windows by its field": (lambda: MINUTE.aggregate(n=wrong["name"]).emit_final(), "a str"),
    "windows without an emission": (lambda: MINUTE.aggregate(n=count()).to(OUT), ".to(out)"),
    "windows by their size": (lambda: rows.windowed_by(wrong["name"]).aggregate(n=count()).emit_final(), "a str"),
    "a type of Python for a row": (lambda: rows.map(dict, a=wrong["type"]), "'a': <class 'int'>"),
    "a type of Python for a processor": (lambda: rows.process(lambda _, __: [], a=wrong["type"]), "'a': <class 'int'>"),
    "a map by no function": (lambda: rows.map(wrong["name"], a=LONG), "'clicks'"),
    "a flat-map by no function": (lambda: rows.flat_map(wrong["name"], a=LONG), "'clicks'"),
    "a processor by no function": (lambda: rows.process(wrong["name"], a=LONG), "'clicks'"),
    "to the name of a topic": (lambda: rows.to(wrong["name"]), "'clicks', a str"),
    "through the name of a topic": (lambda: rows.through(wrong["name"]), "'clicks', a str"),
    "a table to the name of a topic": (lambda: users.to(wrong["name"]), "'clicks', a str"),
    "a stream of the name of a topic": (lambda: stream(wrong["name"]), "'clicks', a str"),
    "a table of the name of a topic": (lambda: table(wrong["name"]), "'clicks', a str"),
    "a join with a topic": (lambda: rows.join(wrong["topic"], **bounds), "a Topic"),
    "a join with a table as a stream": (lambda: rows.join(users, **bounds), "a Table"),  # type: ignore[arg-type]
    "a lookup in a topic": (lambda: rows.join_table(wrong["topic"]), "a Topic"),
    "a lookup in a stream": (lambda: rows.left_join_table(rows), "a RecordStream"),  # type: ignore[arg-type]
    "a merge with a topic": (lambda: rows.merge(wrong["topic"]), "a Topic"),
    "a cogroup of a topic": (lambda: cogroup(one=rows, other=wrong["topic"]), "a Topic"),
    "tables joined with a topic": (lambda: users.join(wrong["topic"]), "a Topic"),
    "tables joined with a stream": (lambda: users.outer_join(rows), "a RecordStream"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("declare", "given"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_argument_is_refused_where_it_is_declared(declare: Callable[[], object], given: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert given in str(refused.value.given)
    assert refused.value.expected
    assert refused.value.remedy
