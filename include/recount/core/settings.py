"""The environment, read once at an entry point: one frozen object, every fault reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Literal, cast

from recount.core.errors import InvalidDeclaration, Terminal
from recount.core.kept_files import Keeping

Profile = Literal["embedded", "production"]
PREFIX = "RECOUNT_"
_PREFIX_OF_IDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OF_THE_LAUNCHER = frozenset({"RECOUNT_HOME"})


class InvalidSettings(Terminal):
    """All missing, unknown and invalid keys of the environment, together."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__(
            "invalid settings",
            given="; ".join(faults),
            expected="the keys of recount.core.settings.Settings",
            remedy="run inside `recount up`, or set them as docker-compose.yml does",
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where everything is. Each field is read from ``RECOUNT_`` + its name in capitals.

    ``data``, ``checkpoints`` are folders or URIs that Spark can write; ``reports`` and ``logs`` are local folders.
    ``prefix`` begins every group, transactional.id and platform topic of this installation on its Kafka cluster.
    ``notifiers`` is the place of the Airflow notifiers that are told of what is wrong, ``module:name``.
    ``audit_pool`` is the Airflow pool in which audits run; whoever sets it makes the pool.
    ``keys`` is the folder of the key that signs certificates; without it they are issued unsigned.
    ``keeping`` says how long files are kept, see ``core.kept_files``.
    """

    profile: Profile
    bootstrap_servers: str
    data: str
    checkpoints: str
    reports: str
    logs: str
    run: str
    jars: str
    topologies: str = "topologies"
    notifiers: str = ""
    prefix: str = "recount"
    keys: str = ""
    audit_pool: str = "default_pool"
    keeping: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read and check ``environ``; raises ``InvalidSettings`` naming every fault."""
        known = {PREFIX + field.name.upper(): field for field in fields(cls)}
        given = {key: value for key, value in environ.items() if key.startswith(PREFIX)}
        faults = [f"{key} is unknown" for key in sorted(given.keys() - known.keys() - _OF_THE_LAUNCHER)]
        faults += [
            f"{key} is missing" for key, field in known.items() if not given.get(key) and field.default is MISSING
        ]
        profile = given.get("RECOUNT_PROFILE", "embedded")
        if profile not in ("embedded", "production"):
            faults.append(f"RECOUNT_PROFILE is {profile!r}, not embedded or production")
        prefix = given.get("RECOUNT_PREFIX") or "recount"
        if not _PREFIX_OF_IDS.fullmatch(prefix):
            faults.append(f"RECOUNT_PREFIX is {prefix!r}, not 1 to 64 letters, digits, '_' or '-'")
        try:
            Keeping.of(given.get("RECOUNT_KEEPING", ""))
        except InvalidDeclaration as fault:
            faults.append(f"RECOUNT_KEEPING: {fault}")
        if faults:
            raise InvalidSettings(faults)
        values = {field.name: given[key] for key, field in known.items() if given.get(key)}
        return cls(**cast("dict[str, Profile]", values))

    def to_environment(self) -> dict[str, str]:
        """The environment from which ``from_environment`` reads this object back."""
        return {PREFIX + field.name.upper(): str(getattr(self, field.name)) for field in fields(self)}
