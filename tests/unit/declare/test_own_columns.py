"""Item 1.6: a name of Recount's own is refused where it is declared, and every other name is free."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.user_names import USER_NAMES

from recount.declare.aggregates import count
from recount.declare.columns import REVISION, require_distinct
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, cogroup
from recount.declare.operators.nodes import KEY
from recount.declare.output import WINDOW_HEADER, output_record
from recount.declare.schema import LONG, STRING, FieldType, RecordSchema, nested
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.runtime.errors import InvalidDeclaration
from recount.testing import TopologyDriver

ORDERS = Topic(name="orders", key="id", value=RecordSchema.of(id=STRING, amount=LONG))
OUT = Topic(name="out", key="id")
MINUTE = tumbling("1 min", grace="0 s")

DECLARATIONS: list[Callable[[str], object]] = [
    lambda name: RecordSchema(fields={name: LONG}),
    lambda name: stream(ORDERS).with_fields(**{name: col("amount")}),
    lambda name: stream(ORDERS).select(**{name: col("amount")}),
    lambda name: stream(ORDERS).select_key(**{name: col("amount")}),
    lambda name: stream(ORDERS).map(dict, **{name: LONG}),
    lambda name: stream(ORDERS).process(lambda row, _: [row], **{name: LONG}),
    lambda name: stream(ORDERS).windowed_by(MINUTE).aggregate(**{name: count()}).emit_final(),
    lambda name: stream(ORDERS).aggregate(**{name: count()}),
    lambda name: table(ORDERS).group_by(**{name: col("id")}).aggregate(counted=count()),
    lambda name: table(ORDERS).group_by(id=col("id")).aggregate(**{name: count()}),
]


OURS = (REVISION, "Recount_anything", KEY, "__order")
ESCAPED_BY_JSON = ('say "hi"', "a\\b", "two\nlines", "")
SEVERAL_COLUMNS_OF_POLARS = ("*", "^amount$", "^$")
"""Of a field called * the stream wrote what all fields of the row have, one behind the other."""


@pytest.mark.parametrize("declare", DECLARATIONS)
def test_a_name_that_cannot_be_is_refused_where_it_is_declared(declare: Callable[[str], object]) -> None:
    for name in (*OURS, *ESCAPED_BY_JSON, *SEVERAL_COLUMNS_OF_POLARS):
        with pytest.raises(InvalidDeclaration) as refused:
            declare(name)
        assert refused.value.given == (repr(name) if name in ESCAPED_BY_JSON else name)
        assert refused.value.remedy


def test_a_producers_field_of_such_a_name_is_read_under_another() -> None:
    named = RecordSchema.of(every=nested("*", kind=LONG), some=nested("^a$", kind=LONG))
    assert named.decode(b'{"*": 1, "^a$": 2}') == {"every": 1, "some": 2}


@pytest.mark.parametrize("declare", DECLARATIONS)
def test_every_other_name_is_free(declare: Callable[[str], object]) -> None:
    others = ("^", "$", "^a", "a$", "a*", "weight.kg", "net weight", "it's", "größe", "select", "x" * 300)
    for name in (*USER_NAMES, *others):
        assert declare(name)


def copied(**fields: FieldType) -> Topology:
    copies = Topic(name="copies", key="id", value=RecordSchema.of(**fields))
    return Topology(name="example", sinks=[stream(copies).to(OUT)])


@pytest.mark.parametrize(
    "fields",
    [
        {"window_start": LONG},
        {"window_end": LONG},
        {"window_start": STRING, "window_end": STRING},
        {"Window_Start": LONG, "window_end": LONG},
    ],
)
def test_fields_that_nobody_could_take_for_bounds_are_refused_where_they_are_written(
    fields: dict[str, FieldType],
) -> None:
    """With one of them each batch of the stream failed, with texts its audit."""
    with pytest.raises(InvalidDeclaration, match="window_start and window_end"):
        copied(**fields)


def test_results_of_another_stream_have_their_bounds_with_a_value_or_without() -> None:
    driver = TopologyDriver(copied(window_start=LONG, window_end=LONG, n=LONG))
    for value in ({"window_start": 1, "window_end": 2, "n": 3}, {"n": 4}):
        driver.pipe("copies", key="a", value=value, timestamp_ms=0)
    rows = [{"id": "a", **found.value} for found in driver.read("out") if found.value]
    said = {"key": "id", "fields": dict.fromkeys(rows[0], LONG), "timestamp_ms": 1, "revision": 0, "origin": "backfill"}
    headers = [dict(output_record(row, **said).headers) for row in rows]  # type: ignore[arg-type]
    assert [one.get(WINDOW_HEADER) for one in headers] == [b"1/2", None]


def test_a_result_of_a_window_has_its_bounds_to_itself() -> None:
    def counted(records: RecordStream, **aggregates: str) -> object:
        return records.windowed_by(MINUTE).aggregate(**dict.fromkeys(aggregates.values(), count())).emit_final()

    with pytest.raises(InvalidDeclaration):
        counted(stream(ORDERS), n="Window_End")
    with pytest.raises(InvalidDeclaration):
        counted(stream(ORDERS).select_key(window_start=col("id")), n="n")


def test_the_field_of_a_cogroup_that_names_the_stream_is_ours() -> None:
    named = stream(ORDERS).with_fields(merged_from=col("amount"))
    with pytest.raises(InvalidDeclaration):
        cogroup(orders=named, others=named)


def test_two_names_that_differ_in_their_case_only_are_refused_for_tables_cannot_hold_both() -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        Topology(name="twice", sinks=[stream(ORDERS).with_fields(Amount=col("amount")).to(OUT)])
    assert refused.value.given == "amount and Amount"


@pytest.mark.parametrize(
    ("one", "other"),
    ["\u00b5\u03bc", ("\u0131d", "id"), ("\u017fum", "sum"), "\u03c2\u03c3", "\u212ak", ("\u0130d", "id")],
    ids=["micro and mu", "dotless i", "long s", "final sigma", "kelvin", "dotted I"],
)
def test_two_names_that_spark_takes_for_one_are_refused_whatever_python_says(one: str, other: str) -> None:
    """Java compares characters in upper case first: each audit of such a stream failed, for a column was ambiguous."""
    with pytest.raises(InvalidDeclaration) as refused:
        require_distinct("a sink", [one, other])
    assert refused.value.given == f"{one} and {other}"


def test_names_that_spark_tells_apart_are_free() -> None:
    require_distinct("a sink", ["stra\u00dfe", "strasse", "e\u0301", "\u00e9", "a b", "a_b", "a"])
