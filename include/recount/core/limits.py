"""What a stream may cost and lose before somebody is told, and when its driver is relaunched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from recount.core.errors import require, require_each
from recount.core.unknown_names import declares

LEAST_COUNT = 10
"""Fewer dead letters or late records than this are no share worth a warning, however few records there were.

So are fewer records without a row in a lookup.
"""


@declares
@dataclass(frozen=True, kw_only=True)
class Health:
    """The limits of a stream's health; ages in milliseconds of a driver's life, shares between 0 and 1.

    Beyond ``heartbeat_age_ms``, or ``progress_age_ms`` and the trigger interval without a sign of work while there is
    something to do, the driver makes no progress: it has failed, and is relaunched. A stream with nothing to read makes
    none and is well, and so is a batch that takes long and goes on.

    Beyond the others the stream is degraded, its driver goes on, and somebody is told. ``lag`` counts offsets from what
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
        for field in fields(self):
            given = getattr(self, field.name)
            is_share = isinstance(field.default, float)
            require(
                isinstance(given, int | float)
                and not isinstance(given, bool)
                and (0 <= given <= 1 if is_share else isinstance(given, int) and given >= 0),
                f"health {field.name}",
                given=given,
                expected="a share between 0 and 1" if is_share else "an integer >= 0",
                remedy="0.01 is one record in a hundred" if is_share else f"leave it out for {field.default}",
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
    """Refuse limits that are no ``Health``."""
    require_each(
        "health", [given], Health, expected="a Health", remedy="Health(late=0.05); leave it out for our limits"
    )


def _excesses(of: str, records: int, dead: tuple[int, float], late: tuple[int, float]) -> Iterator[str]:
    for name, (count, limit) in {"dead letters": dead, "late records": late}.items():
        if count >= LEAST_COUNT and count > limit * records:
            yield f"{count:,} {name}{of} in {records:,} records: {count / max(1, records):.2%}, limit {limit:.2%}"
