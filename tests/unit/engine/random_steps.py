"""Random steps from stream to stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.unit.engine.random_flows import ENOUGH_MS, STREAMS, TABLES, Builder, Flow, comparable_of, may_raise
from tests.unit.engine.random_tables import Step, build_table, renamed, selected, table_filtered, table_of, with_field
from tests.unit.engine.random_windows import aggregated, windowed_final, windowed_otherwise

from recount.declare.expressions import coalesce, col
from recount.declare.flow import RecordStream, Table, cogroup
from recount.declare.operators.event_time import changes_at_once
from recount.declare.operators.joins import AsOf, StreamTableJoin
from recount.declare.operators.nodes import KEY, Node
from recount.declare.operators.placement import BY_DEFAULT, can_be_bounded, can_be_withdrawn
from recount.declare.operators.processing import KeyState
from recount.declare.operators.tables import is_versioned
from recount.declare.schema import LONG, STRING
from recount.declare.topics import Topic


def filtered(build: Builder, flow: Flow) -> Flow:
    return replace(flow, rows=flow.rows.filter(build.predicate(flow)))


def rekeyed(build: Builder, flow: Flow) -> Flow:
    return build.keyed(flow)


def flat_mapped(build: Builder, flow: Flow) -> Flow:
    """As many rows as a number says; the function empties its row, which is its own."""
    text, number = build.one_of(*flow.of_kind("string")), build.one_of(*flow.of_kind("long"))
    word, n = build.fresh("w"), build.fresh("n")
    assert isinstance(flow.rows, RecordStream)
    raises = may_raise(flow.rows.node) and build.raises()

    def made(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        many, said = row[number], row[text]
        row.clear()
        for turn in range(min(3, abs(many or 0))):
            if raises and many == 2 and turn == 1:
                raise ValueError(f"{many} of {object()}")
            yield {word: said if turn < 2 else None, n: turn}

    return replace(flow, rows=flow.rows.flat_map(made, **{word: STRING, n: LONG}))


def passed_by(build: Builder, flow: Flow) -> Flow:
    """Steps that change nothing."""
    assert isinstance(flow.rows, RecordStream)
    return replace(flow, rows=build.one_of(flow.rows.peek(lambda _: None), flow.rows.repartition(3)))


def through(build: Builder, flow: Flow) -> Flow:
    """Written on the way."""
    assert isinstance(flow.rows, RecordStream)
    name = f"out-{len(build.comparable)}"
    build.comparable[name] = comparable_of(flow)
    build.any_order &= flow.any_order
    return replace(flow, rows=flow.rows.through(Topic(name=name, key="id")))


def branched(build: Builder, flow: Flow) -> Flow:
    """One branch goes its own way, or comes back changed."""
    assert isinstance(flow.rows, RecordStream)
    branches = flow.rows.branch(one=build.predicate(flow), other=build.predicate(flow))
    if build.one_of(True, False):
        changed = branches["other"].with_fields(**{build.fresh("f"): 1})
        return replace(flow, rows=branches["one"].merge(changed, branches["rest"]))
    build.end(replace(flow, rows=branches["other"]))
    return replace(flow, rows=branches[build.one_of("one", "rest")])


def merged(build: Builder, flow: Flow) -> Flow:
    """With another stream, both brought to the same fields; as a cogroup or not."""
    other = build.source(build.one_of(*STREAMS))
    word, number, key = build.fresh("w"), build.fresh("n"), build.fresh("k")
    sides = []
    for side in (flow, other):
        assert isinstance(side.rows, RecordStream)
        text, n = build.one_of(*side.of_kind("string")), build.one_of(*side.of_kind("long"))
        keyed = side.rows.select_key(**{key: col(text)})
        sides.append(keyed.select(**{word: coalesce(col(text), "none"), number: col(n)}))
    is_group = build.one_of(True, False)
    rows = cogroup(one=sides[0], other=sides[1]) if is_group else sides[0].merge(sides[1])
    return replace(
        flow,
        rows=rows,
        topics=flow.topics | other.topics,
        in_order=flow.in_order and not flow.by_time,
        single=flow.single and flow.topics == other.topics,
    )


def joined(build: Builder, flow: Flow) -> Flow:
    """With another stream, or with itself."""
    other = build.source(build.one_of(*STREAMS))
    if build.one_of(False, False, True):
        other = filtered(build, other)
    if build.one_of(False, False, True):
        other = windowed_final(build, build.keyed(other), tumbles=True)
    left, right = build.keyed(flow), renamed(build, build.keyed(other))
    assert isinstance(left.rows, RecordStream) and isinstance(right.rows, RecordStream)
    # a row that comes behind the frontier can meet one that has left alone
    both = [left.rows.join] if flow.behind or other.behind else [left.rows.left_join, left.rows.outer_join]
    method = build.one_of(left.rows.join, *both)
    build.idles = False
    rows = method(
        right.rows,
        before=build.one_of("0 ms", "5 ms"),
        after=build.one_of("0 ms", "8 ms"),
        grace=build.one_of("0 ms", "5 ms"),
    )
    return replace(flow, rows=rows, topics=flow.topics | right.topics, in_order=False, single=False, has_bounds=False)


def looked_up(build: Builder, flow: Flow) -> Flow:
    """In a table of any kind; every record is there before the table's time passes with a grace that is long enough."""
    waiting = ("versions with grace", "short grace")
    kind = (
        build.one_of(*waiting) if waits_shortly(flow.rows.node) else build.one_of("table", "versions", "made", *waiting)
    )
    if kind == "short grace":
        return waiting_shortly(build, flow)
    assert isinstance(flow.rows, RecordStream)
    if kind == "made":
        found = build_table(build, is_current=True)
    else:
        own = sorted(flow.topics) if kind == "versions with grace" else []
        name = "table" if kind == "table" else build.one_of(*TABLES, *own)
        found = table_of(build, name, versioned=kind != "table")
        if build.one_of(False, True):
            found = table_filtered(build, found)
    right = renamed(build, found)
    assert isinstance(right.rows, Table)
    by = build.one_of(None, *(col(name) for name in flow.of_kind("string")))
    if by is None and flow.rows.node.fields[flow.key] != STRING:
        flow = build.keyed(flow)
        assert isinstance(flow.rows, RecordStream)
    method = build.one_of(flow.rows.join_table, flow.rows.left_join_table)
    waits = kind == "versions with grace"
    build.idles &= not waits
    when = as_of(build, right.rows.node, waits=waits)
    history = history_of(build, flow) if when == "event" else BY_DEFAULT
    rows = method(right.rows, grace=f"{ENOUGH_MS} ms" if waits else None, by=by, as_of=when, history=history)
    return replace(
        flow,
        rows=rows,
        topics=flow.topics,
        in_order=flow.in_order and not waits,
        any_order=flow.any_order and waits,
        has_bounds=flow.has_bounds,
    )


def history_of(build: Builder, flow: Flow) -> str | None:
    """Shorter than records are late, where there can be one; whom an idle partition makes late depends on batches."""
    if not can_be_bounded(flow.rows.node):
        return build.one_of(None, BY_DEFAULT)
    history = build.one_of(None, BY_DEFAULT, "0 ms", "4 ms", "20 ms")
    build.idles &= history in (None, BY_DEFAULT)
    return history


def as_of(build: Builder, table: Node, *, waits: bool) -> AsOf:
    """By arrival where there is no other way, or now and then where there is."""
    if not waits and not changes_at_once(table):
        return "arrival"
    return "event" if waits or is_versioned(table) else build.one_of("event", "event", "arrival")


def waits_shortly(node: Node) -> bool:
    """Whether rows can leave in the midst of a batch's changes of tables: what these have then is not determined."""
    short = isinstance(node, StreamTableJoin) and node.grace_ms is not None and node.grace_ms < ENOUGH_MS
    return short or any(map(waits_shortly, node.inputs))


def waiting_shortly(build: Builder, flow: Flow) -> Flow:
    """Held back by a table, maybe of its own topic; it can miss later changes, so that nothing it finds is kept."""
    assert isinstance(flow.rows, RecordStream)
    right = renamed(build, table_of(build, build.one_of(*TABLES, *sorted(flow.topics)), versioned=True))
    assert isinstance(right.rows, Table)
    build.idles = False
    grace = build.one_of("0 ms", "3 ms", "20 ms")
    rows = flow.rows.left_join_table(right.rows, grace=grace, by=col(flow.of_kind("string")[0]))
    kept = {name: col(name) for name in flow.rows.node.fields if name != flow.key}
    return replace(flow, rows=rows.select(**kept), in_order=False)


def deduplicated(build: Builder, flow: Flow) -> Flow:
    """By the record's key (the first by offset), or by a field (the first by event time)."""
    assert isinstance(flow.rows, RecordStream)
    by_key = KEY in flow.rows.node.fields and build.one_of(True, False)
    by = KEY if by_key else build.one_of(*flow.of_kind("string"))
    rows = flow.rows.deduplicate(by, horizon=build.one_of("0 ms", "9 ms", f"{ENOUGH_MS} ms"))
    at_once = rows.node.partitioned  # type: ignore[union-attr]
    build.idles &= at_once
    return replace(
        flow, rows=rows, in_order=flow.in_order and at_once, any_order=flow.any_order and (not at_once or flow.single)
    )


def by_event_time(build: Builder, flow: Flow) -> Flow:
    """Records of any partitions and topics one after the other; they count no more as those of one partition."""
    assert isinstance(flow.rows, RecordStream)
    build.idles = False
    grace = build.one_of("0 ms", "9 ms", f"{ENOUGH_MS} ms")
    return replace(flow, rows=flow.rows.in_order(grace=grace), in_order=True, by_time=True, single=False)


def processed(build: Builder, flow: Flow) -> Flow:
    """Counts the records of a key and reminds of it; its keys live in one partition, or come by time.

    A timer sets as many further ones as it remembers to. Some records ask for a timer that is no time.
    """
    assert isinstance(flow.rows, RecordStream)
    text, what = build.one_of(*flow.of_kind("string")), build.fresh("p")
    nth = build.fresh("n")

    raises = may_raise(flow.rows.node) and build.raises()
    further, every_ms = build.one_of(0, 0, 3), build.one_of(0, 2, 30)
    no_time = build.one_of(0.5, float("inf"), None, -1, 2**63) if raises else None

    def on_record(row: Mapping[str, Any], state: KeyState) -> Iterator[dict[str, Any]]:
        state.remembered["n"] = state.remembered.get("n", 0) + 1
        state.remembered["further"] = [further]
        if state.remembered["n"] % 2:
            state.schedule(state.timestamp_ms + 7)
        if raises and state.timestamp_ms % 3 == 1:
            state.schedule(no_time)  # type: ignore[arg-type]
        yield {what: row[text], nth: state.remembered["n"]}
        if raises and (state.timestamp_ms + state.remembered["n"]) % 3 == 0:
            raise ValueError(f"after all that: {object()}")

    def on_timer(at_ms: int, state: KeyState) -> Iterator[dict[str, Any]]:
        yield {what: "timer", nth: state.remembered["n"] + at_ms}
        if state.remembered["further"][0] > 0:
            state.remembered["further"][0] -= 1
            state.schedule(at_ms + every_ms)

    timed = build.one_of(True, False) and not flow.by_time
    build.idles &= not timed
    build.by_key |= not (flow.single or flow.by_time)
    rows = flow.rows.process(on_record, on_timer=on_timer if timed else None, **{what: STRING, nth: LONG})
    return replace(flow, rows=rows, in_order=flow.in_order and not timed, behind=flow.behind or timed)


def tabled(build: Builder, flow: Flow) -> Flow:
    """The stream read as a table."""
    assert isinstance(flow.rows, RecordStream)
    return replace(flow, rows=flow.rows.to_table(versioned=build.one_of(True, False)), any_order=False)


def stream_steps(build: Builder, flow: Flow) -> list[Step]:
    """What can come after a stream without its rows depending on batches."""
    keyed_by_text = flow.rows.node.fields[flow.key] == STRING
    if flow.exactness == "latest":
        return [with_field]
    if flow.exactness == "revised":
        follows = [filtered] if can_be_withdrawn(flow.rows.node) else []
        return [with_field, windowed_final, windowed_final, windowed_otherwise, *follows]
    steps: list[Step] = [filtered, with_field, selected, rekeyed, passed_by, through, branched]
    steps += [joined, joined, looked_up, looked_up]
    if not flow.behind:
        steps += [deduplicated, deduplicated]
    steps += [windowed_final, windowed_final, windowed_final, windowed_otherwise, windowed_otherwise]
    if flow.of_kind("long"):
        steps += [merged, flat_mapped]
    if may_raise(flow.rows.node) and not flow.by_time:
        steps += [by_event_time] * 3
    lives_in_one = (flow.single or flow.key == KEY) and len(flow.topics) == 1
    if flow.in_order and (lives_in_one or flow.by_time) and keyed_by_text:
        steps += [processed] * 3
    if flow.in_order:
        steps += [aggregated] if flow.has_bounds else [aggregated, tabled]
    return steps
