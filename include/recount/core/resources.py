"""What a Spark application of a stream may take: executors, memory, Spark's own settings.

>>> Resources(executors=2, executor_memory="4g").executor_memory
'4g'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from recount.core.errors import require

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
                given is None or (type(given) is int and given > 0),
                name,
                given=given,
                expected="an integer > 0",
                remedy="leave it out for what the cluster gives",
            )
        for name in ("executor_memory", "driver_memory"):
            given = getattr(self, name)
            require(
                given is None or (isinstance(given, str) and _MEMORY.fullmatch(given) is not None),
                name,
                given=given,
                expected="a number with the unit m or g, such as '2g'",
                remedy="leave it out for the default",
            )
        require(
            isinstance(self.conf, Mapping),
            "conf",
            given=self.conf,
            expected="a mapping of Spark's settings, such as {'spark.sql.shuffle.partitions': '8'}",
            remedy="write a dictionary",
        )
        for key, value in self.conf.items():
            require(
                isinstance(key, str) and key.startswith("spark.") and isinstance(value, str),
                f"conf {key}",
                given=value,
                expected="a setting that begins with 'spark.' and a text",
                remedy="write numbers and true or false in quotes, as spark-submit takes them",
            )
            require(
                key not in _ELSEWHERE,
                f"conf {key}",
                given=value,
                expected="a setting that Recount leaves to you",
                remedy=_ELSEWHERE.get(key, ""),
            )

    def with_driver_memory(self, default: str) -> Resources:
        """These, with ``default`` where no memory of the driver was said."""
        return self if self.driver_memory else replace(self, driver_memory=default)

    @property
    def total_cores(self) -> int | None:
        """The cores of all executors; None where their number is the cluster's affair."""
        return None if self.executors is None else self.executors * (self.executor_cores or 1)
