"""The grace advisor: what each longer grace would have saved, the state and delay that it costs, and which to take."""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import polars as pl
from deltalake import DeltaTable

from recount.advise.grace_judges import (
    JUDGE,
    RECORD,
    SHORT_BY,
    Judge,
    attributed,
    judges_of,
    lengthened,
    saved,
    shortfalls,
)
from recount.advise.state_estimate import operator_estimates
from recount.advise.workload import NEWEST_BATCHES, Workload, event_rates
from recount.certificate.finding import MAX_LATE_NAMED
from recount.declare.columns import AUDIT
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology
from recount.runtime.times import readable
from recount.serve.answer import Moment, reading
from recount.tables.batch_proofs import MISSES, Proofs, complete_audits, earlier, released
from recount.tables.places import Tables

_ROW = ["sink", "key", WINDOW_START, WINDOW_END, "origin"]
"""By what a grace miss is known from audit to audit."""
_NUMBER, _LATE = "__miss", "late"
_PLACE = r"^(?<topic>.+)-(?<partition>\d+)@(?<offset>\d+) \+(?<margin_ms>\d+) ms$"
"""How a miss names a late record."""
_SHARES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_ROUND = [
    *(number * unit for unit in (1, 10, 100) for number in (1, 2, 5)),
    *(number * _S for number in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(number * _MIN for number in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)),
    *(number * _H for number in (1, 2, 3, 4, 6, 8, 12, 18)),
    _DAY,
]


def advice(
    tables: Tables, topology: Topology, given: Workload, now_ms: int, *, measures_rates: bool = True
) -> dict[str, Any]:
    """The advice for the stream ``topology`` from its ``tables``; raises ``Transient`` where a file goes meanwhile.

    The state is the estimate of what all operators keep at most, with the grace of now and with each longer one, for
    the workload ``given``, with the rates that the stream has measured in the place of those given if it
    ``measures_rates``. ``as_of`` is a batch; where there is none yet ``not_ready`` says so.

    Late records that came before ``counted_since_ms``, by the stream time of their partition, may have been removed by
    retention; None: all are counted. ``unattributed`` rows of the late ledger could be of several operators, or of none
    as it is declared now; ``not_by_grace`` are by operator those that were judged by another time than a grace. Of
    ``misses_untold`` of the ``misses`` that ``audits`` found the tables do not say what would have saved them.
    """
    with reading(topology.name):
        name = topology.name
        moment = Moment.of(tables, name, None, now_ms)
        if isinstance(moment, str):
            return _said(topology, given, not_ready=moment)
        if measures_rates:
            newest = Proofs(state=tables.state(name), moved_to=tables.ledger(name)).newest_first()
            given = replace(given, rates=event_rates([entry.proof for entry in islice(newest, NEWEST_BATCHES)]))
        judges = judges_of(topology)
        # one that is being written may have its rows there already
        generation, batch = moment.order
        rows = attributed(pl.scan_delta(DeltaTable(tables.late(name))).filter(earlier((generation, batch + 1))), judges)
        audits, misses, of_audits = _audited_misses(tables, name, rows)
        counts = dict(rows.group_by(JUDGE).len().collect().iter_rows())
        others: Counter[str] = Counter()
        operators = []
        for place, judge in enumerate(judges):
            if judge.grace_ms is None:
                others[str(judge.nodes[0])] += counts.get(place, 0)
            else:
                records, results = shortfalls(rows, place, judge)
                of_judge = of_audits.get(place, pl.Series(dtype=pl.Int64()))
                operators.append(_of_operator(judge, judge.grace_ms, records, results, of_judge, given))
        gone = None if topology.retention_ms is None else released(tables.root, name)
        return _said(
            topology,
            given,
            as_of=moment.document,
            counted_since_ms=None if gone is None else gone.before_ms,
            operators=operators,
            unattributed=counts.get(None, 0),
            not_by_grace=dict(others),
            audits=audits,
            misses=misses,
            misses_untold=misses - sum(map(len, of_audits.values())),
        )


def _said(topology: Topology, given: Workload, **found: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "as_of": None,
        "not_ready": None,
        "counted_since_ms": None,
        "operators": [],
        "not_by_grace": {},
    }
    counts = dict.fromkeys(("unattributed", "audits", "misses", "misses_untold"), 0)
    known = {"version": 1, "stream": topology.name, "state": state_in_all(topology, given), "assumed": given.document}
    return {**known, **nothing, **counts, **found}


def state_in_all(topology: Topology, given: Workload) -> dict[str, float]:
    """The estimate of what all operators keep, at most."""
    states = [state for one in operator_estimates(topology, given) for state in one.states]
    return {"rows": sum(state.kept.rows for state in states), "bytes": sum(state.bytes for state in states)}


def _of_operator(
    judge: Judge, grace_ms: int, records: pl.Series, results: pl.Series | None, of_audits: pl.Series, given: Workload
) -> dict[str, Any]:
    """Advice on operators that the late ledger cannot separate.

    ``records`` were late for it, and ``results`` lack some of them. ``waits_ms`` is how far behind the frontier results
    are now, at most; what waits for time to pass leaves ``delay_ms`` of event time later.
    """
    counted, waits_ms = (records, "late records") if results is None else (results, "results"), judge.waits_ms
    steps = steps_of_grace(counted[0].to_list(), waits_ms)
    added_ms, reason = recommended(*counted, steps, waits_ms=waits_ms, grace_ms=grace_ms)
    return {
        "numbers": list(judge.numbers),
        "titles": list(map(str, judge.nodes)),
        "grace_ms": grace_ms,
        "waits_ms": waits_ms,
        "records": len(records),
        "results": None if results is None else len(results),
        "steps": [
            {
                "added_ms": step,
                "records": saved(records, step),
                "results": None if results is None else saved(results, step),
                "misses": saved(of_audits, step),
                "state": state_in_all(lengthened(judge.topology, judge.nodes, step), given),
                "delay_ms": step if judge.delays else 0,
            }
            for step in steps
        ],
        "recommendation": {"added_ms": added_ms, "reason": reason},
        "notes": judge.notes,
    }


def recommended(
    short_by: pl.Series, what: str, steps: Sequence[int], *, waits_ms: int, grace_ms: int
) -> tuple[int, str]:
    """The longest of ``steps`` worth its delay, and why; 0: the grace stays.

    It does not more than double ``waits_ms``, how long results wait for late records now, and saves half at least.
    ``short_by`` is of each of ``what`` (``results``, ``records``) what the grace ``grace_ms`` was short by, rising.
    What a step does not save is left to backfills.

    Windows of 5 min with a grace of 5 s, 90 of 100 results short by at most 2 min, the others by 3 h: + 2 min.
    """
    count = len(short_by)
    if not count:
        return 0, "no record was late: nothing asks for a longer grace"
    worth = [step for step in steps if step <= waits_ms]
    # of steps that save the same the shortest
    best = max(worth, key=lambda step: (saved(short_by, step), -step), default=0)
    kept = saved(short_by, best)
    far = f"up to {readable(rounded_up(short_by[-1]))} more"
    if 2 * kept < count:
        waits = readable(waits_ms)
        return 0, (
            f"{count - kept:,} of {count:,} {what} need more than {waits} more, {far}: that would more than"
            f" double the {waits} for which results wait now; leave them to backfills"
        )
    rest = f"the other {count - kept:,} need {far}: leave them to backfills" if kept < count else "none is left"
    saves = f"saves {kept:,} of {count:,} {what} ({share(kept, count)})"
    return best, f"a grace of {readable(grace_ms + best)} {saves}; {rest}"


def share(part: int, whole: int) -> str:
    """In per cent, rounded down: 999 of 1,000 are 99 %, not all."""
    return f"{100 * part // whole} %"


def steps_of_grace(short_by_ms: Sequence[int], limit_ms: int) -> list[int]:
    """Additions, rising, that save 10, 25, 50, 75, 90, 95, 99 and 100 % at least; ``short_by_ms`` rises.

    Each is rounded up to what a person would write: 1,001 ms and 117,000 ms to 2 s and 2 min. ``limit_ms`` is one of
    them where it saves some that the steps below it do not.
    """
    count = len(short_by_ms)
    if not count:
        return []
    steps = {rounded_up(short_by_ms[math.ceil(share * count) - 1]) for share in _SHARES}
    below = max((step for step in steps if step <= limit_ms), default=0)
    if bisect_right(short_by_ms, below) < bisect_right(short_by_ms, limit_ms):
        steps.add(limit_ms)
    return sorted(steps)


def rounded_up(ms: int) -> int:
    """The next round duration: of days whole ones."""
    place = bisect_left(_ROUND, ms)
    return _ROUND[place] if place < len(_ROUND) else -(-ms // _DAY) * _DAY


def _audited_misses(tables: Tables, stream: str, rows: pl.LazyFrame) -> tuple[int, int, Mapping[int, pl.Series]]:
    """How many audits were complete, how many misses they found, and by judge (its place) what the grace was short by.

    Each miss counts once, as the newest audit that names it says; ``rows`` are the late ledger, ``attributed``. What
    the grace was short by is known, rising, of each miss that a longer grace of that operator alone would have saved.
    Of the others the tables do not say: they have more late records than an audit names, or such as have left the late
    ledger, or of several operators; or changes of tables made them.
    """
    audits = {one["audit"]: number for number, one in enumerate(complete_audits(tables.root, stream))}
    path = tables.audit(stream, MISSES)
    if not audits or not DeltaTable.is_deltatable(path):
        return len(audits), 0, {}
    known = pl.scan_delta(path).filter(pl.col(AUDIT).is_in(list(audits)))
    newest_first = known.sort(pl.col(AUDIT).replace_strict(audits, return_dtype=pl.Int64), descending=True)
    each = newest_first.unique(_ROW, keep="first", maintain_order=True).with_row_index(_NUMBER)
    misses = each.select(_NUMBER, "late_records", _LATE, pl.col(_LATE).list.len().alias("named")).collect()
    named = misses.lazy().explode(_LATE).with_columns(pl.col(_LATE).str.extract_groups(_PLACE)).unnest(_LATE)
    typed = named.with_columns(pl.col("partition").cast(pl.Int32), pl.col("offset", "margin_ms").cast(pl.Int64))
    judged = typed.join(rows.select(*RECORD, "margin_ms", JUDGE, SHORT_BY), on=[*RECORD, "margin_ms"], how="left")
    is_told = (
        (pl.col("late_records").first() <= pl.col("named").first())
        & (pl.col("named").first() < MAX_LATE_NAMED)
        & pl.col(JUDGE).is_not_null().all()
        & (pl.col(JUDGE).n_unique() == 1)
    )
    told = judged.group_by(_NUMBER).agg(is_told.alias("is_told"), pl.col(JUDGE).first(), pl.col(SHORT_BY).max())
    known_of = told.filter("is_told").sort(SHORT_BY).collect().partition_by(JUDGE, as_dict=True)
    return len(audits), misses.height, {int(place): part[SHORT_BY] for (place,), part in known_of.items()}
