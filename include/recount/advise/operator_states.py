"""Formulas for the state of each kind of operator.

Rows of state are those that pass, those that stay, and those that each key has one of. The state of windowed
aggregations depends on the kind of window, as in ``engine.operators.batch_windows``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from recount.advise.workload import Arrivals, counted
from recount.declare.operators.event_time import can_be_revised
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import WINDOW_START, Node, WindowedAggregate
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.engine.operators.batch_joins import SWEEPS
from recount.engine.operators.windowed_state import is_revised_any_time
from recount.runtime.times import readable

CLOCK = "time of "
"""How the engine names the state in which an operator remembers how far time has come."""


@dataclass(frozen=True, kw_only=True)
class Inflow:
    """The rows at each input (over the keys of that input), and what delays the end of what is kept.

    ``behind_ms``: how far the time by which state is dropped is behind the newest row, because operators above hold
    rows back and a partition may be behind. Nothing is dropped but at the end of a batch, every ``trigger_ms``, and
    nothing ever where time never ``settles``: where rows can come from above however old they are, or revise others.
    ``partitions``: over how many of the ``source_partitions`` one key's records are spread.
    """

    inputs: tuple[Arrivals, ...]
    trigger_ms: int
    behind_ms: int = 0
    settles: bool = True
    partitions: int = 1
    source_partitions: int = 1

    @property
    def only(self) -> Arrivals:
        """The rows at the only, or the left, input."""
        return self.inputs[0]

    @property
    def behind(self) -> list[str]:
        """How far time is behind, where it is."""
        return [f"{readable(self.behind_ms)} behind"] if self.behind_ms else []


@dataclass(frozen=True, kw_only=True)
class Kept:
    """State that an operator holds once the stream has run for a while; ``formula`` says how the figures follow.

    ``rows`` at most, ``changed`` of them written by each batch. ``grows_per_s``: rows that come and are never dropped,
    beside ``rows``. ``records``: how many records are behind a row, and so the values in its lists; ``values_per_s``:
    how many values a second are added to lists for good.
    """

    rows: float
    changed: float
    formula: str
    grows_per_s: float = 0.0
    records: float = 1.0
    values_per_s: float = 0.0


def passing(per_s: float, span_ms: int, inflow: Inflow, what: str) -> Kept:
    """Rows that come and go, kept until time has passed them by ``span_ms``: as many as come in that time.

    Source: Little's law, L = lambda W (Little, Operations Research 9, 1961). 100 rows/s kept 60 s: 6,000. A row is
    written as it comes and again as it goes.
    """
    if not inflow.settles:
        return lasting(per_s, inflow, what)
    parts = " + ".join([readable(span_ms), f"{readable(inflow.trigger_ms)} a batch", *inflow.behind])
    return Kept(
        rows=per_s * (span_ms + inflow.behind_ms + inflow.trigger_ms) / 1_000,
        changed=2 * per_s * inflow.trigger_ms / 1_000,
        formula=f"{counted(per_s)} {what}/s x ({parts})",
    )


def lasting(per_s: float, inflow: Inflow, what: str) -> Kept:
    """Rows that come and stay for ever."""
    why = "" if inflow.settles else ": what comes from above can be old, or be revised"
    return Kept(
        rows=0.0,
        changed=per_s * inflow.trigger_ms / 1_000,
        grows_per_s=per_s,
        formula=f"{counted(per_s)} {what}/s, kept for ever{why}",
    )


def one_per_key(arrivals: Arrivals, inflow: Inflow, what: str) -> Kept:
    """A row for each key that has ever spoken: it grows as long as new keys come."""
    if math.isinf(arrivals.keys):
        return lasting(arrivals.per_s, inflow, f"{what}, of a new key each")
    return Kept(
        rows=arrivals.keys,
        changed=arrivals.keys_within(inflow.trigger_ms),
        formula=f"{counted(arrivals.keys)} {what}, kept for ever: grows with new keys",
    )


def kept_by(node: Node, state: str, inflow: Inflow, groups: float) -> Kept:
    """Return what the state called ``state`` of ``node`` keeps; ``groups`` are the keys that its results have."""
    rows = inflow.only
    if state.startswith(CLOCK):
        times = inflow.source_partitions + 1
        return Kept(rows=times, changed=times, formula=f"{inflow.source_partitions} partitions + 1 frontier")
    match node:
        case WindowedAggregate():
            return _windowed(node, state, inflow)
        case StreamStreamJoin():
            # while a partner can come: before + after + grace
            return passing(inflow.inputs[("left", "right").index(state)].per_s, node.delay_ms, inflow, "rows")
        case StreamTableJoin() if state == "waiting":
            return passing(rows.per_s, node.grace_ms or 0, inflow, "records")
        case StreamTableJoin():
            return _joined_table(node, inflow)
        case TableTableJoin():
            left, right = inflow.inputs
            either = Arrivals(per_s=left.per_s + right.per_s, keys=max(left.keys, right.keys))
            return one_per_key({"left": left, "right": right}.get(state, either), inflow, "keys")
        case TableAggregate():
            changes = rows if state == "rows" else Arrivals(per_s=rows.per_s, keys=groups)
            return one_per_key(changes, inflow, state)
        case ToTable() | TableFilter():
            return one_per_key(rows, inflow, "keys")
        case Suppress():
            return _held_updates(node, inflow)
        case Deduplicate() if state == "winners":
            # two horizons: nothing older can be compared with them
            return passing(rows.firsts_per_s(node.horizon_ms), 2 * node.horizon_ms, inflow, "winners")
        case Deduplicate() if node.partitioned:
            return Kept(
                rows=0, changed=0, formula="none: the id determines the partition, so the offset decides at once"
            )
        case Deduplicate(horizon_ms=span_ms) | InOrder(grace_ms=span_ms):
            return passing(rows.per_s, span_ms, inflow, "records")
        case Process():
            return one_per_key(rows, inflow, "keys that something is remembered of (its size is not counted)")
    raise AssertionError(f"no formula for the state {state!r} of {node}")


def _joined_table(node: StreamTableJoin, inflow: Inflow) -> Kept:
    """The table of a lookup: versions, or as of arrival the row of each key.

    Versions are kept for a history and up to a sixteenth more, and of each key the newest for good; with unlimited
    history all are. 10 changes/s of 100 keys, a history of 160 s: 100 + 10 x (170 s + a batch).
    """
    _, changes = inflow.inputs
    if node.as_of == "arrival":
        return one_per_key(changes, inflow, "keys")
    if node.history_ms is None or math.isinf(changes.keys):
        return lasting(changes.per_s, inflow, "versions")
    span_ms = node.history_ms + node.history_ms // SWEEPS
    passed = passing(changes.per_s, span_ms, replace(inflow, settles=True), "versions")
    formula = f"{counted(changes.keys)} keys, kept for ever, + {passed.formula}"
    return replace(passed, rows=changes.keys + passed.rows, formula=formula)


def _held_updates(node: Suppress, inflow: Inflow) -> Kept:
    """The latest update of each key and window until the limit has passed since its first one.

    1,000 updates/s of 100 keys held 60 s: each key has one held nearly always, 100. ``max_rows`` is the most there are.
    """
    span_ms = node.limit_ms + inflow.behind_ms + inflow.trigger_ms
    updates = Arrivals(per_s=inflow.only.per_s, keys=inflow.only.keys * _windows_of_a_key(node, span_ms))
    firsts_per_s = updates.firsts_per_s(node.limit_ms)
    held = passing(firsts_per_s, node.limit_ms, inflow, "keys and windows with a first update")
    most = math.inf if node.max_rows is None else node.max_rows
    return replace(
        held,
        rows=min(held.rows, most),
        changed=updates.keys_within(inflow.trigger_ms) + firsts_per_s * inflow.trigger_ms / 1_000,
        formula=held.formula + ("" if node.max_rows is None else f", at most {node.max_rows:,}"),
    )


def _windows_of_a_key(node: Node, span_ms: int) -> float:
    """Return how many windows of one key can have an update in an interval; infinite for windows made by records."""
    if WINDOW_START not in node.fields:
        return 1
    while not isinstance(node, WindowedAggregate):
        node = node.inputs[0]
    windows = node.windows
    return (windows.size_ms + span_ms) / windows.advance_ms if isinstance(windows, TimeWindows) else math.inf


def _windowed(node: WindowedAggregate, state: str, inflow: Inflow) -> Kept:
    rows = inflow.only
    if state == "own":
        return _own_sessions(node, inflow)
    if state in ("records", "results"):
        # nothing is dropped where a row can be replaced by a revision however old it is
        settling = replace(inflow, settles=inflow.settles and not is_revised_any_time(node.input))
        return _records(node, settling) if state == "records" else _results(node, settling)
    match node.windows:
        case TimeWindows() as windows:
            return time_windows(windows, inflow)
        case SessionWindows() as windows:
            return _sessions(windows, rows, inflow)
    return replace(one_per_key(rows, inflow, "keys"), records=0.0, values_per_s=rows.per_s)


def time_windows(windows: TimeWindows, inflow: Inflow) -> Kept:
    """The windows open at once, each with the keys that speak in it.

    A window that starts at s is kept until time has passed s + size + grace, so that at one moment those are there
    that start in an interval of size + grace: at most ceil((size + grace) / advance), and besides those that a batch
    opens before it drops others. Size 5 min, grace 1 min: ceil(6 / 5) + 1 = 3 for each key.
    """
    rows, advance_ms = inflow.only, windows.advance_ms
    keys = rows.keys_within(windows.size_ms)
    opened_per_s = keys * 1_000 / advance_ms
    if not inflow.settles:
        kept = lasting(opened_per_s, inflow, "windows")
        return replace(kept, records=0.0, values_per_s=rows.per_s * windows.size_ms / advance_ms)
    parts = " + ".join([readable(windows.size_ms), readable(windows.grace_ms), *inflow.behind])
    span_ms = windows.size_ms + windows.grace_ms + inflow.behind_ms
    at_once, opened = math.ceil(span_ms / advance_ms), math.ceil(inflow.trigger_ms / advance_ms)
    return Kept(
        rows=keys * (at_once + opened),
        changed=changed_windows(windows, rows, inflow.trigger_ms) + opened_per_s * inflow.trigger_ms / 1_000,
        formula=f"{counted(keys)} keys x (ceil(({parts}) / {readable(advance_ms)}) + {opened} a batch opens)",
        records=rows.within(windows.size_ms) / keys if keys else 0.0,
    )


def changed_windows(windows: TimeWindows, rows: Arrivals, span_ms: int) -> float:
    """How many windows of all keys the rows of ``span_ms`` fall into.

    A span meets the windows that start in it or less than their size before it: 5-minute windows, an hour: 13.
    """
    keys = rows.keys_within(min(span_ms, windows.size_ms))
    return keys * (windows.size_ms + span_ms) / windows.advance_ms


def sessions_per_s(windows: SessionWindows, rows: Arrivals) -> float:
    """How many sessions begin a second: after a silence, or cut at the longest duration."""
    silence = rows.silence(windows.gap_ms)
    if windows.max_duration_ms is None:
        return rows.per_s * silence
    cut_per_s = rows.keys_within(windows.max_duration_ms) * 1_000 / windows.max_duration_ms
    return rows.per_s * silence + cut_per_s * (1 - silence)


def _sessions(windows: SessionWindows, rows: Arrivals, inflow: Inflow) -> Kept:
    """A session begins with the record that comes after more than the gap; closed ones stay until they are settled.

    So records/s times the chance that a key is silent for the gap. A session changes its bounds, and with them its
    place, with every record: it is written twice.
    """
    begun_per_s = sessions_per_s(windows, rows)
    closed = passing(begun_per_s, windows.settles_ms(0), inflow, "sessions begun")
    is_open = rows.keys_within(windows.gap_ms)
    return replace(
        closed,
        rows=is_open + closed.rows,
        changed=2 * rows.keys_within(inflow.trigger_ms) + closed.changed / 2,
        formula=f"{counted(is_open)} open, {closed.formula}: {counted(rows.per_s)} records/s x "
        f"e^-({counted(rows.per_s)}/s x {readable(windows.gap_ms)} / {counted(rows.keys)} keys)",
        records=rows.per_s / begun_per_s if inflow.settles and begun_per_s else 0.0,
        values_per_s=0.0 if inflow.settles else rows.per_s,
    )


def _own_sessions(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """The bounds of each partition's own sessions, by which lateness is judged.

    Of a key that speaks a batch writes all of them again: more than estimated here, as keys grow old.
    """
    assert isinstance(node.windows, SessionWindows), node
    partitions = inflow.partitions
    spread = Arrivals(per_s=inflow.only.per_s / partitions, keys=inflow.only.keys)
    kept = _sessions(node.windows, spread, inflow)
    return replace(
        kept,
        rows=kept.rows * partitions,
        changed=kept.changed * partitions,
        grows_per_s=kept.grows_per_s * partitions,
        formula=kept.formula + (f"; in each of {partitions} partitions" if partitions > 1 else ""),
    )


def _records(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """Every single accepted record, where a window cannot be had by merging."""
    rows = inflow.only
    match node.windows:
        case LastN(n=n) if not can_be_revised(node.input) and not math.isinf(rows.keys):
            return Kept(
                rows=n * rows.keys,
                changed=2 * rows.within(inflow.trigger_ms),
                formula=f"{n} records x {counted(rows.keys)} keys, kept for ever: grows with new keys",
            )
        case LastN() if not can_be_revised(node.input):
            return lasting(rows.per_s, inflow, "records, of a new key each")
        case LastN() | GlobalWindow():
            return lasting(rows.per_s, inflow, "records")
        case SlidingWindows(difference_ms=length_ms) | TimeWindows(size_ms=length_ms):
            return passing(rows.per_s, length_ms + node.windows.grace_ms, inflow, "records")
        case SessionWindows() as windows:
            span_ms = windows.settles_ms(windows.max_duration_ms or _mean_length_ms(windows, rows))
            return passing(rows.per_s, span_ms, inflow, "records")


def _results(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """Results that are known: the revision of each, and whether it is held back."""
    match node.windows:
        case TimeWindows() as windows:
            return time_windows(windows, inflow)
        case SlidingWindows() as windows:
            return _sliding_results(windows, inflow)
        case SessionWindows() as windows:
            return _session_results(node, windows, inflow)
    return one_per_key(inflow.only, inflow, "keys")


def _sliding_results(windows: SlidingWindows, inflow: Inflow) -> Kept:
    """A record's own window ends with it; the one after it is there if the key speaks again within the difference.

    A batch changes, of each key that speaks in it, those windows after the records of the last difference.
    """
    rows = inflow.only
    own = passing(rows.per_s, windows.grace_ms, inflow, "windows that end with a record")
    follow_per_s = rows.per_s * (1 - rows.silence(windows.difference_ms))
    after = passing(follow_per_s, windows.difference_ms + windows.grace_ms, inflow, "windows that begin after one")
    reached = rows.keys_within(inflow.trigger_ms) * rows.within(windows.difference_ms) / rows.keys
    return _both(own, after, changed=own.changed + after.changed + reached)


def _session_results(node: WindowedAggregate, windows: SessionWindows, inflow: Inflow) -> Kept:
    """A session that grows is another result: one is withdrawn, one comes.

    What was withdrawn is dropped, unless sessions are cut or revised: then it can be there again. What was emitted is
    known until it is settled; what is held back, until it is due.
    """
    rows, kind = inflow.only, node.emission.kind
    grown_per_s = rows.keys_within(inflow.trigger_ms) * 1_000 / inflow.trigger_ms
    if kind == "final":
        due = replace(inflow, settles=True)
        held = passing(grown_per_s, windows.gap_ms + windows.grace_ms, due, "bounds of sessions")
        emitted = passing(sessions_per_s(windows, rows), windows.settles_ms(0), inflow, "sessions")
        withdrawn = rows.keys_within(inflow.trigger_ms) * (1 - rows.silence(windows.gap_ms))
        return _both(held, emitted, changed=held.changed + withdrawn)
    if windows.max_duration_ms is None and not can_be_revised(node.input):
        return replace(_sessions(windows, rows, inflow), records=1.0, values_per_s=0.0)
    updates_per_s = rows.per_s if kind == "each record" else grown_per_s
    return passing(updates_per_s, windows.settles_ms(0), inflow, "updates: each has bounds of its own")


def _both(one: Kept, other: Kept, *, changed: float) -> Kept:
    return Kept(
        rows=one.rows + other.rows,
        changed=changed,
        grows_per_s=one.grows_per_s + other.grows_per_s,
        formula=f"{one.formula}, {other.formula}",
    )


def _mean_length_ms(windows: SessionWindows, rows: Arrivals) -> int:
    """From the first record of a session to its last: as many steps as it has records, less one."""
    silence, per_key_s = rows.silence(windows.gap_ms), rows.per_s / rows.keys
    return round((1 / silence - 1) * 1_000 / per_key_s) if silence and per_key_s else 0
