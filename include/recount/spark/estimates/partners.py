"""How far apart in time the rows of a join of streams are whose keys are equal, from those that it holds."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from recount.core.joins import StreamStreamJoin
from recount.spark.columns import TIMESTAMP
from recount.spark.polars_expressions import field_column

_OUTER = 0.005
"""Of the rows with a partner that may lie outside on each side, so that 99 % lie inside."""
_ROWS_THAT_TELL = 100
_DISTANCE = "__distance_ms"


@dataclass(frozen=True, kw_only=True)
class Partners:
    """Of the rows held on both sides, each with the nearest of its key on the other: right time less left time, in ms.

    ``near`` have it within the declared window, ``far`` have one outside of it, ``alone`` have none that is held. 99 %
    of the near and far lie from ``first_ms`` to ``last_ms``, all from ``least_ms`` to ``most_ms``; None where there are
    too few. Rows are held for before + after + grace: what is further apart is not seen.
    """

    near: int
    far: int
    alone: int
    first_ms: int | None = None
    last_ms: int | None = None
    least_ms: int | None = None
    most_ms: int | None = None

    @classmethod
    def of(cls, node: StreamStreamJoin, left: pl.DataFrame, right: pl.DataFrame) -> Partners:
        """Those of the join ``node`` that holds these rows."""
        keys = [field_column(side.key) for side in node.inputs]
        sides = [
            rows.select(pl.col(key).alias("key"), TIMESTAMP).sort(TIMESTAMP)
            for key, rows in zip(keys, (left, right), strict=True)
        ]
        found = pl.concat([_nearest(*sides), -_nearest(*reversed(sides))])
        distances = found.drop_nulls().sort()
        near = len(distances.filter(distances.is_between(-node.before_ms, node.after_ms)))
        counts = cls(near=near, far=len(distances) - near, alone=found.null_count())
        if len(distances) < _ROWS_THAT_TELL:
            return counts
        outer = int(_OUTER * len(distances))
        return cls(
            near=counts.near,
            far=counts.far,
            alone=counts.alone,
            first_ms=distances[outer],
            last_ms=distances[-1 - outer],
            least_ms=distances[0],
            most_ms=distances[-1],
        )

    @property
    def before_ms(self) -> int | None:
        """The ``before`` that holds 99 % of the partners together with ``after_ms``."""
        return None if self.first_ms is None else max(-self.first_ms, 0)

    @property
    def after_ms(self) -> int | None:
        return None if self.last_ms is None else max(self.last_ms, 0)


def _nearest(own: pl.DataFrame, other: pl.DataFrame) -> pl.Series:
    """Of each row of ``own`` how much later the nearest of its key in ``other`` is; null where there is none."""
    partner = other.with_columns(pl.col(TIMESTAMP).alias("partner_ms"))
    joined = own.join_asof(partner, on=TIMESTAMP, by="key", strategy="nearest", check_sortedness=False)
    return joined.select((pl.col("partner_ms") - pl.col(TIMESTAMP)).alias(_DISTANCE))[_DISTANCE]
