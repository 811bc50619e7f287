"""What is passed by mistake is refused where it is declared, with what was given, what was expected and what to do."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from recount.declare.aggregates import count, distinct, fold, reduce, total
from recount.declare.expressions import coalesce, col, lit, when
from recount.declare.flow import cogroup
from recount.declare.groups import Archive
from recount.declare.limits import Health
from recount.declare.schema import BOOLEAN, LONG, STRING, TIMESTAMP, RecordSchema, decimal, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import last_n, tumbling
from recount.runtime.errors import InvalidDeclaration

CLICKS = Topic(
    name="clicks",
    key="id",
    value=RecordSchema.of(a=LONG, w=STRING, l=list_of(STRING), m=list_of(LONG), f=BOOLEAN, d=decimal(9, 2)),
)
OUT: Any = Topic(name="out", key="id")
rows, users = stream(CLICKS), table(CLICKS)
KEYED = rows.select_key(w=col("w"))
MINUTE = rows.windowed_by(tumbling("1 min", grace="0 s"))
wrong: Any = {"topic": CLICKS, "name": "clicks", "function": lambda row: row["a"] > 1, "type": int}
bounds: Any = {"before": "1 s", "after": "1 s", "grace": "0 s"}
COUNTED: Any = MINUTE.aggregate(n=count())


def topology(*sinks: Any) -> Topology:
    return Topology(name="clicks", sinks=list(sinks))


def topic(**wrong: Any) -> Topic:
    return Topic(**{"name": "clicks", "key": "id", **wrong})


def filled(value: Any) -> Topology:
    return topology(rows.with_fields(x=value).to(OUT))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "filter by a function": (lambda: rows.filter(wrong["function"]), "a function"),
    "filter by a text": (lambda: rows.filter(wrong["name"]), "'clicks', a str"),
    "filter of a table by a function": (lambda: users.filter(wrong["function"]), "a function"),
    "only what a text says": (lambda: rows.aggregate(n=count().only(wrong["name"])), "'clicks', a str"),
    "an aggregate by its field": (lambda: rows.aggregate(n=wrong["name"]), "'clicks', a str"),
    "an aggregate that is not called": (lambda: rows.aggregate(n=count), "a function"),
    "an aggregate of a group by its field": (lambda: users.group_by(w=col("w")).aggregate(n=wrong["name"]), "a str"),
    "an aggregate of windows by its field": (lambda: MINUTE.aggregate(n=wrong["name"]).emit_final(), "a str"),
    "windows without an emission": (lambda: MINUTE.aggregate(n=count()).to(OUT), ".to() straight after"),
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
    "a column that is no name": (lambda: rows.filter(col(wrong["type"]) > 1), "<class 'int'>, a type"),
    "a sum of a number": (lambda: rows.aggregate(n=total(5)), "5, a int"),  # type: ignore[arg-type]
    "a sum of nothing": (lambda: rows.aggregate(n=total(None)), "None, a NoneType"),  # type: ignore[arg-type]
    "a reduce by no function": (lambda: reduce("a", wrong["name"]), "'clicks'"),
    "a fold that begins with a value": (
        lambda: fold("a", initial=wrong["name"], adder=max, merger=max, returns=LONG),
        "'clicks'",
    ),
    "a first of each number": (lambda: rows.deduplicate(5, horizon="1 s"), "5, a int"),  # type: ignore[arg-type]
    "a first of each list": (lambda: rows.deduplicate("l", horizon="1 s"), "l (list of string)"),
    "a lookup by the name of a field": (lambda: rows.join_table(users, by=wrong["name"]), "'clicks', a str"),
    "a peek by no function": (lambda: rows.peek(wrong["name"]), "'clicks'"),
    "a foreach by no function": (lambda: rows.foreach(wrong["name"]), "'clicks'"),
    "a selection of expressions": (lambda: rows.select(col("a")), "a Column"),  # type: ignore[arg-type]
    "a selection of a list": (lambda: rows.select(["a"]), "['a'], a list"),  # type: ignore[arg-type]
    "a branch called as the rest": (lambda: rows.branch(rest=col("a") > 1), "rest"),
    "a repartition by a text": (lambda: rows.repartition("3"), "'3'"),  # type: ignore[arg-type]
    "a step after an aggregate of windows": (lambda: COUNTED.filter(col("n") > 1), ".filter() straight after"),
    "a suppression of so many rows": (lambda: COUNTED.emit_after("1 s", max_rows="5"), "'5'"),
    "the last of no number": (lambda: last_n(2.5), "2.5"),  # type: ignore[arg-type]
    "no number": (lambda: filled(float("nan")), "nan"),
    "no decimal": (lambda: filled(Decimal("NaN")), "NaN"),
    "a number beyond 64 bits": (lambda: rows.filter(col("a") > 2**70), str(2**70)),
    "a decimal of too many places": (lambda: filled(Decimal("1e-50")), "1E-50"),
    "a decimal of too many digits": (lambda: filled(Decimal("1e50")), "1E+50"),
    "half a character": (lambda: filled("\ud800"), "ud800"),
    "a sink that is no list": (lambda: Topology(name="clicks", sinks=wrong["name"]), "'clicks', a str"),
    "a sink without a list": (lambda: Topology(name="clicks", sinks=rows.to(OUT)), "a Sink"),  # type: ignore[arg-type]
    "a stream without a sink": (lambda: topology(rows), "a RecordStream"),
    "a topic as a sink": (lambda: topology(OUT), "a Topic"),
    "an aggregate of windows as a sink": (lambda: topology(COUNTED), "a WindowedTable"),
    "an action as a sink": (lambda: topology(rows.foreach(print)), "a Foreach"),
    "a sink as an action": (lambda: Topology(name="clicks", actions=[rows.to(OUT)]), "a Sink"),  # type: ignore[list-item]
    "a topology without a name": (lambda: Topology(name=None, sinks=[rows.to(OUT)]), "None"),  # type: ignore[arg-type]
    "limits of a dict": (lambda: Topology(name="clicks", sinks=[rows.to(OUT)], health={"late": 1}), "{'late': 1}"),  # type: ignore[arg-type]
    "an archive of a name": (lambda: Archive(topic=wrong["name"]), "'clicks', a str"),
    "a table elsewhere": (lambda: rows.to(OUT, table="../clicks"), "../clicks"),
    "a table of no name": (lambda: rows.to(OUT, table=""), "''"),
    "a topic of no name": (lambda: topic(name=5), "5"),
    "a key of no name": (lambda: topic(key=None), "None"),
    "a key of an empty name": (lambda: topic(key=""), "''"),
    "a value of a dict": (lambda: topic(value={"a": LONG}), "a dict"),
    "another cleanup policy": (lambda: topic(cleanup_policy="compacted"), "compacted"),
    "a retention in words": (lambda: topic(retention_ms="7 d"), "'7 d'"),
    "so many partitions as true": (lambda: topic(partitions=True), "True"),
    "a setting of a number": (lambda: topic(configs={"max.message.bytes": 5}), "max.message.bytes=5"),
    "a setting that the topic declares": (lambda: topic(configs={"cleanup.policy": "delete"}), "cleanup.policy"),
    "ours by a text": (lambda: topic(owned="yes"), "'yes'"),
    "a decimal of texts": (lambda: decimal("12", "3"), "('12', '3')"),  # type: ignore[arg-type]
    "a list of a text": (lambda: list_of("x"), "'x'"),  # type: ignore[arg-type]
    "required as a text": (lambda: RecordSchema.of(a=LONG, required="a"), "'a'"),  # type: ignore[arg-type]
    "a group by a boolean": (lambda: users.group_by(f=col("f")).aggregate(n=count()), "f (boolean)"),
    "a group by a decimal": (lambda: users.group_by(d=col("d")).aggregate(n=count()), "d (decimal(9, 2))"),
    "a group by a list": (lambda: users.group_by(l=col("l")).aggregate(n=count()), "l (list of string)"),
    "a group by nothing": (lambda: users.group_by(n=None).aggregate(n=count()), "None (None)"),
    "a key that becomes a list": (lambda: KEYED.with_fields(w=col("l")), "l (list of string)"),
    "a key that becomes a boolean": (lambda: KEYED.select(w=col("f")), "f (boolean)"),
    "a key that becomes nothing": (lambda: KEYED.with_fields(w=None), "None (None)"),
    "a key that a map makes a number": (lambda: KEYED.map(dict, w=LONG), "long"),
    "a key that a processor makes a number": (lambda: KEYED.process(lambda _, __: [], w=LONG), "long"),
    "a processor with no function for timers": (
        lambda: rows.process(lambda _, __: [], on_timer=wrong["name"], a=LONG),
        "'clicks'",
    ),
    "a fold that returns a type of Python": (
        lambda: fold("a", initial=int, adder=max, merger=max, returns=wrong["type"]),
        "<class 'int'>",
    ),
    "how many lists there are": (lambda: rows.aggregate(n=distinct("l")), "l (list of string)"),
    "about how many lists there are": (lambda: rows.aggregate(n=distinct("l", sketch=True)), "l (list of string)"),
    "the smaller of two lists": (lambda: filled(col("l") < col("l")), "list of string, list of string"),
    "lists of other items compared": (lambda: filled(col("l") == col("m")), "list of string, list of long"),
    "the first list of other items": (lambda: filled(coalesce(col("l"), col("m"))), "list of string, list of long"),
    "one of two lists of other items": (
        lambda: filled(when(col("f"), col("l"), col("m"))),
        "list of string, list of long",
    ),
    "windows from a day on": (
        lambda: tumbling("1 d", grace="0 s", origin=date(2026, 1, 1)),
        "datetime.date(2026, 1, 1)",
    ),
    "windows that no time can end": (lambda: tumbling("999999999999 d", grace="0 s"), "999999999999 d"),
    "a list of timestamps": (lambda: list_of(TIMESTAMP), "timestamp"),  # type: ignore[arg-type]
    "a list of lists": (lambda: list_of(list_of(LONG)), "list of long"),
    "fields as a list": (lambda: RecordSchema(fields=["a"]), "['a'], a list"),  # type: ignore[arg-type]
    "a topology of a name too long for Airflow": (lambda: Topology(name="x" * 201, sinks=[rows.to(OUT)]), "x" * 201),
    "an archive of a topic too long for Airflow": (lambda: Archive(topic=topic(name="x" * 235)), "x" * 235),
    "a source too long for its dead letters": (lambda: stream(topic(name="x" * 246, value=CLICKS.value)), "x" * 246),
    "a topic too long for Kafka": (lambda: topic(name="x" * 250), "x" * 250),
    "a field called required": (lambda: RecordSchema.of(required=STRING), "string"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("declare", "given"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_argument_is_refused_where_it_is_declared(declare: Callable[[], object], given: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert given in f"{refused.value.given} {refused.value.given!r}"
    assert refused.value.expected
    assert refused.value.remedy


def test_fields_can_have_the_names_of_our_own_arguments() -> None:
    named: Any = {name: col("a") for name in ("self", "function", "by", "name")}
    assert set(named) <= set(rows.with_fields(**named).node.fields)
    assert set(named) <= set(rows.select(**named).node.fields)
    assert "self" in rows.select_key(self=col("w")).node.fields
    assert "self" in users.group_by(self=col("w")).aggregate(**{"self ": count()}).node.fields
    assert "self" in rows.aggregate(self=count()).node.fields
    assert "self" in MINUTE.aggregate(self=count()).emit_final().node.fields
    assert {"self", "function"} <= set(rows.map(dict, self=LONG, function=LONG).node.fields)
    assert {"self", "function"} <= set(rows.flat_map(list, self=LONG, function=LONG).node.fields)
    assert {"self", "on_record"} <= set(rows.process(lambda _, __: [], self=LONG, on_record=LONG).node.fields)
    assert "self" in rows.branch(self=col("a") > 1)
    assert "cls" in RecordSchema.of(cls=LONG).fields
    assert RecordSchema(fields={"required": LONG}, required=["required"]).required == {"required"}  # type: ignore[arg-type]


def test_a_number_can_stand_before_a_field() -> None:
    made: Any = rows.with_fields(a=1 + col("a"), b=2 - col("a"), c=Decimal("1.5") * col("a"), d=1 / col("a")).node
    assert [str(tree) for tree in made.added.values()] == ["(1 + a)", "(2 - a)", "(Decimal('1.5') * a)", "(1 / a)"]


UNKNOWN: dict[str, tuple[Callable[[], object], str, type[Exception]]] = {
    "a group of a stream": (lambda: rows.group_by("w"), "select_key", AttributeError),  # type: ignore[attr-defined]
    "one of several values": (lambda: col("w").isin(["x"]), "==", AttributeError),  # type: ignore[attr-defined]
    "a step with a slip of the pen": (lambda: rows.fliter(col("f")), "'filter'", AttributeError),  # type: ignore[attr-defined]
    "an emission before an aggregate": (lambda: MINUTE.emit_final(), "aggregate first", AttributeError),  # type: ignore[attr-defined]
    "a final total of all time": (lambda: rows.aggregate(n=count()).emit_final(), "windowed_by", AttributeError),  # type: ignore[attr-defined]
    "a lookup as a join": (lambda: rows.join(users), "join_table(other)", TypeError),  # type: ignore[arg-type, call-arg]
    "a step behind the end": (lambda: rows.foreach(print).to(OUT), "docs", AttributeError),  # type: ignore[attr-defined]
    "windows of a zone": (
        lambda: tumbling("1 d", grace="0 s", timezone="Europe/Berlin"),  # type: ignore[call-arg]
        "origin=",
        TypeError,
    ),
    "windows without a grace": (lambda: tumbling("1 d"), 'grace="1 min"', TypeError),  # type: ignore[call-arg]
    "a sink": (lambda: Topology(name="x", sink=rows.to(OUT)), "'sinks'", TypeError),  # type: ignore[call-arg]
    "a topic's schema": (lambda: topic(schema=CLICKS.value), "value=", TypeError),
    "a schema without of": (lambda: RecordSchema(a=LONG), "RecordSchema.of", TypeError),  # type: ignore[call-arg]
    "an aggregate without a name": (lambda: rows.aggregate(count()), "orders=count()", TypeError),  # type: ignore[call-arg]
    "a field without a name": (lambda: rows.with_fields(col("a")), "net=", TypeError),  # type: ignore[call-arg]
    "a key without a name": (lambda: rows.select_key("w"), "region=", TypeError),  # type: ignore[call-arg]
    "a count of a field": (lambda: count("a"), "count()", TypeError),  # type: ignore[call-arg]
    "a limit with a slip of the pen": (lambda: Health(lates=0.1), "'late'", TypeError),  # type: ignore[call-arg]
}


def pickled(one: object) -> object:
    """The same after another process has it."""
    return pickle.loads(pickle.dumps(one))  # noqa: S301 - our own


@pytest.mark.parametrize(("declare", "remedy", "kind"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_name_that_there_is_not_is_refused_with_the_one_that_is_meant(
    declare: Callable[[], object], remedy: str, kind: type[Exception]
) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert remedy in refused.value.remedy
    assert isinstance(refused.value, kind)
    assert str(pickled(refused.value)) == str(refused.value)


def test_streams_and_expressions_can_still_be_copied_pickled_and_asked_for_a_name() -> None:
    tree = col("a") > 1
    for one in (tree, rows.node, CLICKS):
        assert str(copy.deepcopy(one)) == str(pickled(one)) == str(one)
    assert not hasattr(rows, "group_by")
    assert not hasattr(col("a"), "_repr_html_")
    assert inspect.signature(tumbling).parameters.keys() == {"size", "grace", "origin"}


NULLS: dict[str, Callable[[], object]] = {
    "equal to None": lambda: col("a") == None,  # noqa: E711
    "not equal to None": lambda: col("a") != None,  # noqa: E711
    "a null constant on the left": lambda: lit(None) == col("a"),
    "a null constant on the right": lambda: col("a") != lit(None),
    "less than None": lambda: col("a") < None,
    "more than None": lambda: coalesce(col("a"), 0) > None,
}


@pytest.mark.parametrize("compare", NULLS.values(), ids=NULLS)
def test_a_comparison_with_none_is_refused_for_it_is_true_of_no_record(compare: Callable[[], object]) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        compare()
    assert ".is_null()" in refused.value.remedy


MISLEADING: dict[str, tuple[Callable[[], object], str]] = {
    "arithmetic with None": (lambda: col("a") + None, "lit(None)"),
    "None in a list": (lambda: col("l").contains(None), "lit(None)"),
    "a map that declares no fields": (lambda: rows.map(dict), "map(function, amount=LONG)"),
    "rows without fields": (lambda: rows.flat_map(lambda row: [row]).to(OUT), "declare its fields"),
    "rows of a processor without fields": (lambda: rows.process(lambda _, __: []).through(OUT), "declare its fields"),
    "the name of a field as a key": (lambda: rows.select_key(k="w"), 'col("w")'),
    "the name of a field as a field": (lambda: rows.with_fields(k="w"), 'col("w")'),
    "the name of a field in a selection": (lambda: rows.select(k="w"), 'col("w")'),
    "the name of a field as a group": (lambda: users.group_by(k="w"), 'col("w")'),
    "a chain of comparisons": (lambda: rows.filter(1 < col("a") < 5), "&"),  # type: ignore[arg-type]
    "two joined by a word": (lambda: rows.filter(col("a") > 1 and col("a") < 5), "&"),
    "one denied by a word": (lambda: rows.filter(not col("f")), "~"),  # type: ignore[arg-type]
    "one of a list of Python": (lambda: rows.filter(col("a") in [1, 2]), "&"),  # type: ignore[arg-type]
    "in a list of a record": (lambda: rows.filter("x" in col("l")), "contains"),  # type: ignore[arg-type, operator]
    "an item of a list": (lambda: col("l")[0], "map()"),
    "a remainder": (lambda: col("a") % 2, "map("),  # type: ignore[operator]
    "the first of nothing": (lambda: coalesce(), "coalesce("),
    "a comparison without brackets": (lambda: rows.filter(col("a") > 10 & col("a") < 20), "in brackets"),
    "a comparison without brackets behind &": (lambda: filled(col("f") & col("a") > 1), "in brackets"),
    "a whole number for a decimal": (lambda: filled(coalesce(col("d"), 0)), 'Decimal("0.00")'),
    "a LONG beside a decimal": (lambda: filled(when(col("f"), col("d"), col("a"))), "* Decimal(1)"),
    "a LONG beside a DOUBLE": (lambda: filled(when(col("f"), col("a"), 0.5)), "* 1.0"),
}


@pytest.mark.parametrize(("declare", "remedy"), MISLEADING.values(), ids=MISLEADING)
def test_what_would_do_nothing_or_another_thing_is_refused(declare: Callable[[], object], remedy: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        declare()
    assert remedy in refused.value.remedy


def test_a_text_that_is_the_name_of_a_field_can_be_meant() -> None:
    assert str(rows.with_fields(k=lit("w")).node) == "with k = 'w'"
    assert str(rows.with_fields(k="no field").node) == "with k = 'no field'"
    assert rows.flat_map(lambda row: [row]).select_key(k=lit("all")).to(OUT)
