"""Suites of expectations of Recount and of a project, and whether they agree with the audit's own judge.

Recount's ``<name>.json`` is put to every stream; a project's ``expectations/<name>.json`` is put to them instead.
``expectations/<stream>/<name>.json`` is added to it for one, where ``<name>`` is ``raw_log``, ``batch_ledger``,
``reconciliation``, or the name of an output table; a table with the name of a suite has ``outputs.<name>.json``. The
setting ``RECOUNT_EXPECTATIONS`` names the project's folder. ``recount.audit.expectations.validation`` writes outcomes.

Great Expectations and the judge look at the same things. An expectation whose ``meta`` has ``judged_as`` is compared
with what the judge found of that kind. Others (schemas, what users expect of their own fields) have no counterpart:
they hold or fail by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from recount.audit.carry.store import VERDICTS, AuditStore, Run
from recount.audit.compare.conservation import OFFSETS
from recount.audit.compare.fidelity import ALTERED, DUPLICATED, EXPIRED, EXTRA, LOST, MATCH, PLACES
from recount.audit.compare.identity import identity_of
from recount.audit.compare.published import DELTA
from recount.audit.cut.audited_ledger import LEDGER
from recount.audit.explain.completeness import CORRECTION
from recount.audit.findings.finding_register import ROW, accepted_rows
from recount.certificate.finding import Finding, Register, finding_id
from recount.declare.columns import RESULT_TIME, REVISION
from recount.declare.topology import Topology, Written
from recount.recompute.spark_columns import spark_type
from recount.runtime.errors import Terminal
from recount.runtime.installation import shipped
from recount.runtime.settings import Settings

SUITES = shipped("expectations")
RAW_LOG, BATCH_LEDGER, OUTPUTS, RECONCILIATION = "raw_log", "batch_ledger", "outputs", "reconciliation"
QUERY = "unexpected_rows_query"
Expectation = dict[str, Any]
_WRONG = (LOST, DUPLICATED, ALTERED, EXTRA)
_IN_LEDGER = ("unbalanced", "not contiguous")
"""The verdicts on the ledger that expectations look for as well: not those on idle partitions and the frontier."""


def suites_of(settings: Settings) -> Path:
    """The folder of the project's suites; Recount's own where none is set."""
    return Path(settings.expectations) if settings.expectations else SUITES


def expectations_of(suites: Path, name: str, stream: str, table: str | None = None) -> list[Expectation]:
    """Return what the suite ``name`` expects of ``stream``, or of its output ``table``, for Great Expectations."""
    own = suites / stream / f"{name if table is None else _of_table(table)}.json"
    every = suites / f"{name}.json"
    return [*_read(every if every.exists() else SUITES / f"{name}.json"), *(_read(own) if own.exists() else [])]


def _of_table(table: str) -> str:
    return f"{OUTPUTS}.{table}" if table in (RAW_LOG, BATCH_LEDGER, OUTPUTS, RECONCILIATION) else table


def declared_columns(written: Written) -> list[Expectation]:
    """Expectations that the sink's table has the declared fields, each of its type.

    Great Expectations takes ``weight.kg`` for a part of ``weight``: of fields with such names it is not asked.
    """
    said = {**{name: str(kind) for name, kind in written.fields.items()}, REVISION: "int", RESULT_TIME: "long"}
    types = {name: type(spark_type(kind)).__name__ for name, kind in written.fields.items()}
    return [
        {
            "type": "expect_column_values_to_be_of_type",
            "kwargs": {"column": name, "type_": kind},
            "meta": {"notes": {"format": "markdown", "content": [f"{said[name]}, as the sink declares it."]}},
        }
        for name, kind in {**types, REVISION: "IntegerType", RESULT_TIME: "LongType"}.items()
        if name.isidentifier()
    ]


def _read(path: Path) -> Sequence[Expectation]:
    try:
        expectations = json.loads(path.read_text(encoding="utf-8"))["expectations"]
        return [_with_query(one) for one in expectations]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Terminal(
            "no suite of expectations",
            given=f"{path}: {error!r}",
            expected='a JSON object with a list "expectations" of objects with "type" and "kwargs"',
            remedy="see docs/audit.md, or take the file away",
        ) from error


def _with_query(expectation: Expectation) -> Expectation:
    """A query may be given as the list of its lines."""
    query = expectation["kwargs"].get(QUERY)
    if not isinstance(query, list):
        return expectation
    return {**expectation, "kwargs": {**expectation["kwargs"], QUERY: "\n".join(query)}}


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
    """Return what the judge says, by ``judged_as``; what belongs to one output table is named ``<name> <table>``.

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
    """Return what the two found differently; ``unexpected`` are by name the numbers of rows that expectations found.

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
