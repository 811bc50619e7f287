"""When two claims about a row agree."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.audit.results import RELATIVE_TOLERANCE
from recount.audit.topologies.claims import AT_MS, IS_NULL, ROW
from recount.audit.topologies.identity import Identity
from recount.core.schema import FieldType


def same_entry(one: Column, other: Column, identity: Identity) -> Column:
    """Whether two entries are equal, doubles within a relative 1e-9; two deletions are, whatever they deleted."""
    both_rows = ~one[IS_NULL] & ~other[IS_NULL]
    parts = [_same_value(one[ROW][name], other[ROW][name], kind) for name, kind in identity.fields.items()]
    equal = (one[IS_NULL] == other[IS_NULL]) & (~both_rows | reduce(lambda a, b: a & b, parts))
    return equal & one[AT_MS].eqNullSafe(other[AT_MS]) if identity.is_timed else equal


def same_entry_or_none(one: Column, other: Column, identity: Identity) -> Column:
    """The same, where null is no row."""
    none = one.isNull() & other.isNull()
    both = one.isNotNull() & other.isNotNull()
    return F.when(both, same_entry(one, other, identity)).otherwise(none)


def _same_value(one: Column, other: Column, kind: FieldType) -> Column:
    if kind.kind != "double":
        return one.eqNullSafe(other)
    near = F.abs(one - other) <= RELATIVE_TOLERANCE * F.greatest(F.abs(one), F.abs(other))
    return one.eqNullSafe(other) | F.coalesce(near, F.lit(False))  # the difference of two infinite ones is no number
