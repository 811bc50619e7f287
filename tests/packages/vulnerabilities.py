"""Which vulnerabilities of the packages are known, as pip-audit finds them, held against those that are listed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.packages.allowed import FILE

_TIMEOUT_S = 600
_LONGEST = 200
Report = Mapping[str, Any]


class NotAsked(Exception):
    """Nobody has said which vulnerabilities there are; the message says why, in a line."""


def asked(lock: Path) -> Report:
    """The report of pip-audit about the packages of ``lock``. Raises ``NotAsked`` on a machine that cannot ask."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--require-hashes", "--disable-pip"]
    options = ["--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotAsked(f"pip-audit took longer than {_TIMEOUT_S} s") from None
    return report_of(ended.stdout, ended.stderr)


def report_of(output: str, errors: str) -> Report:
    """What pip-audit has printed, read. It ends with 1 where it finds something, and where it cannot ask."""
    try:
        report: Report = json.loads(output)
    except ValueError:
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        raise NotAsked(lines[-1][:_LONGEST] if lines else "pip-audit said nothing") from None
    packages = report["dependencies"]
    unknown = [one["name"] for one in packages if "skip_reason" in one]
    if unknown:
        raise NotAsked(f"{len(unknown)} of {len(packages)} packages were not looked up, such as {unknown[0]}")
    return report


def vulnerability_faults(report: Report, listed: Mapping[str, str]) -> list[str]:
    """Vulnerabilities that are not listed, and those that are and concern no package any more."""
    found = {
        (package["name"], package["version"], one["id"]): one
        for package in report["dependencies"]
        for one in package["vulns"]
    }
    known = {key: {one["id"], *one.get("aliases", ())} for key, one in found.items()}
    return [
        *(
            f"{name} {version} has the vulnerability {', '.join(sorted(known[name, version, number]))}: "
            f"{_remedy(found[name, version, number])}"
            for name, version, number in found
            if not known[name, version, number] & listed.keys()
        ),
        *(
            f"{number} concerns no package any more: remove it from [vulnerabilities] of requirements/{FILE.name}"
            for number in sorted(listed.keys() - set().union(*known.values()))
        ),
    ]


def _remedy(vulnerability: Mapping[str, Any]) -> str:
    listing = f"list it in [vulnerabilities] of requirements/{FILE.name} with the reason why it is no danger here"
    versions = vulnerability.get("fix_versions") or []
    return f"take {' or '.join(versions)} (make lock), or {listing}" if versions else listing
