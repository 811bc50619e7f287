"""Claims of each side about the judged rows of any sink, in the columns of ``recount.audit.compare.fidelity``."""

from __future__ import annotations

import polars as pl
from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.audit.compare.claims import AT_MS, IDENTITY, IS_NULL, REVISION, ROW
from recount.audit.compare.correction_claims import CORRECTED
from recount.audit.compare.fidelity import PLACES, SCHEMA
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import KAFKA
from recount.audit.compare.results import EXPECTED
from recount.declare.columns import RESULT_TIME

COMPARED = "compared"
_TYPES: dict[pl.DataType, str] = {
    pl.String(): "string",
    pl.Int32(): "int",
    pl.Int64(): "long",
    pl.Boolean(): "boolean",
    pl.List(pl.String()): "array<string>",
    pl.List(pl.Float64()): "array<double>",
}
_OF_PLACE = ("lowest", "highest", "stood", "revisions", "copies", "lacks")


def compared(identity: Identity, kept_since_ms: int | None, in_delta_since_ms: int | None) -> Column:
    """A struct of all columns of ``fidelity.SCHEMA`` but place and identity, of a judged frame of the sink.

    The topic keeps its records since ``kept_since_ms``, the table its rows since ``in_delta_since_ms``; None: for ever.
    """
    compacted = "compact" in identity.written.topic.cleanup_policy
    found = {
        "expected_at_ms": F.col(f"{EXPECTED}_entry")[AT_MS],
        "kafka_kept_since_ms": F.lit(kept_since_ms),
        "delta_kept_since_ms": F.lit(in_delta_since_ms),
        "compaction_takes": F.lit(compacted) & (F.lit(not identity.is_latest) | F.col(CORRECTED).isNotNull()),
        "is_held": F.lit(False),
        **(_of_latest(identity) if identity.is_latest else _of_rows(identity)),
        **_of_corrections(identity),
    }
    told = {name: _TYPES[kind] for name, kind in SCHEMA.items() if name not in ("sink", "table", *IDENTITY)}
    columns = [found.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in told.items()]
    return F.struct(*columns).alias(COMPARED)


def _of_latest(identity: Identity) -> dict[str, Column]:
    found = {"is_held": F.coalesce("is_held", F.lit(False)), "places_differ": F.col("places_differ")}
    for side in (EXPECTED, *PLACES):
        rows = F.filter(F.array(f"{side}_entry"), lambda one: F.coalesce(~one[IS_NULL], F.lit(False)))
        found |= _told(side, rows, identity)
    for place in PLACES:
        first = F.col(f"{place}_lowest") if identity.was_added else F.lit(0)
        found |= {f"{place}_{name}": F.col(f"{place}_{name}") for name in _OF_PLACE}
        found[f"{place}_first"] = F.when(F.col(f"{place}_is_dense"), F.coalesce(f"{place}_stood", first))
    is_whole = F.lit("compact" not in identity.written.topic.cleanup_policy)
    return found | {f"{KAFKA}_lacks": found[f"{KAFKA}_lacks"] & is_whole}


def _of_rows(identity: Identity) -> dict[str, Column]:
    found: dict[str, Column] = {}
    for side in (EXPECTED, *PLACES):
        found |= _told(side, F.col(side), identity)
    return found


def _of_corrections(identity: Identity) -> dict[str, Column]:
    return {name: column for place in PLACES for name, column in _corrections_at(place, identity).items()}


def _corrections_at(place: str, identity: Identity) -> dict[str, Column]:
    """Each row of a correction after its revision; of a sink whose rows all count a correction can have several."""

    def told(one: Column) -> Column:
        revision = one[REVISION].cast("string")
        return F.transform(one[place], lambda entry: F.concat_ws(" ", revision, exact_text(entry, identity)))

    rows = F.flatten(F.transform(CORRECTED, lambda one: one[place]))
    most = F.array_max(F.transform(CORRECTED, lambda one: F.size(one[place])))
    return {
        f"{place}_latest": F.flatten(F.transform(CORRECTED, told)),
        f"{place}_latest_doubles": _told(place, rows, identity)[f"{place}_doubles"],
        f"{place}_corrections": most if identity.is_latest else F.least(most, F.lit(1)),
    }


def _told(side: str, entries: Column, identity: Identity) -> dict[str, Column]:
    doubles = [name for name, kind in identity.fields.items() if kind.kind == "double"]
    values = F.flatten(F.transform(entries, lambda one: F.array(*(one[ROW][name] for name in doubles))))
    return {
        side: F.transform(entries, lambda one: exact_text(one, identity)),
        f"{side}_doubles": values if doubles else F.array(),
    }


def exact_text(entry: Column, identity: Identity) -> Column:
    """The entry without its doubles, and without its time where the log does not determine it."""
    exact = [entry[ROW][name].alias(name) for name, kind in identity.fields.items() if kind.kind != "double"]
    at_ms = entry[AT_MS] if identity.is_timed else F.lit(None).cast("long")
    return F.to_json(F.struct(*exact, entry[IS_NULL].alias("recount_is_null"), at_ms.alias(RESULT_TIME)))
