"""Random tables: read from topics, totals and final results, filtered, joined, grouped, held back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.unit.engine.random_flows import TABLES, Builder, Flow
from tests.unit.engine.random_windows import aggregated, windowed_final

from recount.declare.aggregates import last
from recount.declare.expressions import Expression, coalesce, col, when
from recount.declare.flow import RecordStream, Table
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START

Step = Callable[[Builder, Flow], Flow]


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


def renamed(build: Builder, flow: Flow) -> Flow:
    """``flow`` under the names of no other flow, to be the right side of a join."""
    short = build.fresh("r")
    kept = [name for name in flow.rows.node.fields if name != flow.key][:4]
    return replace(flow, rows=flow.rows.select(**{short + name: col(name) for name in kept}))


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
    build.idles = False
    # a row of the table is about a key: a sink that finds bounds in it would take it for a window's
    kept = [name for name in flow.rows.node.fields if name not in (flow.key, WINDOW_START, WINDOW_END)]
    return replace(flow, rows=flow.rows.select(*kept).to_table(), any_order=False, has_bounds=False, in_order=False)


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


def table_steps(flow: Flow) -> list[Step]:
    """What can come after a table."""
    steps: list[Step] = [with_field, selected, table_filtered, table_joined]
    if flow.exactness == "rows" and flow.with_times:
        steps += [grouped, held_table]
    return steps
