"""Whether Great Expectations and the audit's own judge, who looked at the same things, say the same.

An expectation whose ``meta`` has ``judged_as`` is compared with what the judge found of that kind. Others (schemas,
what users expect of their own fields) have no counterpart: they hold or fail by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from recount.audit.completeness import CORRECTION
from recount.audit.conservation import OFFSETS
from recount.audit.copies import DELTA
from recount.audit.fidelity import ALTERED, DUPLICATED, EXPIRED, EXTRA, LOST, MATCH, PLACES
from recount.audit.ledger_rules import LEDGER
from recount.audit.register import ROW, accepted_rows
from recount.audit.store import VERDICTS, AuditStore, Run
from recount.audit.topologies.identity import identity_of
from recount.core.finding import Finding, finding_id
from recount.core.finding_register import Register
from recount.core.topology import Topology

_WRONG = (LOST, DUPLICATED, ALTERED, EXTRA)
_IN_LEDGER = ("unbalanced", "not contiguous")
"""The verdicts on the ledger that expectations look for as well: not those on idle partitions and the frontier."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How many differences of a kind the judge has: those that expectations must see, and those that they may see.

    ``is_exact``: an expectation counts them as the judge does.
    """

    must: int
    may: int
    is_exact: bool = False

    def agrees(self, unexpected: int) -> bool:
        """Whether an expectation with so many unexpected rows says the same."""
        if self.is_exact:
            return unexpected == self.may
        return (self.must == 0 or unexpected > 0) and (self.may > 0 or unexpected == 0)


def judged(topology: Topology, store: AuditStore, run: Run, register: Register) -> dict[str, Judged]:
    """What the judge says, by ``judged_as``; what belongs to one output table is named ``<name> <table>``.

    Findings that are accepted now do not count.
    """
    accepted = [one for one in register.values() if one.state == "accepted"]
    open_findings = [one for one in register.values() if one.state == "open"]
    taken = {one.id for one in accepted}
    mine = [one for one in store.differences(run.audit) if finding_id(topology.name, one) not in taken]
    wrong = _wrong_rows(topology, store, run, accepted)
    ledger = sum(one.kind == LEDGER and one.verdict in _IN_LEDGER for one in mine)
    offsets = [one for one in mine if one.kind == OFFSETS]
    sinks = {written.topic.name for written in topology.written}
    # a table of corrections that somebody else wrote to is no row of a sink: nothing is compared with it
    corrections = sum(one.kind == CORRECTION and one.place in sinks for one in mine)
    found = {
        "ledger": Judged(must=ledger, may=ledger),
        "records": Judged(must=sum(one.verdict == "records" for one in offsets), may=len(offsets)),
        "corrections": Judged(must=corrections, may=corrections, is_exact=True),
    }
    for place in PLACES:
        n = _count(wrong, place, _WRONG)
        found[place] = Judged(must=n, may=n, is_exact=True)
        found[f"{place} values"] = Judged(must=0, may=n)
    for written in topology.written:
        there = wrong.filter(pl.col("sink") == written.topic.name)
        may = _count(there, DELTA, _WRONG)
        may += sum(one.difference.place == f"table outputs/{written.table}" for one in open_findings)
        doubled = _count(there, DELTA, (DUPLICATED,)) if identity_of(written).is_latest else 0
        found[f"copies {written.table}"] = Judged(must=doubled, may=may)
        found[f"gaps {written.table}"] = Judged(must=0, may=may)
    return found


def disagreements(unexpected: Mapping[str, Sequence[int]], judged: Mapping[str, Judged]) -> list[str]:
    """What one of the two found otherwise; ``unexpected`` are by name the numbers of rows that expectations found.

    A name that no expectation bears counts as one that found nothing.
    """
    return [
        f"{name}: Great Expectations found {found}, the audit's judge {said.may}"
        for name, said in judged.items()
        for found in [max(unexpected.get(name, [0]))]
        if not said.agrees(found)
    ]


def _wrong_rows(topology: Topology, store: AuditStore, run: Run, accepted: Sequence[Finding]) -> pl.DataFrame:
    """The rows with a wrong verdict, where a verdict that a person has accepted is a match."""
    fine = [MATCH, EXPIRED]
    verdicts = [f"{place}_verdict" for place in PLACES]
    rows = store.rows(VERDICTS, [run.audit]).filter(pl.any_horizontal(~pl.col(name).is_in(fine) for name in verdicts))
    wrong = rows.select(*ROW, *verdicts).collect()
    for place in PLACES:
        taken = accepted_rows(topology, accepted, place)
        if taken:
            schema = {name: wrong.schema[name] for name in ROW}
            known = pl.DataFrame(taken, schema, orient="row").with_columns(is_accepted=True)
            told = wrong.join(known, on=list(ROW), how="left", nulls_equal=True)
            verdict = pl.when("is_accepted").then(pl.lit(MATCH)).otherwise(f"{place}_verdict")
            wrong = told.with_columns(verdict.alias(f"{place}_verdict")).drop("is_accepted")
    return wrong


def _count(rows: pl.DataFrame, place: str, verdicts: Sequence[str]) -> int:
    return rows.filter(pl.col(f"{place}_verdict").is_in(verdicts)).height
