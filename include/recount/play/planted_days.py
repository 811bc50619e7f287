"""Two days of the shop, of which is known what they hold: what ``recount demo --all`` feeds its streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from recount.core.durations import milliseconds
from recount.play.arrival import Arrival, Pace, last_records
from recount.play.shop_flow import TABLES, Planted, ShopFlow

DAYS = 2
_DAY_MS = milliseconds("1 d")
_AFTER_MS = milliseconds("50 h")
"""How long after the second day the last records are, so that they close every window of the shop."""


@dataclass(frozen=True, kw_only=True)
class PlantedDays:
    """``DAYS`` days of ``records`` each over ``records`` seconds of event time, for the topics of ``partitions``.

    Every partition has a last record at the end of each day, the last of all at ``end_ms``: whichever batch reads a
    partition first, no other is behind it. A day's records of tables come first, so that each lookup finds them.
    """

    partitions: Mapping[str, int]
    end_ms: int
    records: int = 6_000
    people: int = 40
    seed: int = 20

    def day(self, number: int) -> list[Arrival]:
        """The records of the day ``number``, from 0, in the order in which they are produced."""
        start = number * self.records
        made = [self._of_day(one.arrival, number) for one in self._planted[start : start + self.records]]
        return [
            *sorted(made, key=lambda one: one.topic not in TABLES),
            *last_records(self.partitions, self._end(number)),
        ]

    def faults(self, number: int) -> Counter[str]:
        """How many records of the day were planted late, bad or as a tombstone."""
        start = number * self.records
        return Counter(one.fault for one in self._planted[start : start + self.records] if one.fault)

    @cached_property
    def _planted(self) -> list[Planted]:
        flow = ShopFlow(
            partitions=self.partitions, begin_ms=self._begin_ms, pace=Pace(rate=1), seed=self.seed, people=self.people
        )
        return list(islice(flow, DAYS * self.records))

    def _of_day(self, record: Arrival, number: int) -> Arrival:
        return replace(record, timestamp_ms=record.timestamp_ms + number * _DAY_MS)

    def _end(self, number: int) -> int:
        return self.end_ms if number == DAYS - 1 else self._begin_ms + number * _DAY_MS + _DAY_MS // 2

    @property
    def _begin_ms(self) -> int:
        return self.end_ms - _AFTER_MS - DAYS * _DAY_MS
