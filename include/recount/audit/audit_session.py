"""Spark for audits of few records: most of what they cost is to compile and to plan."""

from __future__ import annotations

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
JAVA_FOR_FEW = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m"
"""The JVM's optimizing compiler would take a third of all processor time, and hardly has begun to pay in the end."""


def session_for(application: SparkSession, offsets: int) -> SparkSession:
    """A session of ``application`` with settings of its own, for an audit that reads so many offsets."""
    session = application.newSession()
    suit(session, offsets)
    return session


def suit(session: SparkSession, offsets: int) -> None:
    """Give ``session`` the settings for so many offsets, whatever it has had them for before."""
    for name, value in FOR_FEW.items():
        given = value if offsets <= FEW_OFFSETS else session.sparkContext.getConf().get(name)
        if given is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, given)


def java_options_for(offsets: int) -> str:
    """The options of the JVM of an application whose audits read so many offsets at most."""
    return JAVA_FOR_FEW if offsets <= FEW_OFFSETS else ""
