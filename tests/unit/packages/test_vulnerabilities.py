"""What `make lint` makes of a report of pip-audit, by a report in its format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.packages.vulnerabilities import NotAsked, report_of, vulnerability_faults

REPORT = (Path(__file__).parent / "pip_audit_report.json").read_text()


def test_a_vulnerability_that_is_not_listed_is_a_fault_with_what_to_do() -> None:
    found = vulnerability_faults(report_of(REPORT, ""), {})
    assert len(found) == 3
    assert "jinja2 2.4.1 has the vulnerability CVE-2014-0012, GHSA-fqh9-2qgg-h84h, PYSEC-2014-8" in found[0]
    assert "take 2.7.3 (make lock), or list it" in found[0]
    assert "allowed.toml with the reason" in found[2] and "take" not in found[2]


@pytest.mark.parametrize("listed", ["PYSEC-2014-8", "CVE-2014-0012"])
def test_one_that_is_listed_by_its_id_or_an_alias_is_none(listed: str) -> None:
    found = vulnerability_faults(report_of(REPORT, ""), {listed: "no file of others is read"})
    assert len(found) == 2 and "PYSEC-2014-8" not in " ".join(found)


def test_one_that_is_listed_and_found_no_more_is_a_fault() -> None:
    [*_, last] = vulnerability_faults(report_of(REPORT, ""), {"CVE-1999-1": "long ago"})
    assert last.startswith("CVE-1999-1 concerns no package any more")


@pytest.mark.parametrize(
    ("output", "errors", "told"),
    [
        ("", "WARNING:…\nERROR:pip_audit._cli:Could not connect to the service\n", "Could not connect"),
        ("", "", "said nothing"),
        ("No known vulnerabilities found", "", "said nothing"),
        (json.dumps({"dependencies": [{"name": "rich", "skip_reason": "not found"}]}), "", "1 of 1 packages"),
    ],
)
def test_a_machine_that_cannot_ask_is_told_in_a_line_and_is_no_fault(output: str, errors: str, told: str) -> None:
    with pytest.raises(NotAsked) as raised:
        report_of(output, errors)
    assert told in str(raised.value) and "\n" not in str(raised.value)
