"""Why an output differs: the stream's own state, batch by batch, beside a recompute of the very same batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from recount.audit.compare.fidelity import EXPIRED, MATCH, PLACES
from recount.audit.compare.published import DELTA, KAFKA
from recount.audit.compare.results import EXPECTED, KEY_TEXT, merged, text_of
from recount.audit.cut.audited_ledger import Ledger, Order
from recount.certificate.finding import UNLISTED, Difference
from recount.declare.columns import BATCH, GENERATION, JUDGED_KEY, RECORDS, RESULT_TIME
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.windows import TimeWindows
from recount.recompute.operators.log_rows import PARTITION
from recount.recompute.single_flow import Flow
from recount.recompute.window_partials import BATCH as NUMBER
from recount.recompute.window_partials import FIRST, LAST, Span, WindowPartials
from recount.runtime.times import readable, told_time

OUTPUT = "output"
Group = tuple[Any, int, int]
Values = Mapping[str, Any]
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BatchShare:
    """Share of one batch in one result: as the log says, as the stream's state has it, and the offsets behind it."""

    order: Order
    recomputed: Values | None
    stored: Values | None
    offsets: tuple[str, ...]
    is_recomputed: bool

    @property
    def is_faulty(self) -> bool:
        """Whether the batch was recomputed and the stream's state has another share of it."""
        return self.is_recomputed and self.stored != self.recomputed

    @property
    def name(self) -> str:
        """The batch as differences name it."""
        return f"batch {self.order[0]}/{self.order[1]}"


MAX_EXPLAINED = 200
"""So many wrong rows are explained; the others are listed without a cause."""
_NOT_EXPLAINED = f"not looked into: more than {MAX_EXPLAINED} rows differ"


def output_differences(
    wrong: Sequence[Row], recomputed: WindowPartials, state: pl.LazyFrame, ledger: Ledger
) -> list[Difference]:
    """The differences of the rows ``wrong`` (``Judgement.wrong``), the first ``MAX_EXPLAINED`` rows explained.

    ``state`` holds the stream's partials up to the cut; ``ledger`` the batches that were recomputed.
    """
    flow = recomputed.flow
    shares = _shares([_judged_group(row) for row in wrong[:MAX_EXPLAINED]], recomputed, state, ledger)
    return [
        _difference(row, place, flow, shares.get(_judged_group(row), []) if number < MAX_EXPLAINED else None)
        for number, row in enumerate(wrong)
        for place in PLACES
        if row[f"{place}_verdict"] not in (MATCH, EXPIRED)
    ]


def unlisted_difference(rows: int, evidence: tuple[str, ...]) -> Difference:
    """Return one difference for ``rows`` wrong rows beyond those that are listed."""
    return Difference(
        kind=OUTPUT,
        place="outputs",
        verdict=UNLISTED,
        expected="no further row differs",
        actual=f"{rows} further rows differ",
        cause="too many rows differ to follow each: audit from the beginning once the listed ones are repaired",
        evidence=evidence,
    )


def _difference(row: Row, place: str, flow: Flow, shares: Sequence[BatchShare] | None) -> Difference:
    """``shares`` None: nobody has looked into the cause."""
    verdict = row[f"{place}_verdict"]
    sink = flow.sink
    names = {KAFKA: f"topic {sink.topic.name}", DELTA: f"table outputs/{sink.table}"}
    inputs = [f"{share.name} read {offsets}" for share in shares or () for offsets in share.offsets]
    return Difference(
        kind=OUTPUT,
        place=names[place],
        verdict=verdict,
        key=row[KEY_TEXT],
        window_start=row[WINDOW_START],
        window_end=row[WINDOW_END],
        expected=text_of(row[EXPECTED]),
        actual=text_of(row[f"{place}_result"]),
        cause=_NOT_EXPLAINED if shares is None else cause_of(row, place, verdict, flow.windows, shares),
        evidence=(*(row[f"{place}_evidence"] or ()), *inputs[:20]),
    )


def cause_of(row: Row, place: str, verdict: str, windows: TimeWindows, shares: Sequence[BatchShare]) -> str:
    """Why ``place`` has ``verdict`` for the line-up ``row``, given what each batch added to the result."""
    faulty = [share for share in shares if share.is_faulty]
    state = "the stream's state is right"
    if faulty:
        state = "the stream's state differs from the log in " + ", ".join(share.name for share in faulty[:5])
    match verdict:
        case "extra":
            return _cause_of_extra(row, place, windows)
        case "duplicated":
            return f"one revision was written {row[f'{place}_copies']} times; {state}"
        case "lost" if row[f"{place}_revisions"]:
            return f"a revision before {row[f'{place}_highest']} or the last one is missing here; {state}"
        case "lost":
            return f"{state}: the result was not written here, or was removed afterwards"
    applied = _batch_between(row[EXPECTED], row[f"{place}_result"], shares)
    if applied:
        return f"{applied}; {state}"
    if row[f"{place}_contradictory"]:
        return f"copies of one revision contradict each other; {state}"
    return f"{state}: the value was changed on its way here or afterwards"


def _cause_of_extra(row: Row, place: str, windows: TimeWindows) -> str:
    start, end = row[WINDOW_START], row[WINDOW_END]
    if start is None or end is None:
        return "the value is no result of this stream"
    moved_ms = (start - windows.origin_ms) % windows.advance_ms
    if moved_ms or end - start != windows.size_ms:
        nearest = moved_ms if moved_ms <= windows.advance_ms // 2 else moved_ms - windows.advance_ms
        moved = f"{'-' if nearest < 0 else ''}{readable(abs(nearest))}"
        return (
            f"no window has these bounds: moved by {moved} from the window that starts at {told_time(start - nearest)}"
        )
    if row[f"{place}_lowest"] == -1:
        return "the record was not written by this stream: its headers or its key are not a result's"
    if row[EXPECTED] is not None:
        return "a revision that the other output does not have: written by someone else, or removed there"
    return "no record that was on time makes this result, or its window was not due yet"


def _batch_between(expected: Values | None, actual: Values | None, shares: Sequence[BatchShare]) -> str:
    """The one batch whose share is the whole difference, counted twice or left out."""
    if expected is None or actual is None:
        return ""
    for share in shares:
        values = share.recomputed or share.stored
        if not values:
            continue
        sums = [name for name, value in values.items() if name != RESULT_TIME and _is_number(value)]
        if sums and all(_less(actual[name], expected[name]) == values[name] for name in sums):
            return f"{share.name} is counted twice"
        if sums and all(_less(expected[name], actual[name]) == values[name] for name in sums):
            return f"{share.name} is not counted"
    return ""


def _is_number(value: object) -> bool:
    return value is not None and not isinstance(value, str)


def _less(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one - other


def _shares(
    groups: Sequence[Group], recomputed: WindowPartials, state: pl.LazyFrame, ledger: Ledger
) -> dict[Group, list[BatchShare]]:
    """Return what each batch added to each of ``groups``, in batch order."""
    flow = recomputed.flow
    wanted = pl.DataFrame(groups, {name: state.collect_schema()[name] for name in flow.group}, orient="row")
    stored = state.join(wanted.lazy(), on=flow.group, how="semi").with_columns(pl.lit(0).alias(RECORDS)).collect()
    by_batch, offsets = recomputed.by_batch(wanted.to_arrow(), _spans(ledger, flow.source.topic.name))
    found: dict[tuple[Group, Order], dict[str, Values]] = {}
    for row in merged(pl.DataFrame(by_batch.arrow()), flow, NUMBER).to_dicts():
        found[_group(row, flow), ledger.proofs[row[NUMBER]].order] = {"recomputed": _values(row, flow)}
    for row in merged(stored, flow, GENERATION, BATCH).to_dicts():
        found.setdefault((_group(row, flow), (row[GENERATION], row[BATCH])), {})["stored"] = _values(row, flow)
    read = _offsets(offsets.sorted_by(PARTITION).rows(), flow, ledger)
    recomputed_orders = {proof.order for proof in ledger.proofs}
    shares: dict[Group, list[BatchShare]] = {}
    for (group, order), values in sorted(found.items(), key=lambda item: item[0][1]):
        share = BatchShare(
            order=order,
            recomputed=values.get("recomputed"),
            stored=values.get("stored"),
            offsets=read.get((group, order), ()),
            is_recomputed=order in recomputed_orders,
        )
        shares.setdefault(group, []).append(share)
    return shares


def _spans(ledger: Ledger, topic: str) -> list[Span]:
    return [
        (part.partition, part.start, part.end, number)
        for number, proof in enumerate(ledger.proofs)
        for part in proof.partitions
        if part.topic == topic and part.start < part.end
    ]


def _offsets(rows: Iterable[Row], flow: Flow, ledger: Ledger) -> dict[tuple[Group, Order], tuple[str, ...]]:
    """Per group and batch the source offsets that were counted, as ``topic-partition@[first, last]``."""
    found: dict[tuple[Group, Order], tuple[str, ...]] = {}
    for row in rows:
        place = (_group(row, flow), ledger.proofs[row[NUMBER]].order)
        text = f"{row[RECORDS]} of {flow.source.topic.name}-{row[PARTITION]}@[{row[FIRST]}, {row[LAST]}]"
        found[place] = (*found.get(place, ()), text)
    return found


def _judged_group(row: Row) -> Group:
    return row[JUDGED_KEY], row[WINDOW_START], row[WINDOW_END]


def _group(row: Row, flow: Flow) -> Group:
    return row[flow.key], row[WINDOW_START], row[WINDOW_END]


def _values(row: Row, flow: Flow) -> Values:
    return {name: row[name] for name in (*flow.aggregate.aggregates, RESULT_TIME)}
