"""The grace advisor: what each longer grace would have saved, and the state and delay that it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import polars as pl
from deltalake import DeltaTable

from recount.advise.grace_judges import (
    JUDGE,
    RECORD,
    SHORT_BY,
    Judge,
    Recommendation,
    Shortfalls,
    attributed,
    judges_of,
    lengthened,
    recommended,
    saved,
    shortfalls,
    steps_of_grace,
)
from recount.advise.state_estimate import operator_estimates
from recount.advise.workload import NEWEST_BATCHES, Workload, event_rates
from recount.certificate.finding import MAX_LATE_NAMED
from recount.declare.columns import AUDIT
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology
from recount.serve.answer import Moment, NotReady, reading
from recount.tables.batch_proofs import MISSES, Proofs, complete_audits, earlier, released
from recount.tables.places import Tables

_ROW = ["sink", "key", WINDOW_START, WINDOW_END, "origin"]
"""By what a grace miss is known from audit to audit."""
_NUMBER, _LATE = "__miss", "late"
_PLACE = r"^(?<topic>.+)-(?<partition>\d+)@(?<offset>\d+) \+(?<margin_ms>\d+) ms$"
"""How a miss names a late record."""
_UNKNOWN = pl.Series(dtype=pl.Int64())


@dataclass(frozen=True, kw_only=True)
class StateInAll:
    """The estimate of what all operators of a stream keep, at most."""

    rows: float
    bytes: float

    @classmethod
    def of(cls, topology: Topology, given: Workload) -> StateInAll:
        states = [state for one in operator_estimates(topology, given) for state in one.states]
        return cls(rows=sum(state.kept.rows for state in states), bytes=sum(state.bytes for state in states))


@dataclass(frozen=True, kw_only=True)
class LongerGrace:
    """Savings of ``added_ms`` more grace: late ``records``, ``results`` that lack such records, and ``misses``.

    ``results`` is None where the late ledger does not name them; ``misses`` are those that audits found, saved at
    least. It costs ``state``, and what waits for time to pass leaves ``delay_ms`` of event time later.
    """

    added_ms: int
    records: int
    results: int | None
    misses: int
    state: StateInAll
    delay_ms: int


@dataclass(frozen=True, kw_only=True)
class OperatorAdvice:
    """Advice on operators ``numbers`` of ``recount describe``, called ``titles``, that the late ledger cannot separate.

    ``records`` were late for it, and ``results`` lack some of them. ``waits_ms`` is how far behind the frontier results
    are now, at most. ``notes`` say what the figures do not tell.
    """

    numbers: tuple[int, ...]
    titles: tuple[str, ...]
    grace_ms: int
    waits_ms: int
    records: int
    results: int | None
    steps: tuple[LongerGrace, ...]
    recommendation: Recommendation
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The advice for ``stream``, from its tables ``as_of`` a batch; where it has none yet ``not_ready`` says so.

    Late records that came before ``counted_since_ms``, by the stream time of their partition, may have been removed by
    retention; None: all are counted. ``state`` is the estimate for the grace of now. ``unattributed`` rows of the late
    ledger could be of several operators, or of none as it is declared now; ``not_by_grace`` are by operator those that
    were judged by another time than a grace. Of ``misses_untold`` of the ``misses`` that ``audits`` found the tables do
    not say what would have saved them (``AuditedMisses``).
    """

    stream: str
    as_of: Mapping[str, Any] | None = None
    not_ready: str | None = None
    counted_since_ms: int | None = None
    given: Workload
    state: StateInAll
    operators: tuple[OperatorAdvice, ...] = ()
    unattributed: int = 0
    not_by_grace: Mapping[str, int] = field(default_factory=dict)
    audits: int = 0
    misses: int = 0
    misses_untold: int = 0

    def document(self) -> dict[str, Any]:
        """All of it as plain values."""
        said = {name: value for name, value in vars(self).items() if name != "given"}
        plain = {"state": asdict(self.state), "operators": [asdict(one) for one in self.operators]}
        return {"version": 1, **said, **plain, "assumed": self.given.document}


def advice(tables: Tables, topology: Topology, given: Workload, now_ms: int, *, measures_rates: bool = True) -> Advice:
    """The advice for the stream ``topology`` from its ``tables``; raises ``Transient`` where a file goes meanwhile.

    The state is estimated for the workload ``given``, with the rates that the stream has measured in the place of those
    given if it ``measures_rates``.
    """
    with reading(topology.name):
        return _advice(tables, topology, given, now_ms, measures_rates=measures_rates)


def _advice(tables: Tables, topology: Topology, given: Workload, now_ms: int, *, measures_rates: bool) -> Advice:
    name = topology.name
    moment = Moment.of(tables, name, None, now_ms)
    if isinstance(moment, NotReady):
        state = StateInAll.of(topology, given)
        return Advice(stream=name, not_ready=moment.reason, given=given, state=state)
    if measures_rates:
        newest = Proofs(state=tables.state(name), moved_to=tables.ledger(name)).newest_first()
        given = replace(given, rates=event_rates([entry.proof for entry in islice(newest, NEWEST_BATCHES)]))
    judges = judges_of(topology)
    # one that is being written may have its rows there already
    generation, batch = moment.order
    late = pl.scan_delta(DeltaTable(tables.late(name))).filter(earlier((generation, batch + 1)))
    rows = attributed(late, judges)
    misses = audited_misses(tables, name, rows)
    counts = dict(rows.group_by(JUDGE).len().collect().iter_rows())
    others: Counter[str] = Counter()
    operators = []
    for place, judge in enumerate(judges):
        if judge.grace_ms is None:
            others[str(judge.nodes[0])] += counts.get(place, 0)
        else:
            operators.append(
                _of_operator(judge, judge.grace_ms, shortfalls(rows, place, judge), misses.of(place), given)
            )
    gone = None if topology.retention_ms is None else released(tables.root, name)
    return Advice(
        stream=name,
        as_of=moment.document,
        counted_since_ms=None if gone is None else gone.before_ms,
        given=given,
        state=StateInAll.of(topology, given),
        operators=tuple(operators),
        unattributed=counts.get(None, 0),
        not_by_grace=dict(others),
        audits=misses.audits,
        misses=misses.found,
        misses_untold=misses.untold,
    )


def _of_operator(
    judge: Judge, grace_ms: int, found: Shortfalls, of_audits: pl.Series, given: Workload
) -> OperatorAdvice:
    steps = steps_of_grace(found.counted.to_list(), judge.waits_ms)
    what = "late records" if found.results is None else "results"
    return OperatorAdvice(
        numbers=judge.numbers,
        titles=tuple(map(str, judge.nodes)),
        grace_ms=grace_ms,
        waits_ms=judge.waits_ms,
        records=len(found.records),
        results=None if found.results is None else len(found.results),
        steps=tuple(
            LongerGrace(
                added_ms=step,
                records=saved(found.records, step),
                results=None if found.results is None else saved(found.results, step),
                misses=saved(of_audits, step),
                state=StateInAll.of(lengthened(judge.topology, judge.nodes, step), given),
                delay_ms=step if judge.delays else 0,
            )
            for step in steps
        ),
        recommendation=recommended(found.counted, steps, what=what, waits_ms=judge.waits_ms, grace_ms=grace_ms),
        notes=tuple(_notes(judge)),
    )


def _notes(judge: Judge) -> Iterator[str]:
    if judge.is_of_sessions:
        yield "at least so many: a record that is let in can prolong the session by which others are judged"
    if not judge.makes_results:
        yield "which results lack these records the late ledger does not say"
    if judge.judged_below:
        yield "what is let in here is judged again by an operator below, and can be late there"
    if len(judge.nodes) > 1:
        yield "the late ledger does not tell these operators apart: counted and lengthened together"


@dataclass(frozen=True, kw_only=True)
class AuditedMisses:
    """All grace misses of complete audits, each once, as the newest audit that names it says.

    ``short_by`` has by judge (its place) what the grace was short by, rising, for each miss that a longer grace of that
    operator alone would have saved. Of the others (``untold``) the tables do not say: they have more late records than
    an audit names, or such as have left the late ledger, or of several operators; or changes of tables made them.
    """

    found: int = 0
    audits: int = 0
    short_by: Mapping[int, pl.Series]

    @property
    def untold(self) -> int:
        return self.found - sum(len(one) for one in self.short_by.values())

    def of(self, place: int) -> pl.Series:
        """Return the misses that a longer grace of the judge at ``place`` alone would have saved."""
        return self.short_by.get(place, _UNKNOWN)


def audited_misses(tables: Tables, stream: str, rows: pl.LazyFrame) -> AuditedMisses:
    """Return the audited misses of ``stream``; ``rows`` are its late ledger, ``attributed``."""
    audits = {one["audit"]: number for number, one in enumerate(complete_audits(tables.root, stream))}
    path = tables.audit(stream, MISSES)
    if not audits or not DeltaTable.is_deltatable(path):
        return AuditedMisses(audits=len(audits), short_by={})
    misses = _each_once(pl.scan_delta(path), audits).collect()
    named = misses.lazy().explode(_LATE).with_columns(pl.col(_LATE).str.extract_groups(_PLACE)).unnest(_LATE)
    typed = named.with_columns(pl.col("partition").cast(pl.Int32), pl.col("offset", "margin_ms").cast(pl.Int64))
    each = typed.join(rows.select(*RECORD, "margin_ms", JUDGE, SHORT_BY), on=[*RECORD, "margin_ms"], how="left")
    is_told = (
        (pl.col("late_records").first() <= pl.col("named").first())
        & (pl.col("named").first() < MAX_LATE_NAMED)
        & pl.col(JUDGE).is_not_null().all()
        & (pl.col(JUDGE).n_unique() == 1)
    )
    told = each.group_by(_NUMBER).agg(is_told.alias("is_told"), pl.col(JUDGE).first(), pl.col(SHORT_BY).max())
    saved = told.filter("is_told").sort(SHORT_BY).collect()
    short_by = {int(place): part[SHORT_BY] for (place,), part in saved.partition_by(JUDGE, as_dict=True).items()}
    return AuditedMisses(found=misses.height, audits=len(audits), short_by=short_by)


def _each_once(rows: pl.LazyFrame, audits: Mapping[str, int]) -> pl.LazyFrame:
    """The newest sighting of each miss, numbered."""
    known = rows.filter(pl.col(AUDIT).is_in(list(audits)))
    newest_first = known.sort(pl.col(AUDIT).replace_strict(audits, return_dtype=pl.Int64), descending=True)
    each = newest_first.unique(_ROW, keep="first", maintain_order=True).with_row_index(_NUMBER)
    return each.select(_NUMBER, "late_records", _LATE, pl.col(_LATE).list.len().alias("named"))
