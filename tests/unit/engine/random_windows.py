"""Random aggregations of streams: windows of every kind, by every emission."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.engine.random_flows import Builder, Flow, may_raise, raising_at_two

from recount.declare.aggregates import Aggregate, last
from recount.declare.flow import RecordStream, WindowedTable
from recount.declare.operators.placement import can_be_withdrawn
from recount.declare.windows import GlobalWindow, TimeWindows, Windows, all_time, last_n


def windowed_final(build: Builder, flow: Flow, *, tumbles: bool = False) -> Flow:
    """Final results; those of sessions can be withdrawn, those over revised rows too."""
    windows = TimeWindows(size_ms=10, advance_ms=10, grace_ms=build.one_of(0, 5)) if tumbles else build.windows()
    merged = isinstance(windows, TimeWindows) or getattr(windows, "max_duration_ms", 0) is None
    rows = windowed(build, flow, windows, (type(windows),) if merged else ()).emit_final()
    revised = flow.exactness == "revised" or flow.behind or can_be_withdrawn(rows.node)
    return replace(flow, rows=rows, in_order=False, exactness="revised" if revised else "rows", has_bounds=True)


def windowed(
    build: Builder, flow: Flow, windows: Windows, raising: tuple[type[Windows], ...] = (TimeWindows, GlobalWindow)
) -> WindowedTable:
    """Windows of the kinds ``raising`` may have folds that raise."""
    assert isinstance(flow.rows, RecordStream)
    made = aggregates(build, flow, raises=isinstance(windows, raising))
    return flow.rows.windowed_by(windows).aggregate(**made, **{build.fresh("a"): last(flow.of_kind("string")[0])})


def aggregates(build: Builder, flow: Flow, *, raises: bool) -> dict[str, Aggregate]:
    """Of a key in several partitions no reduce raises: there it can do so for a value that was the first of its own."""
    made = build.aggregates(flow)
    if not (raises and may_raise(flow.rows.node) and build.raises()):
        return made
    return {name: raising_at_two(one) if one.kind == "fold" or flow.single else one for name, one in made.items()}


def windowed_otherwise(build: Builder, flow: Flow) -> Flow:
    """Every update, the last of each batch, or after a limit."""
    windows = build.one_of(build.windows(), all_time(), last_n(2))
    bounded = windows not in (all_time(), last_n(2))
    table = windowed(build, flow, windows)
    kind = build.one_of("each batch", "each record", "after")
    after: dict[str, Any] = {"has_bounds": bounded, "in_order": False}
    if kind == "each record" and flow.in_order and flow.exactness == "rows":
        return replace(
            flow,
            rows=table.emit_each_record(),
            any_order=flow.any_order and flow.by_time,
            **{**after, "in_order": True, "behind": flow.behind or not bounded},
        )
    if kind == "after" and flow.exactness == "rows":
        build.idles = False
        held = table.emit_after(build.one_of("1 ms", "20 ms"), max_rows=build.one_of(None, 2))
        return replace(flow, rows=held, exactness="latest", **after)
    return replace(flow, rows=table.emit_each_batch(), exactness="revised" if bounded else "latest", **after)


def aggregated(build: Builder, flow: Flow) -> Flow:
    """One row per key over all time, an update with every record."""
    assert isinstance(flow.rows, RecordStream)
    rows = flow.rows.aggregate(
        **aggregates(build, flow, raises=True), **{build.fresh("a"): last(flow.of_kind("string")[0])}
    )
    exact = flow.in_order and flow.exactness == "rows"
    return replace(
        flow,
        rows=rows,
        exactness="rows" if exact else "latest",
        any_order=flow.any_order and (flow.by_time or not exact),
        behind=True,
    )
