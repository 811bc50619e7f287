"""Records that came too late for what an audit had carried to it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

from recount.audit.assembly import MAX_LISTED
from recount.core.errors import Terminal
from recount.recompute.graph.recomputed import Recomputed

_PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """Records that came too late for what was carried: how many, and the ``places`` of the first of them.

    Those ``on_time``, of partitions that had been silent, are in the stream's results and not in the recompute's.
    """

    found: int
    places: tuple[str, ...]
    on_time: tuple[str, ...]

    @classmethod
    def of(cls, truth: Recomputed, complete: Recomputed) -> Beyond:
        """What both recomputes left out."""
        both = [one.beyond.select(*_PLACE, F.lit(one is truth).alias("on_time")) for one in (truth, complete)]
        places = both[0].unionByName(both[1]).distinct().persist()
        try:
            first = places.orderBy(F.desc("on_time"), *_PLACE).limit(MAX_LISTED).collect()
            found = len(first) if len(first) < MAX_LISTED else places.count()
        finally:
            places.unpersist()
        named = [(f"{row.topic}-{row.partition}@{row.offset}", row.on_time) for row in first]
        on_time = tuple(place for place, is_on_time in named if is_on_time)
        return cls(found=found, places=tuple(place for place, _ in named), on_time=on_time)

    def require_more_log(self, *, from_the_beginning: bool) -> None:
        """Raise ``Terminal`` where an audit from the beginning has left them out too."""
        if from_the_beginning:
            raise Terminal(
                "records are older than what audits can judge",
                given=f"{', '.join(self.on_time[:10])}, on time in a partition that had been silent",
                expected="no older records than an audit behind an erasure has carried to it",
                remedy="recount reset --from now",
            )
