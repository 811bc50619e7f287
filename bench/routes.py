"""To which of a job's output topics a result belongs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Routes:
    """By region the end of a topic's name, and the one of all ``others``; by default there is one topic."""

    by_region: Mapping[str, str] = field(default_factory=dict)
    others: str = ""

    @property
    def endings(self) -> tuple[str, ...]:
        """How the names of all topics end."""
        return (*self.by_region.values(), self.others)

    def ending(self, region: str | None) -> str:
        """How the name of the topic of ``region`` ends; no region is one of the others."""
        return self.others if region is None else self.by_region.get(region, self.others)


ONE_TOPIC = Routes()
BY_REGION = Routes(by_region={"EU": "-eu", "US": "-us"}, others="-rest")
