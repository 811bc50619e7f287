"""Limits of a stream: when it counts as unhealthy, and the executors, memory and Spark settings it may take.

>>> Resources(executors=2, executor_memory="4g").executor_memory
'4g'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

from recount.declare.unknown_names import declares
from recount.runtime.errors import require, require_each

LEAST_COUNT = 10
"""Fewer dead letters or late records than this are no share worth a warning, however few records there were.

So are fewer records without a row in a lookup.
"""
_MEMORY = re.compile(r"[1-9][0-9]*[mg]")
_CONNECTION = "set it in the Airflow connection of the cluster"
_BY_RECOUNT = "leave it out: it is set by Recount"
_ELSEWHERE = MappingProxyType(
    {
        "spark.master": _CONNECTION,
        "spark.submit.deployMode": _CONNECTION,
        "spark.driver.memory": "write Resources(driver_memory=...)",
        "spark.executor.memory": "write Resources(executor_memory=...)",
        "spark.executor.cores": "write Resources(executor_cores=...)",
        "spark.executor.instances": "write Resources(executors=...)",
        "spark.cores.max": "write Resources(executors=..., executor_cores=...)",
        "spark.jars": "put the jar into the folder RECOUNT_JARS",
        "spark.app.name": _BY_RECOUNT,
        "spark.driver.extraJavaOptions": _BY_RECOUNT,
        "spark.sql.extensions": _BY_RECOUNT,
        "spark.sql.catalog.spark_catalog": _BY_RECOUNT,
        "spark.sql.session.timeZone": "leave it out: Recount computes in UTC",
    }
)


@declares
@dataclass(frozen=True, kw_only=True)
class Health:
    """The limits of a stream's health; ages in milliseconds of a driver's life, shares between 0 and 1.

    Beyond ``heartbeat_age_ms``, or ``progress_age_ms`` and the trigger interval without a sign of work while there is
    something to do, the driver makes no progress: it has failed, and is relaunched. A stream with nothing to read makes
    none and is well, and so is a batch that takes long and goes on.

    Beyond the others the stream is degraded, its driver goes on, and notifiers run. ``lag`` counts offsets from what
    is committed to the end of the log; for longer than ``open_transaction_ms`` no transaction may stop reading.
    ``frontier_age_ms`` is in event time. ``dead_letters`` and ``late`` are the largest shares of a night's records, by
    which an audit warns, and of those that a driver has read; ``batch_dead_letters`` and ``batch_late`` those of the
    last batch. ``lookup_misses`` is the largest share of the records of one lookup that find no row of its table: a
    left lookup gives them nulls, an inner one drops them. Fewer than ``LEAST_COUNT`` are never too many. ``memory`` is
    the share of the memory of the driver's machine or container that may be in use.
    """

    heartbeat_age_ms: int = 30_000
    progress_age_ms: int = 180_000
    lag: int = 10_000_000
    open_transaction_ms: int = 60_000
    frontier_age_ms: int = 86_400_000
    dead_letters: float = 0.01
    late: float = 0.05
    batch_dead_letters: float = 0.1
    batch_late: float = 0.5
    lookup_misses: float = 0.95
    memory: float = 0.9

    def __post_init__(self) -> None:
        for one in fields(self):
            given = getattr(self, one.name)
            is_share = isinstance(one.default, float)
            require(
                isinstance(given, int | float)
                and not isinstance(given, bool)
                and (0 <= given <= 1 if is_share else isinstance(given, int) and given >= 0),
                "health-limit-out-of-range",
                given=given,
                name=one.name,
                expected="a share between 0 and 1" if is_share else "an integer >= 0",
                remedy="0.01 is one record in a hundred" if is_share else f"leave it out for {one.default}",
            )

    def excesses(self, records: int, dead_letters: int, late: int) -> list[str]:
        """Which shares of a night's records are beyond their limits, each as a sentence with all numbers."""
        return list(_excesses("", records, (dead_letters, self.dead_letters), (late, self.late)))

    def excesses_of_batch(self, batch: str, records: int, dead_letters: int, late: int) -> list[str]:
        """The same of one ``batch``, which the sentences name."""
        dead = (dead_letters, self.batch_dead_letters)
        return list(_excesses(f" of {batch}", records, dead, (late, self.batch_late)))

    def excess_of_lookup(self, lookup: str, records: int, misses: int, cause: str | None = None) -> list[str]:
        """Whether too many ``records`` of one ``lookup`` find no row of its table, as a sentence with all numbers.

        It ends with the ``cause``, where that is known.
        """
        if misses < LEAST_COUNT or misses <= self.lookup_misses * records:
            return []
        share = f"{misses / records:.2%}, limit {self.lookup_misses:.2%}"
        found = f"{misses:,} of {records:,} records find no row in the {lookup}: {share}"
        return [f"{found}; {cause or 'was the table loaded later?'}"]


def require_health(given: object) -> None:
    require_each("not-a-health", [given], Health)


def _excesses(of: str, records: int, dead: tuple[int, float], late: tuple[int, float]) -> Iterator[str]:
    for name, (count, limit) in {"dead letters": dead, "late records": late}.items():
        if count >= LEAST_COUNT and count > limit * records:
            yield f"{count:,} {name}{of} in {records:,} records: {count / max(1, records):.2%}, limit {limit:.2%}"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The size of one Spark application; what is left out is as the cluster has it.

    ``executors`` are as many as there are always, each with ``executor_cores`` and ``executor_memory``; without an
    ``executor_cores`` one has one core. They mean nothing where the master is local. Memory is in Spark's notation,
    ``"2g"``; ``driver_memory`` is the heap of the driver's JVM. ``conf`` goes to spark-submit as it is.
    """

    executors: int | None = None
    executor_cores: int | None = None
    executor_memory: str | None = None
    driver_memory: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("executors", "executor_cores"):
            given = getattr(self, name)
            require(
                given is None or (type(given) is int and given > 0), "resource-not-a-count", given=given, field=name
            )
        for name in ("executor_memory", "driver_memory"):
            given = getattr(self, name)
            require(
                given is None or (isinstance(given, str) and _MEMORY.fullmatch(given) is not None),
                "resource-not-a-memory",
                given=given,
                field=name,
            )
        require(isinstance(self.conf, Mapping), "conf-not-a-mapping", given=self.conf)
        for key, value in self.conf.items():
            require(
                isinstance(key, str) and key.startswith("spark.") and isinstance(value, str),
                "conf-not-of-spark",
                given=value,
                key=key,
            )
            require(key not in _ELSEWHERE, "conf-of-recount", given=value, key=key, remedy=_ELSEWHERE.get(key, ""))

    def with_driver_memory(self, default: str) -> Resources:
        """These, with ``default`` where no memory of the driver was said."""
        return self if self.driver_memory else replace(self, driver_memory=default)

    @property
    def total_cores(self) -> int | None:
        """The cores of all executors; None where their number is the cluster's affair."""
        return None if self.executors is None else self.executors * (self.executor_cores or 1)
