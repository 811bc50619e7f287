"""Item 1.6: a sum of LONG or of decimals is exact, or an error that names it, wherever it is added up."""

from __future__ import annotations

import json
from decimal import Context, Decimal, localcontext

import polars as pl
import pytest
from tests.unit.engine.engine import NOW_MS, Engine, LogRecord, arrow_batch
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import LARGEST_DOUBLE, Aggregate, SumTooLarge, average, reduce, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, LONG_MIN, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import hopping, last_n, session, sliding, tumbling
from recount.engine.exchange.aggregation import AddendStage
from recount.engine.stage.map_stage import from_ipc
from recount.engine.stage.partials import plan_of
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.errors import Terminal

NINES, NEGATIVE = Decimal("9" * 38), Decimal("-" + "9" * 38)
BIG, MANY = 1.7e308, Decimal("9" * 20)
EXACT = Context(prec=100)
FIELDS = RecordSchema.of(n=LONG, d=decimal(38, 0), m=decimal(38, 18), x=DOUBLE)
PAID = Topic(name="paid", key="id", value=FIELDS, partitions=1)
OUT = Topic(name="out", key="id")
SECOND = tumbling("1 s", grace="0 s")


def summed(field: str, windows: object = SECOND) -> RecordStream:
    return stream(PAID).windowed_by(windows).aggregate(sum=total(field)).emit_each_batch()  # type: ignore[arg-type]


def finally_summed(field: str) -> RecordStream:
    return stream(PAID).windowed_by(SECOND).aggregate(sum=total(field)).emit_final()


def record(field: str, value: object, timestamp_ms: int = 1) -> LogRecord:
    text = f'{{"{field}": {value}}}' if isinstance(value, Decimal) else json.dumps({field: value})
    return LogRecord(timestamp_ms=timestamp_ms, key=b"a", value=text.encode())


def by_tasks(field: str, batches: list[list[object]]) -> object:
    engine = Engine(Topology(name="summed", sinks=[summed(field).to(OUT)]))
    for batch in batches:
        engine.batch(*(record(field, value) for value in batch))
    return engine.emitted["sum"][-1]


def by_operators(flow: RecordStream | Table, field: str, batches: list[list[object]]) -> object:
    engine = TopologyEngine(Topology(name="summed", sinks=[flow.to(OUT)]), {"paid": 1})
    for batch in batches:
        engine.batch({"paid": [record(field, value) for value in batch]})
    return engine.emitted("out")["sum"][-1]


def by_interpreter(flow: RecordStream, field: str, values: list[object]) -> object:
    driver = TopologyDriver(Topology(name="summed", sinks=[flow.to(OUT)]))
    for value in values:
        driver.pipe("paid", key="a", value={**dict.fromkeys(FIELDS.fields), field: value}, timestamp_ms=1)
    driver.advance_to(10_000)
    return driver.read("out")[-1].value["sum"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("n", [LONG_MAX]),
        ("n", [LONG_MIN]),
        ("n", [5 * 10**18, 5 * 10**18, -5 * 10**18]),
        ("n", [LONG_MAX, LONG_MAX, -LONG_MAX]),
        ("n", [LONG_MIN, -1, 1]),
        ("d", [NINES]),
        ("d", [NEGATIVE]),
        ("d", [Decimal("9" * 37 + "8"), Decimal(1)]),
        ("m", [Decimal("9" * 20 + "." + "9" * 18)]),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_sum_that_fits_is_exact_however_it_is_added_up(field: str, values: list[object], together: bool) -> None:
    batches = [values] if together else [[value] for value in values]
    if not together and field == "n" and len(values) > 1:
        batches = [values[:1], values[1:][::-1]]  # each batch writes its sum, which must fit
    with localcontext(EXACT):
        expected = sum(values)  # type: ignore[arg-type]
    assert by_tasks(field, batches) == expected
    for windows in (session("1 s", grace="0 s"), sliding("1 s", grace="0 s")):
        assert by_operators(summed(field, windows), field, batches) == expected
    if together:
        assert by_interpreter(finally_summed(field), field, values) == expected


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("x", [BIG, BIG]),
        ("x", [-BIG, -BIG]),
        ("n", [5 * 10**18, 5 * 10**18]),
        ("n", [LONG_MAX, 1]),
        ("n", [LONG_MIN, -1]),
        ("d", [NINES, Decimal(1)]),
        ("d", [NINES, NINES]),
        ("d", [NEGATIVE, Decimal(-1)]),
        ("m", [Decimal("9" * 20 + ".5"), Decimal("0.5")]),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_a_sum_that_does_not_fit_stops_the_stream_and_is_named(
    field: str, values: list[object], together: bool
) -> None:
    batches = [values] if together else [[value] for value in values]
    with pytest.raises(SumTooLarge) as refused:
        by_tasks(field, batches)
    assert "=a" in str(refused.value.given) and "window_start=0" in str(refused.value.given)
    for windows in (session("1 s", grace="0 s"), sliding("1 s", grace="0 s")):
        with pytest.raises(SumTooLarge):
            by_operators(summed(field, windows), field, batches)
    with pytest.raises(SumTooLarge):
        by_interpreter(finally_summed(field), field, values)


def test_a_group_of_a_table_adds_up_exactly_or_stops_the_stream() -> None:
    rows = table(PAID).group_by(all=col("n") * 0).aggregate(sum=total("n"))
    engine = TopologyEngine(Topology(name="summed", sinks=[rows.to(OUT)]), {"paid": 1})
    records = [
        LogRecord(timestamp_ms=1, key=key, value=json.dumps({"n": LONG_MAX - n}).encode())
        for n, key in enumerate((b"a", b"b"))
    ]
    engine.batch({"paid": records[:1]})
    assert engine.emitted("out")["sum"].to_list() == [LONG_MAX]
    with pytest.raises(SumTooLarge):
        engine.batch({"paid": records[1:]})


def test_a_function_that_makes_more_than_a_long_of_it_stops_the_stream() -> None:
    flow = stream(PAID).windowed_by(SECOND).aggregate(sum=reduce("n", lambda one, other: one + other)).emit_each_batch()
    with pytest.raises(Terminal) as refused:
        by_operators(flow, "n", [[5 * 10**18, 5 * 10**18]])
    assert "sum" in str(refused.value.given)


@pytest.mark.parametrize("tree", [col("n") + 1, col("n") * 2, col("n") - LONG_MIN])
def test_a_record_for_which_an_expression_is_beyond_64_bits_is_a_dead_letter(tree: object) -> None:
    topology = Topology(name="summed", sinks=[stream(PAID).with_fields(sum=tree).select("sum").to(OUT)])
    engine, driver = TopologyEngine(topology, {"paid": 1}), TopologyDriver(topology)
    computed = engine.batch({"paid": [record("n", LONG_MAX), record("n", 1)]})
    fates = [driver.pipe("paid", key="a", value={"n": value}, timestamp_ms=1) for value in (LONG_MAX, 1)]
    assert fates == ["dead-lettered", "counted" if str(tree) != f"(n - {LONG_MIN})" else "dead-lettered"]
    assert computed.rejected["reason"].to_list() == [letter.reason for letter in driver.dead_letters]
    assert sorted(computed.rejected["detail"]) == sorted(letter.detail for letter in driver.dead_letters)
    assert computed.rejected["reason"][0] == f"out-of-range: long in with sum = {tree}"


FITTING: list[tuple[Aggregate, list[object], object]] = [
    (total("d"), [NINES, NINES, NEGATIVE], NINES),
    (total("d"), [NEGATIVE, NEGATIVE, NINES, NINES, Decimal(-5)], Decimal(-5)),
    (total("d"), [NINES, NINES, NEGATIVE, NEGATIVE], Decimal(0)),
    (
        total("m"),
        [MANY, MANY, -MANY, Decimal("0.000000000000000001")],
        Decimal("99999999999999999999.000000000000000001"),
    ),
    (total("n"), [LONG_MIN, LONG_MIN, LONG_MAX, LONG_MAX], -2),
    (total("x"), [BIG, BIG, -BIG], BIG),
    (total("x"), [-BIG, BIG, -BIG, 1e308], -7e307),
    (average("m"), [Decimal(9 * 10**19)] * 3, 9e19),
    (average("m"), [Decimal(4 * 10**19)] * 3, 4e19),
    (average("d"), [NINES, NINES, NEGATIVE], 1e38 / 3),
    (average("n"), [LONG_MAX] * 3, 2.0**63),
    (average("x"), [LARGEST_DOUBLE] * 3, LARGEST_DOUBLE),
    (average("x"), [BIG, BIG, -BIG, 5.0], BIG / 4),
]
WINDOWS = (hopping("2 s", advance="1 s", grace="0 s"), sliding("1 s", grace="0 s"), session("1 s", grace="0 s"))


@pytest.mark.parametrize(("of", "values", "expected"), FITTING)
@pytest.mark.parametrize("windows", WINDOWS)
def test_what_is_too_large_only_on_the_way_depends_on_no_cut(
    of: Aggregate, values: list[object], expected: object, windows: object
) -> None:
    flow = stream(PAID).windowed_by(windows).aggregate(sum=of).emit_final()  # type: ignore[arg-type]
    topology = Topology(name="summed", sinks=[flow.to(OUT)])
    right = pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected
    field, end = str(of.of), record("n", None, 60_000)
    assert by_interpreter(flow, field, values) == right
    for batches in ([values], [[value] for value in values], [values[:2], values[2:]]):
        engine = TopologyEngine(topology, {"paid": 1})
        for batch in batches:
            engine.batch({"paid": [record(field, value) for value in batch]})
            engine.restart()
        engine.batch({"paid": [end]})
        assert engine.emitted("out")["sum"][0] == right
        if plan_of(topology) is not None:
            tasks = Engine(topology)
            for batch in batches:
                tasks.batch(*(record(field, value) for value in batch))
            assert tasks.batch(end)["sum"].to_list()[:1] == [right]


def test_state_of_an_earlier_release_which_had_nothing_beyond_a_sum_goes_on() -> None:
    flow = stream(PAID).windowed_by(SECOND).aggregate(d=total("d"), m=average("m"), x=total("x")).emit_final()
    engine = TopologyEngine(Topology(name="summed", sinks=[flow.to(OUT)]), {"paid": 1})
    value = f'{{"d": {NINES}, "m": {MANY}, "x": {BIG}}}'.encode()
    engine.batch({"paid": [LogRecord(timestamp_ms=1, key=b"a", value=value)]})
    rows = [json.loads(row) for row in engine.state["row"]]
    assert any(name.startswith("accumulated beyond") for row in rows for name in row)
    before = [{name: one for name, one in row.items() if not name.startswith("accumulated beyond")} for row in rows]
    before = [row | {"accumulated sum of x": BIG} if "accumulated sum of x" in row else row for row in before]
    engine.state = engine.state.with_columns(pl.Series("row", [json.dumps(row) for row in before]))
    engine.restart()
    engine.batch({"paid": [LogRecord(timestamp_ms=2, key=b"a", value=value)]})
    less = f'{{"d": -{NINES}, "m": {MANY}, "x": -{BIG}}}'.encode()
    engine.batch({"paid": [LogRecord(timestamp_ms=3, key=b"a", value=less), record("n", 1, 60_000)]})
    [row] = engine.emitted("out").to_dicts()
    assert (row["d"], row["m"], row["x"]) == (NINES, pytest.approx(1e20), BIG)


def test_the_last_n_and_totals_of_all_time_are_as_exact() -> None:
    values = [NINES, NEGATIVE, NINES, NEGATIVE, NINES]
    for flow in (
        stream(PAID).windowed_by(last_n(3)).aggregate(sum=total("d")).emit_each_batch(),
        stream(PAID).aggregate(sum=total("d")).to_stream(),
    ):
        assert by_operators(flow, "d", [values]) == NINES
        assert by_operators(flow, "d", [[one] for one in values]) == NINES


def test_a_sum_that_is_too_large_names_the_record_of_the_batch_that_adds_most() -> None:
    values = [Decimal(7), NINES, Decimal(9)]
    engine = TopologyEngine(Topology(name="summed", sinks=[summed("d").to(OUT)]), {"paid": 1})
    with pytest.raises(SumTooLarge, match=r"paid-0@1 adds most"):
        engine.batch({"paid": [record("d", value) for value in values]})
    with pytest.raises(SumTooLarge, match=r"paid-0@1 adds most") as by_driver:
        by_interpreter(finally_summed("d"), "d", list(values))
    assert "window_start=0" in str(by_driver.value.given)
    topology = Topology(name="summed", sinks=[summed("d").to(OUT)])
    tasks = Engine(topology)
    with pytest.raises(SumTooLarge) as refused:
        tasks.batch(*(record("d", value) for value in values))
    plan = plan_of(topology)
    assert plan is not None
    stage = AddendStage(plan=plan, stream_times={}, latest_ms=NOW_MS, error=refused.value)
    [sent] = stage(iter([arrow_batch("paid", 0, 0, [record("d", value) for value in values])]))
    tables = dict(zip(*sent.to_pydict().values(), strict=True))
    assert from_ipc(tables["addends"])["offset"].to_list() == [0, 1, 2]
