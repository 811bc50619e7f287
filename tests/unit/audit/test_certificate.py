"""A certificate can be checked with nothing but files, no change of it goes unnoticed, and it is read as words."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.unit.audit.documents import findings

from recount.audit.certificate.certificate_files import certificates_in, load, page, sound, verify_file
from recount.audit.certificate.signing import chain_in
from recount.audit.certificate.summary import (
    FIRST,
    LONGEST,
    change_in_words,
    explained,
    late_in_words,
    sides_in_words,
    summary,
    violation_in_words,
)
from recount.certificate.document import Unverified, certified, content_hash, forgotten
from recount.certificate.finding import Acceptance, Difference, Finding, State, difference_document, finding_id
from recount.pages.issued import certificates
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import held_certificate

LOST = Difference(
    kind="output", place="table outputs/revenue", verdict="lost", key="EU", window_start=0, window_end=300_000
)
ALTERED = Difference(
    kind="output", place="topic revenue", verdict="altered", key="US", window_start=0, window_end=300_000
)
OFFSETS = Difference(kind="offsets", place="orders-0", verdict="unaccounted", evidence=("orders-0@[0, 12)",))
ACCEPTANCE = Acceptance(finding=finding_id("revenue", ALTERED), audit="night-1", by="Ada", reason="known", at_ms=5)
Change = Callable[[dict[str, Any]], object]


def found(difference: Difference, state: State) -> dict[str, Any]:
    """A finding as a certificate lists it."""
    return Finding(
        id=finding_id("revenue", difference),
        state=state,
        difference=difference,
        first_audit="night-1",
        first_ms=1,
        last_audit="night-1",
        last_ms=1,
        last_cut=(0, 3),
        repaired_audit="night-2" if state == "repaired" else None,
        acceptance=ACCEPTANCE if state == "accepted" else None,
    ).document()


def followed(document: dict[str, Any], **states: list[Difference]) -> None:
    """Give ``document`` these findings, and the outcome that follows."""
    for state in ("open", "accepted", "repaired"):
        listed = [found(one, state) for one in states.get(state, [])]  # type: ignore[arg-type]
        document["findings"] |= {state: listed, f"{state}_found": len(listed)}
    document["outcome"] = "violation" if states.get("open") else "match"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three nights of one stream."""
    previous = None
    for audit in ("night-1", "night-2", "night-3"):
        previous = certified(findings(audit), previous)
        (tmp_path / f"{audit}.json").write_text(json.dumps(previous))
    return tmp_path


def changed(folder: Path, audit: str, change: Change, *, rehash: bool = False) -> Path:
    path = folder / f"{audit}.json"
    document = json.loads(path.read_text())
    change(document)
    if rehash:
        document["sha256"] = content_hash(document)
    path.write_text(json.dumps(document))
    return path


def test_a_chain_of_certificates_verifies_to_its_first_and_says_where_it_ends_without_one(folder: Path) -> None:
    checked = verify_file(folder / "night-3.json")
    assert len(checked) == 4
    assert "chain is complete" in checked[-1]
    missing = load(folder / "night-2.json")["sha256"]
    (folder / "night-2.json").unlink()
    assert missing in verify_file(folder / "night-3.json")[-1]


def test_a_certificate_that_was_sound_is_looked_at_again_once_it_is_changed(folder: Path) -> None:
    path = folder / "night-2.json"
    assert sound(path) is sound(path)
    changed(folder, "night-2", lambda document: document.update(outcome="match, honestly"))
    with pytest.raises(Terminal):
        sound(path)
    path.unlink()
    with pytest.raises(Terminal, match="no certificate"):
        sound(path)


def test_a_changed_predecessor_breaks_the_chain_even_when_it_was_hashed_again(folder: Path) -> None:
    changed(folder, "night-1", lambda document: document.update(source="archive"), rehash=True)
    assert "chain ends here" in verify_file(folder / "night-3.json")[-1]
    changed(folder, "night-2", lambda document: document["verdicts"]["kafka"].update(match=3))
    with pytest.raises(Unverified, match="sha256"):
        verify_file(folder / "night-2.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda one: followed(one, open=[LOST]),
        lambda one: followed(one, open=[LOST], repaired=[OFFSETS]),
        lambda one: (followed(one, accepted=[ALTERED]), one["verdicts"].update(kafka={"match": 1, "altered": 1})),
        lambda one: (followed(one, accepted=[ALTERED]), one.update(differences_found=1, differences=[told(ALTERED)])),
    ],
)
def test_a_certificate_whose_outcome_follows_from_its_findings_verifies(folder: Path, change: Change) -> None:
    assert verify_file(changed(folder, "night-3", change, rehash=True))


RELEASED = {"before_ms": 5, "cut": [0, 1], "offsets": {"orders": {"0": 5}}}
CONTRADICTING_ITSELF: list[Change] = [
    lambda one: one["partitions"][0].update(counted=9),
    lambda one: one["totals"].update(late=2),
    lambda one: one["verdicts"]["delta"].update(match=1),
    lambda one: one.update(outcome="violation"),
    lambda one: one.update(differences_found=1),
    lambda one: one["verdicts"]["kafka"].update({"match": 1, "lost": 1}),
    lambda one: one["grace_misses"][0].update(explained=False),
    lambda one: one["partitions"][0].update(control=1, unaccounted=1),
    lambda one: one["digests"]["log"][0].update(end=11),
    lambda one: one["digests"]["log"][0].update(records=9),
    lambda one: one["digests"].update(log=[]),
    lambda one: one["digests"]["published"][0].update(sha256=""),
    lambda one: one["declaration"].update(fingerprint=None),
    lambda one: one.pop("digests"),
    *(
        lambda one, name=name: one.pop(name)
        for name in ("partitions", "totals", "verdicts", "stream", "previous_sha256")
    ),
]
CONTRADICTED_BY_FINDINGS: list[Change] = [
    lambda one: (followed(one, open=[LOST]), one.update(outcome="match")),
    lambda one: (followed(one, open=[LOST]), one["findings"].update(open_found=0)),
    lambda one: (followed(one, accepted=[ALTERED]), one["findings"]["accepted"][0].update(reason=" ")),
    lambda one: (followed(one, accepted=[ALTERED]), one["findings"]["accepted"][0].update(accepted_by=None)),
    lambda one: (followed(one, open=[LOST]), one["findings"]["open"][0].update(key="US")),
    lambda one: (followed(one, accepted=[LOST]), one.update(differences_found=1, differences=[told(ALTERED)])),
    lambda one: (followed(one, accepted=[OFFSETS]), one["verdicts"].update(delta={"match": 1, "lost": 1})),
]
NO_AUDIT_COULD_GO_ON: list[Change] = [
    *(lambda one, name=name: one["cut"].pop(name) for name in ("generation", "batch_timestamp_ms", "frontier_ms")),
    lambda one: one["cut"].update(batch="3"),
    lambda one: one.pop("cut"),
    lambda one: one.update(cut=[0, 3]),
    lambda one: one["declaration"].update(stream_version="one"),
    lambda one: one["declaration"].update(stream_version=None),
    lambda one: one["partitions"][0].update(topic=["orders"]),
    lambda one: one.update(released={**RELEASED, "cut": None}),
    lambda one: one.update(released={**RELEASED, "cut": [0]}),
    lambda one: one.update(released={**RELEASED, "before_ms": "5"}),
    lambda one: one.update(released={**RELEASED, "offsets": {"orders": None}}),
    lambda one: one.update(released={**RELEASED, "offsets": {"orders": {"zero": 5}}}),
    lambda one: one.update(released="all"),
    lambda one: one.update(built_on=["night-1"]),
]
"""Where there is no key, anybody who can write to the folder can put one there that holds by its hash."""


@pytest.mark.parametrize("change", [*CONTRADICTING_ITSELF, *CONTRADICTED_BY_FINDINGS, *NO_AUDIT_COULD_GO_ON])
def test_a_certificate_that_contradicts_itself_or_with_which_no_audit_could_go_on_does_not_verify(
    folder: Path, change: Change
) -> None:
    verify_file(changed(folder, "night-3", lambda one: one.update(released=RELEASED), rehash=True))
    with pytest.raises(Unverified):
        verify_file(changed(folder, "night-3", change, rehash=True))


@pytest.mark.parametrize(
    ("tomorrow", "verifies"),
    [({}, False), ({"open": [LOST]}, True), ({"accepted": [LOST]}, True), ({"repaired": [LOST]}, True)],
)
def test_a_chain_that_forgets_an_open_finding_does_not_verify(
    tmp_path: Path, tomorrow: dict[str, list[Difference]], verifies: bool
) -> None:
    first, second = findings("night-1"), findings("night-2")
    followed(first, open=[LOST])
    followed(second, **tomorrow)
    first = certified(first, None)
    for night in (first, certified(second, first)):
        (tmp_path / f"{night['audit']}.json").write_text(json.dumps(night))
    with nullcontext() if verifies else pytest.raises(Unverified, match="forgets a finding"):
        assert "chain is complete" in verify_file(tmp_path / "night-2.json")[-1]
    # it goes on through a reset without the findings of the former version
    assert bool(list(forgotten(first, second))) is not verifies
    second["declaration"] = {**second["declaration"], "stream_version": 2}
    assert not list(forgotten(first, second))


def test_the_page_and_the_terminal_list_open_accepted_and_repaired_findings_and_what_is_covered() -> None:
    document = findings("night-1")
    followed(document, open=[LOST], accepted=[ALTERED], repaired=[OFFSETS])
    before = {"audit": "night-0", "certificate": "night-0.json", "sha256": "abc", "outcome": "match", "batch": "0/1"}
    document["covers"]["judged_before"] = before | {"batch_timestamp_ms": 900, "frontier_ms": None}
    certificate = certified(document, None)
    console = Console(width=200, record=True)
    console.print(explained(certificate, None, None))
    for shown in (page(certificate), console.export_text(clear=False)):
        for text in (finding_id("revenue", LOST), "accepted by Ada", "known", "repaired, as audit night-2 found"):
            assert text in shown
    assert "night-0.json" in page(certificate)
    assert "EU in 1970-01-01 00:00 to 00:05 UTC" in console.export_text(clear=False)


@pytest.mark.parametrize("at_ms", [2**63 - 1, -(2**63), 10**15])
def test_a_window_that_no_calendar_has_is_told_as_a_number_and_no_text_steers_the_terminal(at_ms: int) -> None:
    """One forged record on the sink's topic must not keep the page, and with it every later audit, from being made."""
    document = findings("night-1")
    document["series"] = [{**document["series"][0], "window_start": at_ms}]
    document["warnings"] = ["set aside because [/of] \x1b[2J"]
    followed(document, open=[replace(LOST, key="EU\n\x1b[2J[/x]", window_start=at_ms, window_end=at_ms)])
    certificate = certified(document, None)
    console = Console(width=200, record=True)
    console.print(summary(certificate), explained(certificate, None, None))
    told = console.export_text(clear=False)
    assert ("\x1b" in told, "[/of]" in told, "EU\\n" in told) == (False, True, True)
    for shown in (page(certificate), console.export_text()):
        assert f"{at_ms:,} ms" in shown


def told(difference: Difference) -> dict[str, Any]:
    return {**difference_document(difference), "finding": finding_id("revenue", difference)}


def test_what_a_file_cannot_hold_as_it_is_does_not_break_the_hash(tmp_path: Path) -> None:
    begins = {"orders": {2: 5, 10: 7}}
    (tmp_path / "night-1.json").write_text(json.dumps(certified(findings("night-1") | {"begins": begins}, None)))
    assert "complete" in verify_file(tmp_path / "night-1.json")[-1]


def test_a_certificate_of_another_format_does_not_verify(folder: Path) -> None:
    other = changed(folder, "night-1", lambda one: one.update(format="recount certificate 1"), rehash=True)
    with pytest.raises(Unverified, match="format"):
        verify_file(other)


def test_what_is_no_certificate_is_refused_and_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(Terminal):
        certificates_in(tmp_path)
    with pytest.raises(Terminal):
        load(tmp_path / "missing.json")
    folder = tmp_path / "certificates/orders"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "night.json")
    (folder / "linked.json").symlink_to(folder / "night.json")
    for name in ("night", "linked"):
        for read in (load, sound):
            with pytest.raises(Terminal):
                read(folder / f"{name}.json")
        assert held_certificate(str(tmp_path), "orders", name) is None
    assert [fault.kind for fault in chain_in(folder, "orders").faults()] == ["altered", "altered"]
    assert [one.outcome for one in certificates(str(tmp_path), "orders")] == ["unreadable", "unreadable"]


def test_the_page_stands_alone_and_names_every_difference_by_its_offsets() -> None:
    twice = replace(ALTERED, verdict="duplicated", key="<b>EU</b>", expected='{"orders":5}', actual='{"orders":5}')
    document = findings("night-1") | {"by_arrival": ["left join with table, of zones"]}
    followed(document, open=[replace(twice, cause="written 2 times", evidence=("revenue-0@0", "revenue-0@23"))])
    html = page({**certified(document, None, key_id="0123456789abcdef"), "signature": "5ec0de"})
    texts = ["duplicated", "revenue-0@23", "orders 5 → 6", "1 late record: ", "orders-0@7 +3 min", "<svg", "night-0"]
    texts += ["&lt;b&gt;EU&lt;/b&gt;", "looked up by arrival", "left join with table, of zones"]
    texts += ["signed with key 0123456789abcdef", "5ec0de", *(letter * 64 for letter in "fabc")]
    assert [text for text in texts if text not in html] == []
    assert "http" not in html and "<script" not in html
    assert "looked up by arrival" not in page(certified(findings("night-1"), None))


def a_finding(number: int, **said: Any) -> dict[str, Any]:
    row = {"key": f"key-{number}", "window_start": 0, "window_end": 60_000, "origin": None, "finding": f"id-{number}"}
    told = {"kind": "output", "place": "table outputs/visits", "verdict": "lost", "expected": "{n: 1}", "actual": None}
    why = {"cause": "nobody wrote it", "evidence": ["visits-0@12"], "state": "open", "first_audit": "tonight"}
    return {**row, **told, **why, **said}


def red_certificate(*found: dict[str, Any], accepted: int = 0) -> Any:
    taken = [a_finding(900 + number, state="accepted") for number in range(accepted)]
    section = {"open": list(found), "open_found": len(found), "accepted": taken, "accepted_found": accepted}
    return {
        "stream": "clinic-visits",
        "audit": "tonight",
        "differences_found": len(found),
        "findings": {**section, "repaired": [], "repaired_found": 0},
    }


def test_each_finding_is_told_with_row_values_cause_and_offsets() -> None:
    told = violation_in_words(red_certificate(a_finding(1, first_audit="yesterday"), a_finding(2), accepted=3))
    assert told.splitlines()[:6] == [
        "violation: 2 open findings of clinic-visits, 1 of them since an earlier audit",
        "- finding id-1: lost, output, table outputs/visits, key-1 in 1970-01-01 00:00 to 00:01 UTC",
        "    expected {n: 1}",
        "    cause    nobody wrote it",
        "    at       visits-0@12",
        "- finding id-2: lost, output, table outputs/visits, key-2 in 1970-01-01 00:00 to 00:01 UTC",
    ]
    assert "recount findings --stream clinic-visits" in told
    assert "id-900" not in told, "what was accepted is not why the audit is red"


def test_of_many_findings_the_first_are_told_and_long_values_are_cut() -> None:
    forged = "\n- finding id-2: repaired\x1b[2J" * 50_000
    many = [a_finding(number, actual="x" * 5_000, key=forged) for number in range(FIRST + 3)]
    told = violation_in_words(red_certificate(*many))
    assert sum(line.startswith("- finding ") for line in told.splitlines()) == FIRST, "a key makes no line of its own"
    assert "\x1b" not in told
    assert "- and 3 more" in told
    assert max(map(len, told.splitlines())) < 2 * LONGEST


HOUR_MS = 3_600_000


def test_of_a_result_of_a_window_only_the_fields_that_differ_are_said() -> None:
    """As the auditor of single aggregations writes results."""
    old = '{"orders":5,"revenue":10.50,"largest":9,"recount_timestamp_ms":1000}'
    new = '{"orders":6,"revenue":20.75,"largest":9,"recount_timestamp_ms":61000}'
    assert change_in_words(old, new) == (
        "orders 5 → 6, revenue 10.50 → 20.75, time 1970-01-01 00:00:01 → 1970-01-01 00:01:01"
    )


def test_of_a_row_of_any_topology_too_and_a_field_that_is_null_is_none() -> None:
    """As the auditor of any topology writes rows, without the fields that are null."""
    old = json.dumps({"row": {"store": "A1", "window_end": HOUR_MS, "sales": 2}, "timestamp_ms": 5})
    new = json.dumps({"row": {"store": "A1", "window_end": 2 * HOUR_MS, "sales": 2, "tier": "gold"}, "timestamp_ms": 5})
    assert change_in_words(old, new) == "window_end 1970-01-01 01:00:00 → 1970-01-01 02:00:00, tier none → gold"


@pytest.mark.parametrize("nothing", [None, "deleted"])
def test_a_row_that_is_not_there_is_said_to_be_none(nothing: str | None) -> None:
    row = '{"row":{"n":1,"who":"ada"},"timestamp_ms":0}'
    assert change_in_words(nothing, row) == "no row → n 1, who ada, time 1970-01-01 00:00:00"
    assert change_in_words(row, nothing) == "n 1, who ada, time 1970-01-01 00:00:00 → no row"


def test_what_is_no_row_stays_as_it_is() -> None:
    assert change_in_words("5 records", "{") == "5 records → {"
    assert sides_in_words("[1]", '{"n":1}') == ("[1]", '{"n":1}')
    assert sides_in_words('{"n":1}', '{"n":1}') == ('{"n":1}', '{"n":1}'), "a duplicate differs in no field"


def test_an_expected_and_an_actual_row_are_said_by_what_differs() -> None:
    assert sides_in_words('{"n":1,"m":2,"k":3}', '{"n":4,"m":2}') == ("n 1, k 3", "n 4")
    assert sides_in_words(None, '{"n":4}') == (None, "n 4")
    assert sides_in_words("1363564800000 ms", "269663 ms") == ("2013-03-18 00:00:00", "4 min 29 s"), "of no rows"


def test_the_margin_of_a_late_record_is_said_in_words() -> None:
    assert late_in_words("orders-0@7 +269663 ms") == "orders-0@7 +4 min 29 s"
    assert late_in_words("zones-0@1 read after orders-0@7") == "zones-0@1 read after orders-0@7"
