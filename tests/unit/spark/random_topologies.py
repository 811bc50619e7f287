"""Random topologies: chains of every operator, each flow knowing how far its rows depend on where batches are cut.

A drawn topology is a `Drawn`: the topology, how many partitions each topic has, which topics feed tables (their changes
are read first in a batch), and for each sink what can be compared of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hypothesis import strategies as st

from recount.core.aggregates import (
    Aggregate,
    average,
    count,
    distinct,
    first,
    fold,
    largest,
    last,
    reduce,
    smallest,
    total,
)
from recount.core.describe import describe
from recount.core.expressions import Expression, coalesce, col, when
from recount.core.flow import RecordStream, Table, WindowedTable, cogroup, stream
from recount.core.nodes import KEY, WINDOW_END, WINDOW_START, Sink
from recount.core.processing import KeyState
from recount.core.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.core.windows import (
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windows,
    all_time,
    last_n,
)

ENOUGH_MS = 70
"""A grace longer than any record of these logs is behind another."""
Exactness = Literal["rows", "revised", "latest"]
"""How far what leaves depends on batches: ``rows`` not at all; ``revised``: the last revision of each result does not,
and windows below follow revisions; ``latest``: only the last row of each key and window does not."""
STREAMS, TABLES = ("left", "right"), ("table", "versions")


def topic_of(name: str) -> Topic:
    """The topic ``name``, of which every field begins with its first letter; `right` has times of its own."""
    letter = name[0]
    fields = {"n": LONG, "w": STRING, "x": DOUBLE, "d": decimal(9, 2), "b": BOOLEAN, "at": LONG}
    schema = RecordSchema(fields={letter + short: kind for short, kind in fields.items()})
    return Topic(name=name, key="id", value=schema, event_time="rat" if name == "right" else None)


TOPICS = {name: topic_of(name) for name in (*STREAMS, *TABLES)}


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A stream or a table while it is built.

    ``in_order``: its rows leave as the log has them. ``any_order``: nothing of it depends on the order in which
    partitions and topics are read. ``single``: every record comes from one partition.
    ``has_bounds``: a row is about a key and a window. ``with_times``: also its time does not depend on batches.
    ``cogrouped``: it says in `merged_from` where a row comes from. ``behind``: a timer that was set in the past makes a
    row behind the frontier, and windows that were closed are revised.
    """

    rows: RecordStream | Table
    topics: frozenset[str]
    exactness: Exactness = "rows"
    in_order: bool = True
    any_order: bool = True
    single: bool = False
    has_bounds: bool = False
    with_times: bool = True
    cogrouped: bool = False
    behind: bool = False

    @property
    def key(self) -> str:
        """The field of the key."""
        return self.rows.node.key

    def of_kind(self, *kinds: str) -> list[str]:
        """The fields of these kinds."""
        return [name for name, kind in self.rows.node.fields.items() if kind.kind in kinds]


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """What of a sink's rows does not depend on batches; see ``Flow``."""

    exactness: Exactness
    with_times: bool
    has_bounds: bool


def comparable_of(flow: Flow) -> Comparable:
    """What of ``flow`` can be compared where it is written."""
    return Comparable(exactness=flow.exactness, with_times=flow.with_times, has_bounds=flow.has_bounds)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A random topology; see the module."""

    topology: Topology
    partitions: Mapping[str, int]
    sinks: Mapping[str, Comparable]
    any_order: bool
    """By which order topics and partitions are read within a batch makes no difference."""
    idles: bool
    """Partitions may become idle without the rows depending on when."""
    by_key: bool = False
    """A record's key says in which partition it is."""

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """How Hypothesis shows a falsifying example."""
        printer.text(f"{describe(self.topology)}\n  partitions {dict(self.partitions)}")


@dataclass
class Builder:
    """Draws the parts of one topology."""

    draw: Callable[..., Any]
    partitions: Mapping[str, int]
    sinks: list[Sink] = field(default_factory=list)
    comparable: dict[str, Comparable] = field(default_factory=dict)
    any_order: bool = True
    idles: bool = True
    by_key: bool = False
    names: int = 0

    def one_of(self, *options: Any) -> Any:
        """One of the options."""
        return self.draw(st.sampled_from(options))

    def fresh(self, prefix: str) -> str:
        """A name that no field has yet."""
        self.names += 1
        return f"{prefix}{self.names}"

    def source(self, name: str) -> Flow:
        """All records of a topic."""
        rows = stream(TOPICS[name])
        return Flow(rows=rows, topics=frozenset({name}), single=self.partitions[name] == 1)

    def keyed(self, flow: Flow) -> Flow:
        """``flow`` under a key that is a text and can be null."""
        assert isinstance(flow.rows, RecordStream)
        by = self.one_of(*(col(name) for name in flow.of_kind("string")))
        return replace(flow, rows=flow.rows.select_key(**{self.fresh("k"): by}))

    def predicate(self, flow: Flow) -> Expression:
        """A condition that can be true, false or null."""
        numbers, flags = flow.of_kind("long", "double"), flow.of_kind("boolean")
        options: list[Expression] = [col(name) > self.one_of(0, 1, 2) for name in numbers]
        options += [col(name) for name in flags]
        options += [~col(name).is_null() for name in flow.of_kind("string")]
        return self.one_of(*options)

    def aggregates(self, flow: Flow) -> dict[str, Aggregate]:
        """One to three aggregates under fresh names."""
        kinds: list[Aggregate] = [count()]
        for name in flow.of_kind("long", "double", "decimal"):
            kinds += [total(name), smallest(name), largest(name), average(name)]
        for name in flow.of_kind("long"):
            kinds += [reduce(name, lambda one, other: one + other), digits_of(name)]
        for name in flow.of_kind("string"):
            kinds += [first(name), last(name), distinct(name), distinct(name, sketch=True), letters_of(name)]
        chosen = self.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
        if flow.cogrouped:
            chosen = [one.only(col("merged_from") == self.one_of("one", "other")) for one in chosen]
        elif self.one_of(False, False, True):
            chosen[0] = chosen[0].only(self.predicate(flow))
        return {self.fresh("a"): one for one in chosen}

    def windows(self) -> Windows:
        """Windows of any kind with an end."""
        grace_ms = self.one_of(0, 5, ENOUGH_MS)
        return self.one_of(
            TimeWindows(size_ms=10, advance_ms=10, grace_ms=grace_ms),
            TimeWindows(size_ms=10, advance_ms=4, grace_ms=grace_ms),
            SlidingWindows(difference_ms=6, grace_ms=grace_ms),
            SessionWindows(gap_ms=4, grace_ms=grace_ms),
            SessionWindows(gap_ms=4, grace_ms=grace_ms, max_duration_ms=9),
        )

    def end(self, flow: Flow) -> None:
        """Write the flow to a topic of its own."""
        name = f"out-{len(self.comparable)}"
        self.comparable[name] = comparable_of(flow)
        self.any_order &= flow.any_order
        self.sinks.append(flow.rows.to(Topic(name=name, key="id")))


def digits_of(name: str) -> Aggregate:
    """The numbers as text, in the order in which they are taken: what is taken out of order shows."""
    return fold(
        name, initial=str, adder=lambda text, n: f"{text}{n},", merger=lambda one, other: one + other, returns=STRING
    )


def letters_of(name: str) -> Aggregate:
    """The texts one after the other; a reduce passes over nulls."""
    return reduce(name, lambda one, other: one + other)


# ---- steps from stream to stream


def filtered(build: Builder, flow: Flow) -> Flow:
    return replace(flow, rows=flow.rows.filter(build.predicate(flow)))


def with_field(build: Builder, flow: Flow) -> Flow:
    name = build.one_of(*flow.of_kind("long", "double", "decimal", "string"))
    kind = flow.rows.node.fields[name].kind
    options: dict[str, list[Expression]] = {
        "string": [col(name).upper(), coalesce(col(name), "none"), when(col(name) == "a", col(name), None)],
        "long": [col(name) + 1, col(name) * 2, coalesce(col(name), 7), when(col(name) > 1, col(name), 0)],
        "double": [col(name) / 2, col(name) * 2],
        "decimal": [col(name) + col(name), col(name) * 1],
    }
    return replace(flow, rows=flow.rows.with_fields(**{build.fresh("f"): build.one_of(*options[kind])}))


def selected(build: Builder, flow: Flow) -> Flow:
    """Two fields under new names, which are enough for what comes below."""
    chosen = {build.fresh("s"): col(build.one_of(*flow.of_kind("string")))}
    if numbers := flow.of_kind("long"):
        chosen[build.fresh("s")] = col(build.one_of(*numbers))
    if bounds := [name for name in (WINDOW_START, WINDOW_END) if name in flow.rows.node.fields]:
        chosen |= {name: col(name) for name in bounds}
    return replace(flow, rows=flow.rows.select(**chosen))


def rekeyed(build: Builder, flow: Flow) -> Flow:
    return build.keyed(flow)


def flat_mapped(build: Builder, flow: Flow) -> Flow:
    """As many rows as a number says."""
    text, number = build.one_of(*flow.of_kind("string")), build.one_of(*flow.of_kind("long"))
    word, n = build.fresh("w"), build.fresh("n")
    assert isinstance(flow.rows, RecordStream)

    def made(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for turn in range(min(3, abs(row[number] or 0))):
            yield {word: row[text] if turn < 2 else None, n: turn}

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
        single=flow.single and flow.topics == other.topics,
        cogrouped=is_group,
    )


def renamed(build: Builder, flow: Flow) -> Flow:
    """``flow`` under the names of no other flow, to be the right side of a join."""
    short = build.fresh("r")
    kept = [name for name in flow.rows.node.fields if name != flow.key][:4]
    return replace(flow, rows=flow.rows.select(**{short + name: col(name) for name in kept}))


def joined(build: Builder, flow: Flow) -> Flow:
    """With another stream, or with itself."""
    other = build.source(build.one_of(*STREAMS))
    if build.one_of(False, False, True):
        other = filtered(build, other)
    if build.one_of(False, False, True):
        other = windowed_final(build, build.keyed(other), tumbles=True)
    left, right = build.keyed(flow), renamed(build, build.keyed(other))
    assert isinstance(left.rows, RecordStream) and isinstance(right.rows, RecordStream)
    method = build.one_of(left.rows.join, left.rows.left_join, left.rows.outer_join)
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
    kind = build.one_of("table", "versions", "versions with grace", "made")
    assert isinstance(flow.rows, RecordStream)
    if kind == "made":
        found = build_table(build, is_current=True)
    else:
        name = "table" if kind == "table" else build.one_of(*TABLES)
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
    rows = method(right.rows, grace=f"{ENOUGH_MS} ms" if waits else None, by=by)
    return replace(
        flow,
        rows=rows,
        topics=flow.topics,
        in_order=flow.in_order and not waits,
        any_order=flow.any_order and waits,
        has_bounds=flow.has_bounds,
    )


def deduplicated(build: Builder, flow: Flow) -> Flow:
    """By the record's key (the first by offset), or by a field (the first by event time)."""
    assert isinstance(flow.rows, RecordStream)
    by_key = KEY in flow.rows.node.fields and build.one_of(True, False)
    by = KEY if by_key else build.one_of(*flow.of_kind("string"))
    rows = flow.rows.deduplicate(by, horizon=build.one_of("0 ms", "9 ms", f"{ENOUGH_MS} ms"))
    at_once = rows.node.partitioned  # type: ignore[union-attr]
    build.idles &= at_once
    return replace(
        flow,
        rows=rows,
        in_order=flow.in_order and at_once,
        any_order=flow.any_order and (not at_once or flow.single),
    )


def processed(build: Builder, flow: Flow) -> Flow:
    """Counts the records of a key and reminds of it; its keys live in one partition."""
    assert isinstance(flow.rows, RecordStream)
    text, what = build.one_of(*flow.of_kind("string")), build.fresh("p")
    nth = build.fresh("n")

    def on_record(row: Mapping[str, Any], state: KeyState) -> Iterator[dict[str, Any]]:
        state.remembered["n"] = state.remembered.get("n", 0) + 1
        if state.remembered["n"] % 2:
            state.schedule(state.timestamp_ms + 7)
        yield {what: row[text], nth: state.remembered["n"]}

    def on_timer(at_ms: int, state: KeyState) -> Iterator[dict[str, Any]]:
        yield {what: "timer", nth: state.remembered["n"] + at_ms}

    timed = build.one_of(True, False)
    build.idles &= not timed
    build.by_key |= not flow.single
    rows = flow.rows.process(on_record, on_timer=on_timer if timed else None, **{what: STRING, nth: LONG})
    return replace(flow, rows=rows, in_order=flow.in_order and not timed, behind=timed)


def windowed_final(build: Builder, flow: Flow, *, tumbles: bool = False) -> Flow:
    """Final results; those of sessions can be withdrawn, those over revised rows too."""
    windows = TimeWindows(size_ms=10, advance_ms=10, grace_ms=build.one_of(0, 5)) if tumbles else build.windows()
    table = windowed(build, flow, windows)
    revised = isinstance(windows, SessionWindows) or flow.exactness == "revised" or flow.behind
    return replace(
        flow,
        rows=table.emit_final(),
        in_order=False,
        exactness="revised" if revised else "rows",
        has_bounds=True,
        cogrouped=False,
    )


def windowed(build: Builder, flow: Flow, windows: Windows) -> WindowedTable:
    assert isinstance(flow.rows, RecordStream)
    return flow.rows.windowed_by(windows).aggregate(
        **build.aggregates(flow), **{build.fresh("a"): last(flow.of_kind("string")[0])}
    )


def windowed_otherwise(build: Builder, flow: Flow) -> Flow:
    """Every update, the last of each batch, or after a limit."""
    windows = build.one_of(build.windows(), all_time(), last_n(2))
    bounded = windows not in (all_time(), last_n(2))
    table = windowed(build, flow, windows)
    kind = build.one_of("each batch", "each record", "after")
    after: dict[str, Any] = {"has_bounds": bounded, "in_order": False, "cogrouped": False}
    if kind == "each record" and flow.in_order and flow.exactness == "rows":
        return replace(flow, rows=table.emit_each_record(), any_order=False, **{**after, "in_order": True})
    if kind == "after" and flow.exactness == "rows":
        build.idles = False
        held = table.emit_after(build.one_of("1 ms", "20 ms"), max_rows=build.one_of(None, 2))
        return replace(flow, rows=held, exactness="latest", **after)
    return replace(flow, rows=table.emit_each_batch(), exactness="revised" if bounded else "latest", **after)


def aggregated(build: Builder, flow: Flow) -> Flow:
    """One row per key over all time, an update with every record."""
    assert isinstance(flow.rows, RecordStream)
    rows = flow.rows.aggregate(**build.aggregates(flow), **{build.fresh("a"): last(flow.of_kind("string")[0])})
    exact = flow.in_order and flow.exactness == "rows"
    return replace(
        flow,
        rows=rows,
        exactness="rows" if exact else "latest",
        any_order=flow.any_order and not exact,
        cogrouped=False,
    )


# ---- tables


def table_of(build: Builder, name: str, *, versioned: bool | None = None) -> Flow:
    """A topic read as a table, by its own key or by a field."""
    flow = build.source(name)
    if build.one_of(True, False):
        flow = build.keyed(flow)
    assert isinstance(flow.rows, RecordStream)
    versioned = name == "versions" if versioned is None else versioned
    return replace(flow, rows=flow.rows.to_table(versioned=versioned), any_order=False)


def table_filtered(build: Builder, flow: Flow) -> Flow:
    assert isinstance(flow.rows, Table)
    return replace(flow, rows=flow.rows.filter(build.predicate(flow)))


def table_joined(build: Builder, flow: Flow) -> Flow:
    """Two tables under keys that are texts."""
    other = table_of(build, build.one_of(*TABLES))
    if build.one_of(False, True):
        other = table_filtered(build, other)
    right = renamed(build, other)
    assert isinstance(flow.rows, Table) and isinstance(right.rows, Table)
    method = build.one_of(flow.rows.join, flow.rows.left_join, flow.rows.outer_join)
    return replace(
        flow,
        rows=method(right.rows),
        topics=flow.topics | right.topics,
        exactness="latest",
        with_times=False,
        in_order=False,
    )


def grouped(build: Builder, flow: Flow) -> Flow:
    """The rows of a table by another key."""
    assert isinstance(flow.rows, Table)
    by = build.one_of(*flow.of_kind("string"))
    groups = flow.rows.group_by(**{build.fresh("g"): col(by)})
    aggregates = {**build.aggregates(flow), build.fresh("a"): last(by)}
    return replace(flow, rows=groups.aggregate(**aggregates), exactness="latest", in_order=False)


def held_table(build: Builder, flow: Flow) -> Flow:
    assert isinstance(flow.rows, Table)
    return replace(flow, rows=flow.rows.emit_after("20 ms"), exactness="latest", in_order=False)


def aggregated_table(build: Builder) -> Flow:
    """A stream's totals as a table."""
    return aggregated(build, build.keyed(build.source(build.one_of(*TABLES))))


def tabled_finals(build: Builder) -> Flow:
    """The final results of a stream's windows as a table: the window that closed last holds."""
    flow = windowed_final(build, build.keyed(build.source(build.one_of(*TABLES))), tumbles=True)
    assert isinstance(flow.rows, RecordStream)
    return replace(flow, rows=flow.rows.to_table(), any_order=False, has_bounds=False, in_order=False)


def build_table(build: Builder, *, is_current: bool = False) -> Flow:
    """A table that up to two operators have made; ``is_current``: none that holds changes back."""
    made: Callable[[], Flow] = build.one_of(
        lambda: table_of(build, build.one_of(*TABLES)), lambda: aggregated_table(build), lambda: tabled_finals(build)
    )
    flow = made()
    for _ in range(build.one_of(0, 1, 1, 2)):
        steps = [step for step in table_steps(flow) if not (is_current and step is held_table)]
        flow = build.one_of(*steps)(build, flow)
    return flow


Step = Callable[[Builder, Flow], Flow]


def table_steps(flow: Flow) -> list[Step]:
    """What can come after a table."""
    steps: list[Step] = [with_field, selected, table_filtered, table_joined]
    if flow.exactness == "rows" and flow.with_times:
        steps += [grouped, held_table]
    return steps


def stream_steps(build: Builder, flow: Flow) -> list[Step]:
    """What can come after a stream without its rows depending on batches."""
    keyed_by_text = flow.rows.node.fields[flow.key] == STRING
    if flow.exactness == "latest":
        return [with_field]
    if flow.exactness == "revised":
        return [with_field, windowed_final, windowed_final, windowed_otherwise]
    steps: list[Step] = [filtered, with_field, selected, rekeyed, passed_by, through, branched, merged]
    steps += [joined, joined, looked_up, looked_up, deduplicated, deduplicated]
    steps += [windowed_final, windowed_final, windowed_final, windowed_otherwise, windowed_otherwise]
    if flow.of_kind("long"):
        steps.append(flat_mapped)
    if flow.in_order and (flow.single or flow.key == KEY) and len(flow.topics) == 1 and keyed_by_text:
        steps += [processed] * 3
    if flow.in_order:
        steps += [aggregated, tabled]
    return steps


def tabled(build: Builder, flow: Flow) -> Flow:
    """The stream read as a table."""
    assert isinstance(flow.rows, RecordStream)
    return replace(flow, rows=flow.rows.to_table(versioned=build.one_of(True, False)), any_order=False)


def stream_chain(build: Builder) -> Flow:
    """One to four operators after a topic."""
    flow = build.source(build.one_of(*STREAMS))
    if build.one_of(True, False):
        flow = build.keyed(flow)
    for _ in range(build.draw(st.integers(1, 4))):
        steps = stream_steps(build, flow) if isinstance(flow.rows, RecordStream) else table_steps(flow)
        step = build.one_of(*steps)
        # what was made of a result that is revised later stands beside what is made of its revision
        build.idles &= not flow.has_bounds or step in (with_field, selected, passed_by, through)
        flow = step(build, flow)
    return flow


@st.composite
def drawn_topologies(draw: Callable[..., Any]) -> Drawn:
    """A topology with one or two chains, and the partitions of its topics."""
    partitions = {name: draw(st.sampled_from([1, 1, 2, 3] if name in STREAMS else [1, 2])) for name in TOPICS}
    build = Builder(draw, partitions)
    for chain in draw(st.lists(st.sampled_from([stream_chain, stream_chain, build_table]), min_size=1, max_size=2)):
        build.end(chain(build))
    topology = Topology(name="drawn", sinks=build.sinks, idle_after="60 s")
    read = {source.topic.name for source in topology.sources}
    return Drawn(
        topology=topology,
        partitions={name: count for name, count in partitions.items() if name in read},
        sinks=build.comparable,
        any_order=build.any_order,
        idles=build.idles,
        by_key=build.by_key,
    )
