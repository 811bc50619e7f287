"""Spark for audits of few records: most of what they cost is to compile and to plan.

And the line by which a night says that it refused a stream.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_OFFSETS = 300_000
"""An audit that reads no more of the log is one of few records. Where compiling begins to pay was not measured."""
FOR_FEW = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
}
"""Nothing is compiled for a query, and its plan, which is long, is not described at length to Spark's listeners. One
task does what two could: to send a task costs more than it does."""
COLLECTOR = "-XX:+UseParallelGC"
"""The collector that a JVM takes by itself marks its heap beside the work: 4 percent of an audit's processor time."""
JAVA_FOR_FEW = f"{COLLECTOR} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m"
"""The JVM's optimizing compiler would take a third of all processor time, and hardly has begun to pay in the end."""
OF_AN_AUDIT = {"spark.memory.fraction": "0.4"}
"""Spark's settings for the application of audits. Rows that are kept for later queries fill the part of the heap that
is Spark's; what does not fit goes to disk. With Spark's default of 0.6, and plans and tables beside, the JVM collected
its heap without end in the audits of a shop of 100,000 records."""
_CALL_SITES = ("callSite.short", "callSite.long")
_FINAL = re.compile(r"(\S+): not audited, and no retry can help: (.*)")


def session_for(application: SparkSession, offsets: int) -> SparkSession:
    """A session of ``application`` with settings of its own, for an audit that reads so many offsets."""
    session = application.newSession()
    suit(session, offsets)
    return session


def suit(session: SparkSession, offsets: int) -> None:
    """Give ``session`` the settings for so many offsets, whatever it has had them for before.

    And this thread one call site: Spark would walk the stack for each RDD of each query to find where it was made.
    """
    for name in _CALL_SITES:
        session.sparkContext.setLocalProperty(name, "audit")
    for name, value in FOR_FEW.items():
        given = value if offsets <= FEW_OFFSETS else session.sparkContext.getConf().get(name)
        if given is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, given)


def java_options_for(offsets: int) -> str:
    """The options of the JVM of an application whose audits read so many offsets at most."""
    return JAVA_FOR_FEW if offsets <= FEW_OFFSETS else COLLECTOR


def not_audited(stream: str, why: str, *, final: bool) -> str:
    """The line; ``final`` where a human must act."""
    return f"{stream}: not audited{', and no retry can help' if final else ''}: {why}"


def refused_in(line: str) -> tuple[str, str] | None:
    """The stream that a final refusal names, and why; None in every other line."""
    found = _FINAL.fullmatch(line.strip())
    return (found[1], found[2]) if found else None
