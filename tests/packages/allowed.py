"""requirements/allowed.toml, and which packages are in the lock."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
LOCK = REQUIREMENTS / "main.lock"
FILE = REQUIREMENTS / "allowed.toml"


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Licences by their name in SPDX; packages of other licences and advisories, each with its reason."""

    licences: frozenset[str]
    other_licences: Mapping[str, str]
    vulnerabilities: Mapping[str, str]

    @classmethod
    def read(cls, text: str) -> Allowed:
        """Raises ``ValueError`` where a reason is missing."""
        given = tomllib.loads(text)
        licences = frozenset(given.pop("licences"))
        reasons: dict[str, dict[str, str]] = {name: given.pop(name) for name in ("other_licences", "vulnerabilities")}
        without = [name for table in reasons.values() for name, reason in table.items() if not reason.strip()]
        if given or without:
            raise ValueError(f"{FILE.name}: unknown {sorted(given)}; without a reason {sorted(without)}")
        return cls(licences=licences, **reasons)


def locked(lock: str) -> list[str]:
    """The names of the packages of a lock that are for this machine, as the index writes them."""
    lines = [line.removesuffix("\\") for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    found = [Requirement(line.strip()) for line in lines]
    return [canonicalize_name(one.name) for one in found if one.marker is None or one.marker.evaluate()]
