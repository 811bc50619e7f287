"""The records of a source topic, decoded once for all sources that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recount.core.nodes import KEY, Source
from recount.recompute.columns import named
from recount.recompute.decoding import IS_NULL, DecodePass, Limits
from recount.recompute.graph.rows import CARRIED, ORDER, PLACE, SUPERSEDED, TIME, TOPIC, at_place, shaped
from recount.recompute.log import RawLog

_FIELD = "field."


@dataclass(frozen=True, kw_only=True)
class WholeTopic:
    """All fields of a source's topic."""

    source: Source
    needs_record_key: bool

    @property
    def columns_read(self) -> Sequence[str]:
        """Every declared field: several flows may read the topic."""
        assert self.source.topic.value is not None
        return list(self.source.topic.value.fields)


def decoded(
    raw: RawLog,
    source: Source,
    *,
    needs_record_key: bool,
    limits: Mapping[int, Limits],
    read_since: Mapping[str, Mapping[int, int]],
) -> DataFrame:
    """One row per record of the topic's log: place, event time, key, fields, and ``reason`` of a bad one."""
    reading = WholeTopic(source=source, needs_record_key=needs_record_key)
    decode = DecodePass(flow=reading, limits=limits, prefix=_FIELD, read_since=read_since)
    rows = raw.through(decode.schema, decode)
    places = {"partition": PLACE[1], "offset": PLACE[2], "timestamp_ms": TIME}
    return rows.withColumnsRenamed(places).withColumn(TOPIC, F.lit(source.topic.name))


def entries(log: DataFrame) -> DataFrame:
    """Place and event time of every good record of a decoded ``log``: what advances stream time."""
    return log.where(F.col("reason").isNull()).select(*PLACE, TIME)


def records(log: DataFrame, source: Source) -> DataFrame:
    """The good records of a decoded ``log`` as ``source`` names their fields."""
    good = log.where(F.col("reason").isNull())
    names = WholeTopic(source=source, needs_record_key=False).columns_read
    fields = [named(_FIELD + name).alias(name) for name in names if name != source.key]
    named_anew = good.select(*fields, named(KEY).alias(source.key), *PLACE, TIME, IS_NULL)
    new = {CARRIED: F.lit(None).cast("long"), ORDER: at_place(), SUPERSEDED: F.lit(False)}
    return shaped(named_anew.withColumns(new), source.fields)
