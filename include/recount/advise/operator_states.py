"""Formulas of each kind of operator: the rows that leave it, and the state that it keeps.

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

    def beside(self, other: Kept, *, changed: float) -> Kept:
        """Both together; a batch writes ``changed`` rows of them."""
        return Kept(
            rows=self.rows + other.rows,
            changed=changed,
            grows_per_s=self.grows_per_s + other.grows_per_s,
            formula=f"{self.formula}, {other.formula}",
        )


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
    formula = f"{counted(per_s)} {what}/s, kept for ever{why}"
    return Kept(rows=0.0, changed=per_s * inflow.trigger_ms / 1_000, grows_per_s=per_s, formula=formula)


def one_per_key(arrivals: Arrivals, inflow: Inflow, what: str) -> Kept:
    """A row for each key that has ever spoken: it grows as long as new keys come."""
    if math.isinf(arrivals.keys):
        return lasting(arrivals.per_s, inflow, f"{what}, of a new key each")
    formula = f"{counted(arrivals.keys)} {what}, kept for ever: grows with new keys"
    return Kept(rows=arrivals.keys, changed=arrivals.keys_within(inflow.trigger_ms), formula=formula)


def leaving_per_s(node: Node, inputs: tuple[Arrivals, ...], trigger_ms: int) -> float:
    """How many rows a second leave ``node``, which is no source; filters and processors let every record pass."""
    match node:
        case WindowedAggregate():
            return _results_per_s(node, inputs[0], trigger_ms)
        case StreamStreamJoin():
            alone = {"inner": 0.0, "left": inputs[0].per_s, "outer": inputs[0].per_s + inputs[1].per_s}[node.kind]
            return max(pairs_per_s(node, *inputs), alone)
        case StreamTableJoin():
            return inputs[0].per_s
        case TableAggregate():
            return 2 * inputs[0].per_s
        case Suppress(limit_ms=pause_ms) | Deduplicate(horizon_ms=pause_ms):
            return inputs[0].firsts_per_s(pause_ms)
    return sum(above.per_s for above in inputs)


def _results_per_s(node: WindowedAggregate, rows: Arrivals, trigger_ms: int) -> float:
    """A record changes, of sliding windows, its own and those after the records that lie in the difference."""
    final, of_a_record = rows.per_s, 1.0
    match node.windows:
        case TimeWindows(size_ms=size_ms, advance_ms=advance_ms) as windows:
            if node.emission.kind == "each batch":
                return changed_windows(windows, rows, trigger_ms) * 1_000 / trigger_ms
            final = rows.keys_within(size_ms) * 1_000 / advance_ms
            of_a_record = size_ms / advance_ms
        case SlidingWindows(difference_ms=difference_ms):
            final = rows.per_s * (2 - rows.silence(difference_ms))
            of_a_record = 1 + rows.within(difference_ms) / rows.keys
        case SessionWindows() as windows:
            final = sessions_per_s(windows, rows)
    if node.emission.kind == "final":
        return final
    each = rows.per_s if node.emission.kind == "each record" else rows.keys_within(trigger_ms) * 1_000 / trigger_ms
    return each * of_a_record


def pairs_per_s(node: StreamStreamJoin, left: Arrivals, right: Arrivals) -> float:
    """How many pairs a join of streams makes a second.

    Each left row meets the right rows of its key in before + after: 100/s and 50/s of 1,000 keys, 60 s: 100 x 50 x 60 /
    1,000 = 300. With keys of which none comes twice on a side, each row meets one at most.
    """
    keys = max(left.keys, right.keys)
    if math.isinf(keys):
        return min(left.per_s, right.per_s)
    return left.per_s * right.within(node.before_ms + node.after_ms) / keys


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
            none = "none: the id determines the partition, so the offset decides at once"
            return Kept(rows=0, changed=0, formula=none)
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
    Windows made by records are as many as these; of time windows one key can have an update in several.
    """
    windows_of_a_key = 1.0
    if WINDOW_START in node.fields:
        above: Node = node
        while not isinstance(above, WindowedAggregate):
            above = above.inputs[0]
        span_ms, windows = node.limit_ms + inflow.behind_ms + inflow.trigger_ms, above.windows
        windows_of_a_key = math.inf
        if isinstance(windows, TimeWindows):
            windows_of_a_key = (windows.size_ms + span_ms) / windows.advance_ms
    updates = Arrivals(per_s=inflow.only.per_s, keys=inflow.only.keys * windows_of_a_key)
    firsts_per_s = updates.firsts_per_s(node.limit_ms)
    held = passing(firsts_per_s, node.limit_ms, inflow, "keys and windows with a first update")
    changed = updates.keys_within(inflow.trigger_ms) + firsts_per_s * inflow.trigger_ms / 1_000
    if node.max_rows is None:
        return replace(held, changed=changed)
    formula = f"{held.formula}, at most {node.max_rows:,}"
    return replace(held, rows=min(held.rows, node.max_rows), changed=changed, formula=formula)


def _windowed(node: WindowedAggregate, state: str, inflow: Inflow) -> Kept:
    rows, windows = inflow.only, node.windows
    if state in ("records", "results"):
        # nothing is dropped where a row can be replaced by a revision however old it is
        inflow = replace(inflow, settles=inflow.settles and not is_revised_any_time(node.input))
    match windows:
        case _ if state == "records":
            return _records(node, inflow)
        case TimeWindows():
            return time_windows(windows, inflow)
        case SlidingWindows():
            return _sliding_results(windows, inflow)
        case SessionWindows() if state == "results":
            return _session_results(node, windows, inflow)
        case SessionWindows():
            return _sessions(windows, inflow, inflow.partitions if state == "own" else 1)
    every = one_per_key(rows, inflow, "keys")
    return every if state == "results" else replace(every, records=0.0, values_per_s=rows.per_s)


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


def _sessions(windows: SessionWindows, inflow: Inflow, partitions: int = 1) -> Kept:
    """A session begins with the record that comes after more than the gap; closed ones stay until they are settled.

    So records/s times the chance that a key is silent for the gap. A session changes its bounds, and with them its
    place, with every record: it is written twice. Lateness is judged by the sessions of each of the ``partitions``, of
    which a batch writes all of a key that speaks again: more than estimated here, as keys grow old.
    """
    rows = Arrivals(per_s=inflow.only.per_s / partitions, keys=inflow.only.keys)
    begun_per_s = sessions_per_s(windows, rows)
    closed = passing(begun_per_s, windows.settles_ms(0), inflow, "sessions begun")
    is_open = rows.keys_within(windows.gap_ms)
    per_s = counted(rows.per_s)
    silence = f"{per_s} records/s x e^-({per_s}/s x {readable(windows.gap_ms)} / {counted(rows.keys)} keys)"
    each = f"; in each of {partitions} partitions" if partitions > 1 else ""
    return replace(
        closed,
        rows=(is_open + closed.rows) * partitions,
        changed=(2 * rows.keys_within(inflow.trigger_ms) + closed.changed / 2) * partitions,
        grows_per_s=closed.grows_per_s * partitions,
        formula=f"{counted(is_open)} open, {closed.formula}: {silence}{each}",
        records=rows.per_s / begun_per_s if inflow.settles and begun_per_s else 0.0,
        values_per_s=0.0 if inflow.settles else rows.per_s,
    )


def _records(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """Every single accepted record, where a window cannot be had by merging."""
    rows, span_ms = inflow.only, 0
    match node.windows:
        case LastN(n=n) if not can_be_revised(node.input) and not math.isinf(rows.keys):
            formula = f"{n} records x {counted(rows.keys)} keys, kept for ever: grows with new keys"
            return Kept(rows=n * rows.keys, changed=2 * rows.within(inflow.trigger_ms), formula=formula)
        case LastN() if not can_be_revised(node.input):
            return lasting(rows.per_s, inflow, "records, of a new key each")
        case LastN() | GlobalWindow():
            return lasting(rows.per_s, inflow, "records")
        case SlidingWindows(difference_ms=length_ms) | TimeWindows(size_ms=length_ms):
            span_ms = length_ms + node.windows.grace_ms
        case SessionWindows() as windows:
            silence, per_key_s = rows.silence(windows.gap_ms), rows.per_s / rows.keys
            # as many steps as a session has records, less one
            mean_ms = round((1 / silence - 1) * 1_000 / per_key_s) if silence and per_key_s else 0
            span_ms = windows.settles_ms(windows.max_duration_ms or mean_ms)
    return passing(rows.per_s, span_ms, inflow, "records")


def _sliding_results(windows: SlidingWindows, inflow: Inflow) -> Kept:
    """A record's own window ends with it; the one after it is there if the key speaks again within the difference.

    A batch changes, of each key that speaks in it, those windows after the records of the last difference.
    """
    rows = inflow.only
    own = passing(rows.per_s, windows.grace_ms, inflow, "windows that end with a record")
    follow_per_s = rows.per_s * (1 - rows.silence(windows.difference_ms))
    after = passing(follow_per_s, windows.difference_ms + windows.grace_ms, inflow, "windows that begin after one")
    reached = rows.keys_within(inflow.trigger_ms) * rows.within(windows.difference_ms) / rows.keys
    return own.beside(after, changed=own.changed + after.changed + reached)


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
        return held.beside(emitted, changed=held.changed + withdrawn)
    if windows.max_duration_ms is None and not can_be_revised(node.input):
        return replace(_sessions(windows, inflow), records=1.0, values_per_s=0.0)
    updates_per_s = rows.per_s if kind == "each record" else grown_per_s
    return passing(updates_per_s, windows.settles_ms(0), inflow, "updates: each has bounds of its own")
