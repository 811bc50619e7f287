"""What the reference interpreter makes of the planted days: the numbers that the streams are held against.

Two days of the shop, of which is known what they hold: what ``make shop-demo`` feeds its streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

from examples.shop.shop_records import CLOSING, TABLES, Arrival, Pace, Planted, ShopFlow, last_records

from recount.audit.compare.identity import identity_of
from recount.declare.operators.nodes import KEY
from recount.declare.topology import Topology, Written
from recount.reference.record_clock import Output
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.times import milliseconds

Rows = Counter[str]

"""Rows of a sink as text, with how often each is there; none of last records."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """``fates`` of the records of each day, by their names in a certificate; ``rows`` of each sink in the end."""

    fates: Sequence[Mapping[str, int]]
    rows: Mapping[str, Rows]


def expected(topology: Topology, days: Iterable[Sequence[Arrival]], partitions: Mapping[str, int]) -> Expected:
    """What ``topology`` makes of ``days``, record by record."""
    sources = {source.topic.name for source in topology.sources}
    driver = TopologyDriver(topology, partitions={name: partitions[name] for name in sources})
    told: list[Counter[str]] = [Counter()]
    for day in days:
        for one in day:
            if one.topic in sources:
                driver.pipe(
                    one.topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, partition=one.partition
                )
        told.append(Counter({fate.replace("-", "_").replace(" ", "_"): many for fate, many in driver.fates.items()}))
    return Expected(
        fates=[later - earlier for earlier, later in pairwise(told)],
        rows={written.topic.name: _rows(written, driver.outputs(written.topic.name)) for written in topology.written},
    )


def _rows(written: Written, outputs: Sequence[Output]) -> Rows:
    """As a reader sees them: of rows that replace each other the last ones, and no deletions."""
    if identity_of(written).is_latest:
        outputs = list({(one.key, one.window): one for one in outputs}.values())
    return counted((one.key, one.value) for one in outputs if one.value is not None)


def counted(rows: Iterable[tuple[Any, Mapping[str, Any]]]) -> Rows:
    """Rows of (key, fields), to be compared."""
    told = (f"{key!r} {sorted((name, cell) for name, cell in value.items() if name != KEY)}" for key, value in rows)
    return Counter(one for one in told if CLOSING not in one)


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
