"""``python -m tests.packages``, in ``make lint``: licences and known vulnerabilities of the packages of main.lock."""

from __future__ import annotations

import sys

from tests.packages.allowed import FILE, LOCK, Allowed, locked
from tests.packages.licences import licence_faults, licences
from tests.packages.vulnerabilities import NotAsked, asked, vulnerability_faults

if __name__ == "__main__":
    allowed, packages = Allowed.read(FILE.read_text()), locked(LOCK.read_text())
    faults = licence_faults(licences(packages), allowed)
    print(f"licences of {len(packages)} packages: {f'{len(faults)} faults' if faults else 'allowed'}")
    try:
        found = vulnerability_faults(asked(LOCK), allowed.vulnerabilities)
        print(f"vulnerabilities: {f'{len(found)} faults' if found else 'none known that is not listed'}")
        faults += found
    except NotAsked as reason:
        print(f"vulnerabilities: not looked up, {reason}")
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(bool(faults))
