"""Why an output differs, as far as what was published, the ledger and the log tell.

Of results of time windows that add up the recompute says what each batch has added to them: so a batch that was counted
twice, or left out, is found.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isclose
from typing import Any

from recount.audit.compare.fidelity import ALTERED, DUPLICATED, EXTRA, LOST
from recount.audit.compare.published import NO_REVISION
from recount.audit.cut.audited_ledger import Ledger
from recount.certificate.finding import UNLISTED, Difference
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.schema import FieldType
from recount.declare.topology import Topology, Written
from recount.declare.windows import TimeWindows, Windows
from recount.recompute.operators.log_rows import PARTITION
from recount.recompute.operators.log_windows import BATCH, FIRST, LAST, RECORDS, batch_shares
from recount.recompute.operators.recomputed import Recomputed
from recount.recompute.rules.result_rules import adds_up
from recount.runtime.times import readable, told_time

OUTPUT = "output"
MAX_EXPLAINED = 200
"""So many wrong rows of a sink are looked into batch by batch."""
_MAX_INPUTS = 20
_CAUSES = {
    LOST: "the log makes this row and it was due: it was not written here, or was removed afterwards",
    DUPLICATED: "one row is there more often than the log makes it",
    ALTERED: "the value or time is not what the log gives, or copies of one row contradict each other",
    EXTRA: "no record that was on time makes this row, or it was not due yet, or was not written by this stream",
}
Group = tuple[str | None, int | None, int | None]


def cause_of(row: Mapping[str, Any], place: str, written: Written) -> str:
    """Why ``place`` has its verdict for the judged ``row`` of ``written``."""
    verdict, told = row[f"{place}_verdict"], row["compared"]
    facts = {name: told[f"{place}_{name}"] for name in ("lowest", "highest", "revisions", "copies")}
    if verdict == EXTRA and adds_up(written.input):
        return _cause_of_extra(row, facts, written.input.windows)
    if verdict == DUPLICATED and (facts["copies"] or 0) > 1:
        return f"one revision was written {facts['copies']} times"
    if verdict == LOST and facts["revisions"]:
        return f"a revision before {facts['highest']} or the last one is missing here"
    return _CAUSES[verdict]


def _cause_of_extra(row: Mapping[str, Any], facts: Mapping[str, Any], windows: Windows) -> str:
    assert isinstance(windows, TimeWindows)
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
    if facts["lowest"] == NO_REVISION:
        return "the record was not written by this stream: its headers or its key are not a result's"
    if row["expected_text"] is not None:
        return "a revision that the other output does not have: written by someone else, or removed there"
    return _CAUSES[EXTRA]


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


@dataclass(frozen=True, kw_only=True)
class BatchShare:
    """Share of one batch in a result: what it ``added`` on time to counts and sums, and what it ``read`` for it."""

    name: str
    added: Mapping[str, Any]
    read: tuple[str, ...]


def shares_of(
    groups: Sequence[Group], written: Written, truth: Recomputed, ledger: Ledger
) -> Mapping[Group, list[BatchShare]]:
    """The share of each batch of ``ledger`` in each of ``groups``: key as text, and bounds of the window."""
    node = written.input
    assert adds_up(node)
    spans = [
        {"topic": part.topic, "partition": part.partition, "start": part.start, "end": part.end, BATCH: number}
        for number, proof in enumerate(ledger.proofs)
        for part in proof.partitions
        if part.start < part.end
    ]
    rows: dict[tuple[Group, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in batch_shares(node, truth.came(node), groups, spans) if groups else ():
        rows[(row["key"], row[WINDOW_START], row[WINDOW_END]), row[BATCH]].append(row)
    additive = [name for name, aggregate in node.aggregates.items() if aggregate.kind in ("count", "sum")]
    shares: dict[Group, list[BatchShare]] = defaultdict(list)
    for (group, number), parts in sorted(rows.items(), key=lambda item: item[0][1]):
        values = {name: [part[name] for part in parts if part[name] is not None] for name in additive}
        generation, batch = ledger.proofs[number].order
        shares[group].append(
            BatchShare(
                name=f"batch {generation}/{batch}",
                added={name: sum(found) for name, found in values.items() if found},
                read=tuple(
                    f"{part[RECORDS]} of {part['topic']}-{part[PARTITION]}@[{part[FIRST]}, {part[LAST]}]"
                    for part in parts
                ),
            )
        )
    return shares


def with_batches(
    differences: Sequence[Difference], topology: Topology, truth: Recomputed, ledger: Ledger
) -> list[Difference]:
    """``differences``; those of results that add up name the offsets of each batch of ``ledger`` behind them.

    And the batch that is counted twice or left out, where one explains the whole difference. Of each sink the first
    ``MAX_EXPLAINED`` results are looked into.
    """
    found = list(differences)
    for written in topology.written:
        if adds_up(written.input):
            places = (f"topic {written.topic.name}", f"table outputs/{written.table}")
            groups = dict.fromkeys(_group(one) for one in found if one.kind == OUTPUT and one.place in places)
            shares = shares_of(list(groups)[:MAX_EXPLAINED], written, truth, ledger)
            found = [_with(one, written, shares[_group(one)]) if one.place in places else one for one in found]
    return found


def _group(one: Difference) -> Group:
    return one.key, one.window_start, one.window_end


def _with(one: Difference, written: Written, shares: Sequence[BatchShare]) -> Difference:
    inputs = [f"{share.name} read {read}" for share in shares for read in share.read]
    cause = batch_between(one, written.fields, shares) if one.verdict == ALTERED else ""
    return replace(one, cause=cause or one.cause, evidence=(*one.evidence, *inputs[:_MAX_INPUTS]))


def batch_between(one: Difference, fields: Mapping[str, FieldType], shares: Sequence[BatchShare]) -> str:
    """The one batch whose share is the whole difference, counted twice or left out; empty where none is."""
    expected, actual = _values(one.expected), _values(one.actual)
    for share in shares:
        if share.added and share.added.keys() <= expected.keys() & actual.keys():
            for said, sign in (("is counted twice", 1), ("is not counted", -1)):
                differs = {name: sign * (actual[name] - expected[name]) for name in share.added}
                if all(_same(fields[name], differs[name], added) for name, added in share.added.items()):
                    return f"{share.name} {said}"
    return ""


def _values(text: str | None) -> Mapping[str, Any]:
    """The row of a judged text; nothing where it has none."""
    if text is None or not text.startswith("{"):
        return {}
    row: Mapping[str, Any] = json.loads(text, parse_float=Decimal, parse_int=Decimal)["row"]
    return row


def _same(kind: FieldType, one: Decimal, other: Any) -> bool:
    return isclose(one, other, rel_tol=1e-9) if kind.kind == "double" else one == other
