"""What the reference interpreter makes of the planted days: the numbers that the streams are held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from recount.audit.topologies.identity import identity_of
from recount.core.interpreter.driver import TopologyDriver
from recount.core.interpreter.sinks import Output
from recount.core.nodes import KEY
from recount.core.topology import Topology, Written
from recount.play.arrival import CLOSING, Arrival

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
