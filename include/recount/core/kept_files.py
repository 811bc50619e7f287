"""How long the files are kept that an installation writes beside its streams' tables and topics."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from recount.core.durations import Duration, milliseconds
from recount.core.errors import InvalidDeclaration, require

FOR_EVER = "for ever"


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """How long after it was last written; None: for ever.

    ``verdicts``: what audits keep of each row that they judged, unless a later one builds on it. ``validations``: the
    runs of Great Expectations with their pages. ``logs``: of tasks, drivers and daemons. Certificates are kept for
    ever: each proves that those before it are whole.
    """

    verdicts: Duration | None = "90 d"
    validations: Duration | None = "30 d"
    logs: Duration | None = "30 d"

    def __post_init__(self) -> None:
        for field in fields(self):
            limit_ms = self.milliseconds(field.name)
            require(
                limit_ms is None or limit_ms > 0,
                f"how long {field.name} are kept",
                given=getattr(self, field.name),
                expected=f"more than nothing, or {FOR_EVER}",
                remedy=f"leave it out for {field.default}",
            )

    def milliseconds(self, name: str) -> int | None:
        """How long the files called ``name`` are kept."""
        duration: Duration | None = getattr(self, name)
        return None if duration is None else milliseconds(duration, name)

    @classmethod
    def of(cls, text: str) -> Self:
        """From ``validations=90 d, logs=for ever``; what is not named has its default.

        >>> Keeping.of("logs=7 d").milliseconds("logs")
        604800000

        Raises ``InvalidDeclaration`` for another name or no duration.
        """
        given = dict(one.partition("=")[::2] for one in text.split(",") if one.strip())
        named = {name.strip(): duration.strip() for name, duration in given.items()}
        known = {field.name for field in fields(cls)}
        if named.keys() - known:
            raise InvalidDeclaration(
                "how long files are kept",
                given=", ".join(sorted(named.keys() - known)),
                expected=f"some of {', '.join(sorted(known))}",
                remedy='write RECOUNT_KEEPING="logs=14 d, validations=for ever"',
            )
        return cls(**{name: None if duration == FOR_EVER else duration for name, duration in named.items()})
