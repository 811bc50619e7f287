"""Item 1.4: what a declaration means has a fingerprint, which follows every change of the meaning and nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from recount.declare.aggregates import Aggregate, count, distinct, fold, largest, total
from recount.declare.changes import changes
from recount.declare.expressions import col, when
from recount.declare.fingerprint import TOPOLOGY_MEANS, Declared
from recount.declare.groups import Archive
from recount.declare.plain_values import PlainValue
from recount.declare.schema import (
    BYTES,
    DATE,
    LONG,
    STRING,
    TIMESTAMP,
    FieldType,
    Reading,
    RecordSchema,
    decimal,
    header,
    in_key,
    nested,
)
from recount.declare.topics import Encoding, KeyForm, Topic
from recount.declare.topology import Health, RecordStream, Topology, stream, table
from recount.declare.windows import Windows, hopping, last_n, session, sliding, tumbling

SCHEMA = RecordSchema.of(region=STRING, amount=decimal(15, 2), n=LONG, at=LONG)
ORDERS = Topic(name="orders", key="order_id", value=SCHEMA)
PRICES = Topic(name="prices", key="region", value=RecordSchema.of(price=LONG))
OUT = Topic(name="out", key="region")
SIDE = Topic(name="side", key="region")
RATE = 3
test_fingerprint: Any = None
"""Stands for a module of the user's own."""


def regions(
    windows: Windows = tumbling("1 h", grace="60 s"),
    source: Topic = ORDERS,
    by: Any = col("region"),
    predicate: Any = col("amount") > Decimal(5),
    out: Topic = OUT,
    table_name: str | None = None,
    emit: str = "emit_final",
    settings: dict[str, Any] | None = None,
    **aggregates: Aggregate,
) -> Topology:
    made = aggregates or {"orders": count(), "revenue": total("amount")}
    grouped = stream(source).filter(predicate).select_key(region=by).windowed_by(windows).aggregate(**made)
    return Topology(name="regions", sinks=[getattr(grouped, emit)().to(out, table=table_name)], **(settings or {}))


def fingerprint(topology: Topology | Archive) -> str:
    return Declared.of(topology).fingerprint


def said(old: Topology, new: Topology) -> list[str]:
    return [str(change) for change in changes(Declared.of(old).document, Declared.of(new).document)]


CHANGED = {
    "window size of the aggregation by region: 1 h -> 2 h": lambda: regions(tumbling("2 h", grace="60 s")),
    "grace of the aggregation by region: 1 min -> 2 min": lambda: regions(tumbling("1 h", grace="2 min")),
    "window advance of the aggregation by region: added (30 min)": lambda: regions(
        hopping("1 h", advance="30 min", grace="60 s")
    ),
    "emission of the aggregation by region: final -> each batch": lambda: regions(emit="emit_each_batch"),
    "aggregates revenue of of the aggregation by region: amount -> n": lambda: regions(
        orders=count(), revenue=total("n")
    ),
    "aggregates most of the aggregation by region: added (max(amount))": lambda: regions(
        orders=count(), revenue=total("amount"), most=largest("amount")
    ),
    "aggregates revenue where of the aggregation by region: added ((n == 1))": lambda: regions(
        orders=count(), revenue=total("amount").only(col("n") == 1)
    ),
    "predicate of the filter: (amount > 5) -> (amount >= 5)": lambda: regions(predicate=col("amount") >= Decimal(5)),
    "by of the key: region -> when((n == 1), 'a', region)": lambda: regions(by=when(col("n") == 1, "a", col("region"))),
    "event time of the source orders: added (at)": lambda: regions(source=replace(ORDERS, event_time="at")),
    "schema n of the source orders: long -> string": lambda: regions(
        source=replace(ORDERS, value=RecordSchema.of(region=STRING, amount=decimal(15, 2), n=STRING, at=LONG))
    ),
    "schema n of the source orders: long -> long required": lambda: regions(
        source=replace(ORDERS, value=replace(SCHEMA, required=frozenset({"n"})))
    ),
    "idle after: 5 min -> 1 min": lambda: regions(settings={"idle_after": "1 min"}),
    "max future: 1 h -> 2 h": lambda: regions(settings={"max_future": "2 h"}),
    "table of the sink out: out -> other": lambda: regions(table_name="other"),
}


@pytest.mark.parametrize("words", CHANGED)
def test_a_change_of_the_meaning_changes_the_fingerprint_and_is_said_in_words(words: str) -> None:
    changed = CHANGED[words]()
    assert fingerprint(changed) != fingerprint(regions())
    assert words in said(regions(), changed)


def texts(source: Topic, sink: Topic) -> Topology:
    return Topology(name="texts", sinks=[stream(source).filter(~col("text").is_null()).to(sink)])


def test_json_and_a_plain_value_of_the_same_field_are_other_meanings_of_source_and_of_sink() -> None:
    """The document of a topology without plain values is what it was before there were any."""
    text = PlainValue.of(text=STRING)
    json, plain = (Topic(name="texts", key="id", value=value) for value in (RecordSchema.of(text=STRING), text))
    old, read, written = texts(json, OUT), texts(plain, OUT), texts(json, replace(OUT, value=text))
    assert said(old, read) == ["encoding of the source texts: added (plain)"]
    assert said(read, old) == ["encoding of the source texts: removed (plain)"]
    assert said(old, written) == ["encoding of the sink out: added (plain)"]
    assert len({fingerprint(one) for one in (old, read, written)}) == 3
    first, *_, last = Declared.of(old).document["operators"]
    assert first == {"operator": "source", "topic": "texts", "schema": {"text": "string"}, "key": "__key"}
    assert last.keys() == {"operator", "table", "topic", "key", "fields", "reads"}
    numbers = [Topic(name="n", key="id", value=PlainValue.of(n=kind)) for kind in (LONG, STRING)]
    assert said(*(Topology(name="n", sinks=[stream(one).to(OUT)]) for one in numbers)) == [
        "schema n of the source n: long -> string"
    ]


def test_each_encoding_of_a_source_is_another_meaning() -> None:
    topic = Topic(name="texts", key="id", value=RecordSchema.of(text=STRING))
    json, avro, protobuf = (texts(replace(topic, encoding=one), OUT) for one in get_args(Encoding))
    assert len({fingerprint(one) for one in (json, avro, protobuf)}) == 3
    assert said(json, protobuf) == ["encoding of the source texts: added (protobuf)"]


READINGS = (
    *(STRING, LONG, TIMESTAMP, DATE, BYTES, nested("x", kind=LONG), nested("a", "x", kind=LONG)),
    *(header("a"), header("b"), header("a", kind=BYTES), header("a", kind=DATE)),
    *(in_key("a"), in_key("b"), in_key("a", "b"), in_key("a", kind=LONG), in_key("a", kind=DATE)),
)


def test_each_reading_of_a_field_and_each_form_of_a_key_is_another_meaning() -> None:
    def keyed(form: KeyForm, kind: FieldType | Reading = STRING) -> Topology:
        value = RecordSchema(fields={"text": STRING, "key": in_key("k"), "x": kind})
        return texts(Topic(name="texts", key="id", value=value, key_form=form), OUT)

    forms: tuple[KeyForm, ...] = ("avro", "protobuf")
    made = [*(keyed("json", kind) for kind in READINGS), *map(keyed, forms)]
    assert len({fingerprint(one) for one in made}) == len(made)


PAIRS: dict[str, tuple[Callable[[], RecordStream], Callable[[], RecordStream]]] = {
    "session gap": (lambda: _grouped(session("5 s", grace="0 s")), lambda: _grouped(session("6 s", grace="0 s"))),
    "session cut": (
        lambda: _grouped(session("5 s", grace="0 s")),
        lambda: _grouped(session("5 s", grace="0 s", max_duration="9 s")),
    ),
    "sliding": (lambda: _grouped(sliding("5 s", grace="0 s")), lambda: _grouped(sliding("6 s", grace="0 s"))),
    "last n": (lambda: _grouped(last_n(2), "emit_each_batch"), lambda: _grouped(last_n(3), "emit_each_batch")),
    "before": (lambda: _joined(before="1 s"), lambda: _joined(before="2 s")),
    "after": (lambda: _joined(after="1 s"), lambda: _joined(after="2 s")),
    "join grace": (lambda: _joined(grace="1 s"), lambda: _joined(grace="2 s")),
    "kind of join": (lambda: _joined(), lambda: _joined("left_join")),
    "kind of lookup": (lambda: _looked_up("join_table"), lambda: _looked_up("left_join_table")),
    "versioned": (lambda: _looked_up(), lambda: _looked_up(versioned=True)),
    "lookup grace": (lambda: _looked_up(versioned=True), lambda: _looked_up(versioned=True, grace="1 s")),
    "history": (lambda: _looked_up(history="8 ms"), lambda: _looked_up(history="9 ms")),
    "horizon": (lambda: _first("1 s"), lambda: _first("2 s")),
    "id": (lambda: _first("1 s"), lambda: _first("1 s", "n")),
    "distinct by a sketch": (
        lambda: _grouped(tumbling("1 s", grace="0 s"), d=distinct("n")),
        lambda: _grouped(tumbling("1 s", grace="0 s"), d=distinct("n", sketch=True)),
    ),
    "held back": (
        lambda: stream(ORDERS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_after("1 s"),
        lambda: stream(ORDERS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_after("2 s"),
    ),
    "selected": (lambda: stream(ORDERS).select("n"), lambda: stream(ORDERS).select("n", "at")),
    "type of a constant": (lambda: _with(col("n") + 1), lambda: _with(col("n") + 1.0)),
    "order of merged streams": (
        lambda: stream(ORDERS).merge(stream(replace(ORDERS, name="more"))),
        lambda: stream(replace(ORDERS, name="more")).merge(stream(ORDERS)),
    ),
}


def _grouped(windows: Windows, emit: str = "emit_final", **aggregates: Aggregate) -> RecordStream:
    made: RecordStream = getattr(stream(ORDERS).windowed_by(windows).aggregate(**aggregates or {"c": count()}), emit)()
    return made


def _joined(kind: str = "join", before: str = "1 s", after: str = "0 s", grace: str = "0 s") -> RecordStream:
    made: RecordStream = getattr(stream(ORDERS), kind)(stream(PRICES), before=before, after=after, grace=grace)
    return made


def _looked_up(kind: str = "left_join_table", versioned: bool = False, **spans: str) -> RecordStream:
    made: RecordStream = getattr(stream(ORDERS), kind)(table(PRICES, versioned=versioned), **spans)
    return made


def _first(horizon: str, by: str = "region") -> RecordStream:
    return stream(ORDERS).deduplicate(by, horizon=horizon)


def _with(tree: Any) -> RecordStream:
    return stream(ORDERS).with_fields(more=tree)


@pytest.mark.parametrize("name", PAIRS)
def test_every_parameter_of_an_operator_is_part_of_the_meaning(name: str) -> None:
    one, other = (Topology(name="s", sinks=[flow().to(OUT)]) for flow in PAIRS[name])
    assert fingerprint(one) != fingerprint(other)
    assert said(one, other)


def test_what_changes_no_result_changes_no_fingerprint() -> None:
    kept = replace(
        ORDERS, retention_ms=-1, partitions=9, replication_factor=1, min_insync_replicas=1, configs={"a": "b"}
    )
    same = [
        regions(source=kept),
        regions(out=replace(OUT, cleanup_policy="compact", partitions=1)),
        regions(settings={"health": Health(lag=1), "on_bad_record": "fail", "retention": None}),
        regions(revenue=total("amount"), orders=count()),
        replace(regions(), name="another-name"),
        Topology(
            name="regions",
            sinks=[
                stream(ORDERS)
                .peek(print)
                .filter(col("amount") > Decimal(5))
                .repartition(3)
                .select_key(region=col("region"))
                .windowed_by(tumbling("60 min", grace="1 min"))
                .aggregate(orders=count(), revenue=total("amount"))
                .emit_final()
                .to(OUT)
            ],
        ),
    ]
    assert {fingerprint(one) for one in same} == {fingerprint(regions())}


def test_every_field_of_a_topology_either_means_something_or_is_known_to_mean_nothing() -> None:
    meaningless = {"name", "sinks", "actions", "health", "on_bad_record", "retention"}
    assert {one.name for one in fields(Topology)} - meaningless == set(TOPOLOGY_MEANS)


def test_an_archive_means_its_topic() -> None:
    one, other = Archive(topic=ORDERS), Archive(topic=PRICES)
    assert fingerprint(one) == fingerprint(Archive(topic=replace(ORDERS, retention_ms=-1, value=None)))
    assert fingerprint(one) != fingerprint(other)


def _mapped(function: Callable[[Any], Any]) -> str:
    return fingerprint(Topology(name="s", sinks=[stream(ORDERS).map(function, n=LONG).to(OUT)]))


def _twice(row: Any) -> Any:
    return {"n": row["n"] * RATE}


def _documented(record: Any) -> Any:
    """With a docstring."""
    return {"n": record["n"] * RATE}


def _helped(row: Any) -> Any:
    return _twice(row)


def _closed_over(factor: int) -> Callable[[Any], Any]:
    return lambda row: {"n": row["n"] * factor}


def _defaulted(row: Any, factor: int = 2) -> Any:
    return {"n": row["n"] * factor}


class Rates:
    least = 1

    @staticmethod
    def of(n: int) -> int:
        return n * RATE


def _by_module(row: Any) -> Any:
    return {"n": row["n"] * test_fingerprint.RATE}


def _by_class(row: Any) -> Any:
    return {"n": Rates.of(row["n"])}


class Times:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, row: Any) -> Any:
        return {"n": row["n"] * self.factor}


def test_a_function_is_known_by_what_it_does_and_not_by_its_names_or_place() -> None:
    assert _mapped(_twice) == _mapped(lambda other: {"n": other["n"] * RATE})
    assert _mapped(_twice) == _mapped(_documented)
    assert _mapped(_closed_over(2)) == _mapped(_closed_over(2))


def test_constants_closures_defaults_and_helpers_are_part_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _mapped(_closed_over(2)) != _mapped(_closed_over(3))
    assert _mapped(lambda row: {"n": row["n"] + 1}) != _mapped(lambda row: {"n": row["n"] + 2})
    assert _mapped(lambda row: {"n": row["n"]}) != _mapped(lambda row: {"n": row["at"]})
    assert _mapped(Times(2)) != _mapped(Times(3))
    assert _mapped(functools.partial(_defaulted, factor=1)) != _mapped(functools.partial(_defaulted, factor=2))
    monkeypatch.setitem(globals(), "test_fingerprint", ModuleType("test_fingerprint"))
    monkeypatch.setattr(test_fingerprint, "RATE", 3, raising=False)
    functions = (_twice, _helped, _defaulted, _by_class, _by_module)
    before = [_mapped(function) for function in functions]
    monkeypatch.setitem(globals(), "RATE", 4)
    monkeypatch.setattr(test_fingerprint, "RATE", 4, raising=False)
    monkeypatch.setattr(_defaulted, "__defaults__", (5,))
    assert all(one != other for one, other in zip(before, map(_mapped, functions), strict=True))


def test_a_function_that_has_run_is_the_same_function() -> None:
    function = _closed_over(2)
    before = _mapped(function)
    for _ in range(1_000):
        function({"n": 1})
    assert _mapped(function) == before


_PROGRAM = """
from tests.unit.declare.test_fingerprint import *
from recount.declare.aggregates import fold
flow = stream(ORDERS).map(lambda row: {"n": len({"b", "a", "c"} & {row["region"]})}, n=LONG).windowed_by(
    tumbling("1 s", grace="0 s")
).aggregate(f=fold("n", initial=set, adder=lambda s, n: s | {n, "x", "y"}, merger=set.union, returns=LONG))
print(fingerprint(Topology(name="s", sinks=[flow.emit_final().to(OUT)])), fingerprint(regions()))
"""


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    }
    assert len(told) == 1
    assert fingerprint(regions()) in told.pop()


def test_a_fold_is_known_by_its_functions() -> None:
    def folded(step: int) -> str:
        made = fold("n", initial=int, adder=lambda a, n: a + n * step, merger=lambda a, b: a + b, returns=LONG)
        return fingerprint(regions(orders=made))

    assert folded(1) == folded(1) != folded(2)
