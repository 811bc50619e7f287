"""The audit that ``recount play`` shows a newcomer: one stream's, long before the first night."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from recount.core.errors import Transient
from recount.play.running_shop import RunningShop

AFTER_S = 360
"""By then a window of five minutes has been closed, and its results can be judged."""


@dataclass(kw_only=True)
class FirstAudit:
    """Of ``shop``, once it has been played for ``AFTER_S`` since ``begun_s``; ``stream`` None: nothing to audit."""

    shop: RunningShop
    begun_s: float
    stream: str | None = field(init=False)
    has_begun: bool = False

    def __post_init__(self) -> None:
        self.stream = self.shop.audited_first

    def news(self, now_s: float) -> Iterator[str]:
        """Start it when it is due, and say so; where Airflow does not answer it is tried again at the next call."""
        if self.stream is None or self.has_begun or now_s - self.begun_s < AFTER_S:
            return
        try:
            self.shop.audit_now(self.stream)
        except Transient as error:
            yield f"the audit of {self.stream} could not be started, it is tried again: {error.what}"
            return
        self.has_begun = True
        yield f"the audit of {self.stream} has begun: its certificate comes to the stream's page, Browse > Recount"
