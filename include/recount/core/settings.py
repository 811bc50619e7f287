"""The environment, read once at an entry point: one frozen object, every fault reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, cast

from recount.core.errors import Terminal

Profile = Literal["embedded", "production"]
PREFIX = "RECOUNT_"
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

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read and check ``environ``; raises ``InvalidSettings`` naming every fault."""
        known = {PREFIX + field.name.upper(): field for field in fields(cls)}
        given = {key: value for key, value in environ.items() if key.startswith(PREFIX)}
        faults = [f"{key} is unknown" for key in sorted(given.keys() - known.keys() - _OF_THE_LAUNCHER)]
        faults += [
            f"{key} is missing" for key, field in known.items() if not given.get(key) and field.name != "topologies"
        ]
        profile = given.get("RECOUNT_PROFILE", "embedded")
        if profile not in ("embedded", "production"):
            faults.append(f"RECOUNT_PROFILE is {profile!r}, not embedded or production")
        if faults:
            raise InvalidSettings(faults)
        values = {field.name: given[key] for key, field in known.items() if given.get(key)}
        return cls(**cast("dict[str, Profile]", values))

    def to_environment(self) -> dict[str, str]:
        """The environment from which ``from_environment`` reads this object back."""
        return {PREFIX + field.name.upper(): str(getattr(self, field.name)) for field in fields(self)}
