"""A red audit says in the task's log, and so in notifications, what differs and what to do."""

from __future__ import annotations

from typing import Any

from recount.audit.certificate.summary import FIRST, LONGEST, violation_in_words


def finding(number: int, **said: Any) -> dict[str, Any]:
    row = {"key": f"key-{number}", "window_start": 0, "window_end": 60_000, "origin": None, "finding": f"id-{number}"}
    told = {"kind": "output", "place": "table outputs/visits", "verdict": "lost", "expected": "{n: 1}", "actual": None}
    why = {"cause": "nobody wrote it", "evidence": ["visits-0@12"], "state": "open", "first_audit": "tonight"}
    return {**row, **told, **why, **said}


def certificate(*found: dict[str, Any], accepted: int = 0) -> Any:
    taken = [finding(900 + number, state="accepted") for number in range(accepted)]
    section = {"open": list(found), "open_found": len(found), "accepted": taken, "accepted_found": accepted}
    return {
        "stream": "clinic-visits",
        "audit": "tonight",
        "differences_found": len(found),
        "findings": {**section, "repaired": [], "repaired_found": 0},
    }


def test_each_finding_is_told_with_row_values_cause_and_offsets() -> None:
    told = violation_in_words(certificate(finding(1, first_audit="yesterday"), finding(2), accepted=3))
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
    many = [finding(number, actual="x" * 5_000, key=forged) for number in range(FIRST + 3)]
    told = violation_in_words(certificate(*many))
    assert sum(line.startswith("- finding ") for line in told.splitlines()) == FIRST, "a key makes no line of its own"
    assert "\x1b" not in told
    assert "- and 3 more" in told
    assert max(map(len, told.splitlines())) < 2 * LONGEST
