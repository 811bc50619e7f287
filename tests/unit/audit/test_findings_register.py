"""Item 1.1: what audits found is read back from their tables, certificates and acceptances."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import a_run, findings

from recount.audit.carry.store import NOTHING, VERDICTS, AuditStore, Run, Seed
from recount.audit.certificate.assembly import document_of
from recount.audit.certificate.signing import make_keys, signer_in
from recount.audit.cut.audited_ledger import Ledger, Repetition
from recount.audit.expectations.suites import judged
from recount.audit.findings.acceptances import accept, accept_all
from recount.audit.findings.finding_register import Findings, Interval, accepted_rows, read_register, standing_after
from recount.audit.integrity.evidence import Evidence
from recount.certificate.document import certified
from recount.certificate.finding import Difference, Finding, Standing, difference_document, finding_id
from recount.cli import app
from recount.declare.columns import AUDIT
from recount.declare.registry import declared
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings
from recount.tables.ledger import topics_made_anew
from recount.tables.places import Tables

TOPOLOGY = declared().topology("revenue-by-region")
STREAM = TOPOLOGY.name
[SINK] = TOPOLOGY.written
ROW = {"key": "EU", "window_start": 0, "window_end": 300_000}
LOST = Difference(kind="output", place=f"table outputs/{SINK.table}", verdict="lost", expected="5", **ROW)  # type: ignore[arg-type]
FAULT = Difference(kind="batch ledger", place="batch 0/1", verdict="frontier", expected="1 ms", actual="2 ms")
LOST_ID, FAULT_ID = (finding_id(STREAM, one) for one in (LOST, FAULT))


class Nights:
    """Audits of which only the tables exist that hold their findings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = AuditStore(Tables(self.settings.data), STREAM)
        self.last: Run | None = None

    def audit(
        self, audit: str, differences: Sequence[Difference], verdict: str | None, *, whole: bool = False, batch: int = 1
    ) -> Standing:
        """One night, in which the row in Delta was judged to be ``verdict`` (None: nobody knows such a row)."""
        schema = {"sink": pl.String, "key": pl.String, "window_start": pl.Int64, "window_end": pl.Int64}
        schema |= dict.fromkeys(("origin", "kafka_verdict", "delta_verdict", "completeness"), pl.String)
        row = {**ROW, "sink": SINK.topic.name, "kafka_verdict": "match", "delta_verdict": verdict}
        self.store.put_rows(VERDICTS, audit, pl.DataFrame([row] if verdict else [], schema=schema))
        self.store.put_findings(audit, [], differences, [])
        known, at_ms = read_register(self.settings, STREAM), self.store.next_ms()
        found = self.findings(audit, differences, whole=whole, batch=batch)
        standing = standing_after(known, known, Tables(self.settings.data), found, self.store, at_ms)
        self.complete(audit, standing, at_ms, batch, found.seed.run.audit if found.seed.run else None)
        return standing

    def complete(self, audit: str, standing: Standing, at_ms: int, batch: int, seed: str | None) -> None:
        said = {
            "outcome": "violation" if standing.open else "match",
            "repaired": tuple(one.id for one in standing.repaired),
        }
        self.last = a_run(audit, finished_ms=at_ms, source="kafka", seed=seed, batch=batch, **said)
        self.store.complete(self.last)

    def standing_of(self, audit: str, *differences: Difference, batch: int = 2, now: Any = None) -> Standing:
        """What an audit of which nothing is in the tables would say."""
        found = self.findings(audit, differences, whole=False, batch=batch)
        return standing_after({}, now or {}, Tables(self.settings.data), found, self.store, self.store.next_ms())

    def register(self) -> dict[str, Finding]:
        return read_register(self.settings, STREAM)

    def write(self, name: str, text: Any) -> None:
        """A file beside the certificates of the stream."""
        folder = Path(self.settings.reports) / "certificates" / STREAM
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(text if isinstance(text, str) else json.dumps(text))

    def findings(self, audit: str, differences: Sequence[Difference], *, whole: bool, batch: int) -> Findings:
        proof = a_proof(batch, stream=STREAM)
        return Findings(
            audit=audit,
            topology=TOPOLOGY,
            interval=Interval(),
            source="kafka",
            seed=NOTHING if whole else Seed(run=self.last, stream_times={}),
            ledger=Ledger((proof,)),
            frontier_ms=None,
            accounts=(),
            evidence=Evidence(log=(), published=(), tables=()),
            counts={},
            differences=tuple(differences),
            misses=(),
        )


@pytest.fixture
def nights(settings: Settings) -> Nights:
    return Nights(settings)


def states(standing: Standing) -> dict[str, str]:
    return {one.id: one.state for one in (*standing.open, *standing.accepted, *standing.repaired)}


def test_differences_of_results_are_counted_beyond_those_that_are_listed(nights: Nights) -> None:
    found = nights.findings("1", [LOST, FAULT], whole=True, batch=1)
    counts = {"kafka match": 7, "delta lost": 5_000, "delta expired": 3, "completeness missed": 2}
    assert document_of(replace(found, counts=counts))["differences_found"] == 5_001


def test_a_lost_row_is_open_until_its_place_is_in_order(nights: Nights) -> None:
    assert states(nights.audit("1", [LOST], "lost")) == {LOST_ID: "open"}
    assert states(nights.audit("2", [], "lost")) == {LOST_ID: "open"}
    assert states(nights.audit("3", [], "match")) == {LOST_ID: "repaired"}
    assert nights.audit("4", [], "match") == Standing(repaired_before=1)


def test_a_row_that_has_left_by_retention_was_not_repaired_and_one_that_nobody_knows_any_more_is_in_order(
    nights: Nights,
) -> None:
    nights.audit("1", [LOST], "lost", batch=5)
    assert states(nights.audit("2", [], "match", batch=4)) == {LOST_ID: "open"}, "as of an earlier batch"
    assert states(nights.audit("3", [], "expired", batch=5)) == {LOST_ID: "open"}
    assert states(nights.audit("4", [], None, batch=5)) == {LOST_ID: "open"}, "the audit before did not see it"
    assert states(nights.audit("5", [], None, batch=5, whole=True)) == {LOST_ID: "repaired"}


def test_what_another_audit_found_meanwhile_is_open_too_and_is_not_closed_by_one_that_did_not_judge_it(
    nights: Nights,
) -> None:
    nights.audit("beside", [LOST], "lost")
    nights.store.put_rows(VERDICTS, "mine", nights.store.rows(VERDICTS, ["beside"]).drop(AUDIT).collect().clear())
    assert states(nights.standing_of("mine", FAULT, batch=1, now=nights.register())) == {
        LOST_ID: "open",
        FAULT_ID: "open",
    }


def test_an_audit_that_goes_on_from_a_snapshot_closes_what_that_snapshot_had(nights: Nights) -> None:
    nights.audit("1", [LOST], "lost")
    known, tables = nights.register(), Tables(nights.settings.data)
    nights.store.put_rows(VERDICTS, "2", pl.DataFrame(schema=nights.store.rows(VERDICTS, ["1"]).collect_schema()))
    found = replace(nights.findings("2", [], whole=False, batch=1), fingerprint="f")
    assert nights.last is not None
    assert states(standing_after(known, known, tables, found, nights.store, 10**15)) == {LOST_ID: "repaired"}
    other = Seed(run=replace(nights.last, audit="another"), stream_times={})
    assert states(standing_after(known, known, tables, replace(found, seed=other), nights.store, 10**15)) == {
        LOST_ID: "open"
    }


def test_a_row_of_an_output_that_is_declared_no_more_is_not_in_order(nights: Nights) -> None:
    gone = Difference(kind="output", place="topic formerly", verdict="lost", **ROW)  # type: ignore[arg-type]
    nights.audit("1", [gone], "lost")
    assert states(nights.audit("2", [], None)) == {finding_id(STREAM, gone): "open"}


def test_a_fault_of_a_past_stretch_is_open_until_an_audit_from_the_beginning_sees_it_no_more(nights: Nights) -> None:
    nights.audit("1", [FAULT], None)
    assert states(nights.audit("2", [], None)) == {FAULT_ID: "open"}
    assert states(nights.audit("3", [], None, whole=True)) == {FAULT_ID: "repaired"}


def test_a_fault_of_a_stretch_is_judged_again_by_an_audit_that_begins_no_later(nights: Nights) -> None:
    nights.audit("1", [], None, whole=True, batch=1)
    seed = nights.last
    nights.audit("2", [FAULT], None, batch=2)
    assert states(nights.audit("3", [], None, batch=3)) == {FAULT_ID: "open"}
    nights.last = seed
    assert states(nights.audit("4", [], None, batch=3)) == {FAULT_ID: "repaired"}


def a_certificate(audit: str, standing: Standing, *, key_id: str | None = None, **said: Any) -> dict[str, Any]:
    """One of batch 2 that holds, with the findings of ``standing``, all of which this audit saw first."""
    of_audit = findings(audit)
    opened = [{**one.document(), "last_audit": audit} for one in standing.open]
    section = {**of_audit["findings"], "open": opened, "open_found": len(opened)}
    differences = [{**difference_document(one.difference), "finding": one.id} for one in standing.open]
    document = {
        **of_audit,
        "stream": STREAM,
        "outcome": "violation",
        "cut": {**of_audit["cut"], "batch": 2},
        "findings": section,
        "differences": differences,
        "differences_found": len(differences),
        **said,
    }
    return certified(document, None, key_id=key_id)


def test_certificates_of_the_version_before_a_reset_open_no_finding(nights: Nights) -> None:
    former = {"fingerprint": "f", "stream_version": 2}
    nights.write("former", a_certificate("former", nights.standing_of("former", LOST), declaration=former))
    assert nights.register() == {}


def test_an_accepted_finding_is_listed_with_name_and_reason_and_is_no_violation(nights: Nights) -> None:
    nights.audit("1", [LOST, FAULT], "lost")
    accepted = accept(nights.settings, STREAM, LOST_ID, by=" Ada ", reason="deleted on request")
    assert accepted.difference == LOST
    standing = nights.audit("2", [LOST], "lost")
    assert states(standing) == {FAULT_ID: "open", LOST_ID: "accepted"}
    [taken] = standing.accepted
    document = taken.document()
    assert (document["accepted_by"], document["reason"]) == ("Ada", "deleted on request")
    assert (document["first_audit"], document["last_audit"], document["first_certificate"]) == ("1", "2", "1.json")


def test_what_is_unknown_accepted_or_repaired_cannot_be_accepted_nor_anything_beside_it(nights: Nights) -> None:
    nights.audit("1", [LOST, FAULT], "lost")
    for by, reason in (("", "why"), ("Ada", " \n")):
        with pytest.raises(Terminal):
            accept(nights.settings, STREAM, LOST_ID, by=by, reason=reason)
    with pytest.raises(Terminal, match="no such finding"):
        accept_all(nights.settings, STREAM, [LOST_ID, "0" * 16], by="Ada", reason="why")
    accept(nights.settings, STREAM, LOST_ID, by="Ada", reason="why")
    with pytest.raises(Terminal, match="closed"):
        accept(nights.settings, STREAM, LOST_ID, by="Bob", reason="too")
    nights.audit("2", [], "match", whole=True)
    with pytest.raises(Terminal, match="closed"):
        accept(nights.settings, STREAM, FAULT_ID, by="Ada", reason="why")


def test_an_audit_that_is_not_complete_says_nothing_unless_it_has_issued_its_certificate(nights: Nights) -> None:
    nights.audit("1", [], "match")
    nights.store.put_findings("killed", [], [LOST], [])
    assert nights.register() == {}
    nights.write("killed", a_certificate("killed", nights.standing_of("killed", LOST)))
    assert {one.id: one.last_cut for one in nights.register().values()} == {LOST_ID: (0, 2)}


def test_who_takes_a_finding_out_of_the_tables_does_not_close_it_while_the_newest_certificate_has_it_open(
    nights: Nights,
) -> None:
    nights.write("1", a_certificate("1", nights.audit("1", [LOST, FAULT], "lost", batch=2)))
    before = nights.register()
    nights.store.put_findings("1", [], [LOST], [])
    assert nights.register() == before
    assert nights.last is not None
    forged = replace(nights.last, audit="2", finished_ms=nights.store.next_ms(), repaired=(LOST_ID, FAULT_ID))
    nights.store.complete(forged)
    assert {one.id: one.state for one in nights.register().values()} == dict.fromkeys((LOST_ID, FAULT_ID), "open")
    assert states(nights.audit("3", [], "match", whole=True, batch=3)) == {LOST_ID: "repaired", FAULT_ID: "repaired"}


def test_a_file_that_is_no_certificate_or_that_no_trusted_key_has_signed_says_nothing_of_findings(
    nights: Nights, tmp_path: Path
) -> None:
    nights.audit("1", [LOST], "lost")
    before = nights.register()
    for name, text in {"empty": "", "deep": "[" * 100_000, "other": "{}", "not a number": '{"sha256": NaN}'}.items():
        nights.write(name, text)
    standing = nights.standing_of("forged", FAULT)
    forged = a_certificate("forged", standing)
    nights.write("forged", {**forged, "sha256": "0" * 64})
    assert nights.register() == before
    nights.write("forged", forged)
    keys = tmp_path / "keys"
    make_keys(keys, reports=None)
    assert read_register(replace(nights.settings, keys=str(keys)), STREAM) == before
    signer = signer_in(str(keys))
    assert signer is not None
    nights.write("forged", signer.with_signature(a_certificate("forged", standing, key_id=signer.key_id)))
    assert read_register(replace(nights.settings, keys=str(keys)), STREAM).keys() == {LOST_ID, FAULT_ID}


def test_an_accepted_row_is_none_that_the_judge_holds_against_the_expectations(nights: Nights) -> None:
    for audit, wrong in (("1", 1), ("2", 0)):
        nights.audit(audit, [LOST], "lost")
        assert nights.last is not None
        register = nights.register()
        assert judged(TOPOLOGY, nights.store, nights.last, register)["delta"].may == wrong
        accepted = [one for one in register.values() if one.state == "accepted"]
        assert len(accepted_rows(TOPOLOGY, accepted, "delta")) == 1 - wrong
        if audit == "1":
            accept(nights.settings, STREAM, LOST_ID, by="Ada", reason="why")


def test_expectations_need_not_find_a_table_of_corrections_that_somebody_wrote_to(nights: Nights) -> None:
    wrong = Difference(kind="correction", place=SINK.topic.name, verdict="duplicated", **ROW)  # type: ignore[arg-type]
    strange = Difference(kind="correction", place=f"table corrections/{SINK.table}", verdict="extra")
    nights.audit("1", [wrong, strange], None)
    assert nights.last is not None
    found = judged(TOPOLOGY, nights.store, nights.last, nights.register())
    assert found["corrections"].may == 1


def test_the_command_lists_findings_accepts_all_that_are_named_and_refuses_an_empty_reason(
    nights: Nights, set_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    nights.audit("1", [LOST, FAULT], "lost")

    def findings(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            app(["findings", *arguments])
        return ended.value.code, capsys.readouterr().out

    code, listed = findings("--stream", STREAM)
    assert (code, f"{STREAM}: 2 open, 0 accepted, 0 repaired" in listed) == (0, True)
    assert LOST_ID in listed
    accepting = ("accept", "--stream", STREAM, "--finding", LOST_ID, "--finding", FAULT_ID, "--by", "Ada")
    assert findings(*accepting, "--reason", "")[0] == 1
    assert findings(*accepting, "--reason", "why", "--by", "Bob")[0] == 2
    assert findings("--stream", STREAM, "--stream", "another")[0] == 2
    assert findings(*accepting, "--reason", "deleted on request")[0] == 0
    assert f"{STREAM}: 0 open, 2 accepted, 0 repaired" in findings("--stream", STREAM)[1]


def test_topics_have_the_ids_that_the_audit_saw_whatever_they_have_now() -> None:
    document = findings("night-1")
    assert Repetition.of(document).topic_ids == {}
    [found] = topics_made_anew([{"orders": "a"}, {"orders": "b"}])
    seen = {**document, "differences": [difference_document(found)]}
    assert Repetition.of(seen).topic_ids == {"orders": "b"}
