"""What a started profile offers; read by every later command, so this module imports next to nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from recount.local.home import Home


@dataclass(frozen=True, kw_only=True)
class Running:
    """What a started profile offers, kept in the home for the commands that come after it.

    ``ports`` are by part, for a part that is started again; a profile that an earlier release has started names none.
    """

    bootstrap_servers: str
    spark_master: str
    spark_url: str | None
    airflow_url: str | None
    settings: dict[str, str]
    brokers: int = 1
    ports: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, home: Home) -> Running | None:
        """The profile that was started in ``home`` and not stopped since, if there is one."""
        return cls(**json.loads(home.profile.read_text())) if home.profile.exists() else None
