"""State of windowed aggregations, by the kind of window; the formulas for what ``operators/windowed.py`` keeps."""

from __future__ import annotations

import math
from dataclasses import replace

from recount.core.durations import readable
from recount.core.nodes import WindowedAggregate
from recount.core.revisions import can_be_revised
from recount.core.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.spark.estimates.amounts import counted
from recount.spark.estimates.arrivals import Arrivals, Inflow
from recount.spark.estimates.kept import Kept, behind, lasting, one_per_key, passing
from recount.spark.operators.settling import is_revised_any_time


def merged_windows(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """One accumulator per key and window (state ``windows``)."""
    rows = inflow.only
    match node.windows:
        case TimeWindows() as windows:
            return time_windows(windows, inflow)
        case GlobalWindow():
            return replace(one_per_key(rows, inflow, "keys"), records=0.0, values_per_s=rows.per_s)
        case SessionWindows() as windows:
            return _sessions(windows, rows, inflow)
    raise AssertionError(node)


def time_windows(windows: TimeWindows, inflow: Inflow) -> Kept:
    """The windows open at once, each with the keys that speak in it.

    A window that starts at s is kept until time has passed s + size + grace, so that at one moment those are there
    that start in a stretch of size + grace: at most ceil((size + grace) / advance), and besides those that a batch
    opens before it drops others. Size 5 min, grace 1 min: ceil(6 / 5) + 1 = 3 for each key.
    """
    rows, advance_ms = inflow.only, windows.advance_ms
    keys, per_record = rows.keys_within(windows.size_ms), windows.size_ms / advance_ms
    opened_per_s = keys * 1_000 / advance_ms
    if not inflow.settles:
        kept = lasting(opened_per_s, inflow, "windows")
        return replace(kept, records=0.0, values_per_s=rows.per_s * per_record)
    parts = " + ".join([readable(windows.size_ms), readable(windows.grace_ms), *behind(inflow)])
    stretch_ms = windows.size_ms + windows.grace_ms + inflow.behind_ms
    at_once, opened = math.ceil(stretch_ms / advance_ms), math.ceil(inflow.trigger_ms / advance_ms)
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


def own_sessions(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """The bounds of each partition's own sessions, by which lateness is judged (state ``own``).

    Of a key that speaks a batch writes all of them again: more than estimated here, as keys grow old.
    """
    assert isinstance(node.windows, SessionWindows), node
    kept = _sessions(node.windows, inflow.only.spread_over(inflow.partitions), inflow)
    partitions = inflow.partitions
    return replace(
        kept,
        rows=kept.rows * partitions,
        changed=kept.changed * partitions,
        grows_per_s=kept.grows_per_s * partitions,
        formula=kept.formula + (f"; in each of {partitions} partitions" if partitions > 1 else ""),
    )


def kept_records(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """Every single accepted record (state ``records``), where a window cannot be had by merging."""
    rows = inflow.only
    match node.windows:
        case LastN(n=n) if not can_be_revised(node.input):
            if math.isinf(rows.keys):
                return lasting(rows.per_s, inflow, "records, of a new key each")
            return Kept(
                rows=n * rows.keys,
                changed=2 * rows.within(inflow.trigger_ms),
                formula=f"{n} records x {counted(rows.keys)} keys, kept for ever: grows with new keys",
            )
        case SlidingWindows() as windows:
            return passing(rows.per_s, windows.difference_ms + windows.grace_ms, _settling(node, inflow), "records")
        case TimeWindows() as windows:
            return passing(rows.per_s, windows.size_ms + windows.grace_ms, _settling(node, inflow), "records")
        case SessionWindows() as windows:
            span_ms = windows.settles_ms(windows.max_duration_ms or _mean_length_ms(windows, rows))
            return passing(rows.per_s, span_ms, _settling(node, inflow), "records")
    return lasting(rows.per_s, inflow, "records")


def results(node: WindowedAggregate, inflow: Inflow) -> Kept:
    """What is known of each result: its revision, and whether it is held back (state ``results``)."""
    rows = inflow.only
    dropped = _settling(node, inflow)
    match node.windows:
        case TimeWindows() as windows:
            return time_windows(windows, dropped)
        case SlidingWindows() as windows:
            return _sliding_results(windows, dropped)
        case SessionWindows() as windows:
            return _session_results(node, windows, dropped)
    return one_per_key(rows, inflow, "keys")


def _settling(node: WindowedAggregate, inflow: Inflow) -> Inflow:
    """Nothing is dropped where a row can be replaced by a revision however old it is."""
    return replace(inflow, settles=inflow.settles and not is_revised_any_time(node.input))


def _sliding_results(windows: SlidingWindows, inflow: Inflow) -> Kept:
    """A record's own window ends with it; the one after it is there if the key speaks again within the difference.

    A batch changes, of each key that speaks in it, those windows after the records of the last difference.
    """
    rows = inflow.only
    own = passing(rows.per_s, windows.grace_ms, inflow, "windows that end with a record")
    follow_per_s = rows.per_s * (1 - rows.silence(windows.difference_ms))
    after = passing(follow_per_s, windows.difference_ms + windows.grace_ms, inflow, "windows that begin after one")
    reached = rows.keys_within(inflow.trigger_ms) * rows.within(windows.difference_ms) / rows.keys
    return Kept(
        rows=own.rows + after.rows,
        changed=own.changed + after.changed + reached,
        grows_per_s=own.grows_per_s + after.grows_per_s,
        formula=f"{own.formula}, {after.formula}",
    )


def _session_results(node: WindowedAggregate, windows: SessionWindows, inflow: Inflow) -> Kept:
    """A session that grows is another result: one is withdrawn, one comes.

    What was withdrawn is dropped, unless sessions are cut or revised: then it can be there again. What was emitted is
    known until it is settled; what is held back, until it is due.
    """
    rows, kind = inflow.only, node.emission.kind
    begun_per_s = sessions_per_s(windows, rows)
    grown_per_s = rows.keys_within(inflow.trigger_ms) * 1_000 / inflow.trigger_ms
    if kind != "final":
        updates_per_s = rows.per_s if kind == "each record" else grown_per_s
        if windows.max_duration_ms is None and not can_be_revised(node.input):
            return replace(_sessions(windows, rows, inflow), records=1.0, values_per_s=0.0)
        return passing(updates_per_s, windows.settles_ms(0), inflow, "updates: each has bounds of its own")
    held = passing(grown_per_s, windows.gap_ms + windows.grace_ms, replace(inflow, settles=True), "bounds of sessions")
    emitted = passing(begun_per_s, windows.settles_ms(0), inflow, "sessions")
    withdrawn = rows.keys_within(inflow.trigger_ms) * (1 - rows.silence(windows.gap_ms))
    return Kept(
        rows=held.rows + emitted.rows,
        changed=held.changed + withdrawn,
        grows_per_s=emitted.grows_per_s,
        formula=f"{held.formula}, {emitted.formula}",
    )


def _mean_length_ms(windows: SessionWindows, rows: Arrivals) -> int:
    """From the first record of a session to its last: as many steps as it has records, less one."""
    silence, per_key_s = rows.silence(windows.gap_ms), rows.per_s / rows.keys
    return round((1 / silence - 1) * 1_000 / per_key_s) if silence and per_key_s else 0


def sessions_per_s(windows: SessionWindows, rows: Arrivals) -> float:
    """How many sessions begin a second: after a silence, or cut at the longest duration."""
    silence = rows.silence(windows.gap_ms)
    if windows.max_duration_ms is None:
        return rows.per_s * silence
    cut_per_s = rows.keys_within(windows.max_duration_ms) * 1_000 / windows.max_duration_ms
    return rows.per_s * silence + cut_per_s * (1 - silence)
