"""An order to set one record aside: the stream that stopped at it goes on without it, and every audit knows.

It is given while the stream stands still, for a record that no batch has committed. From the next batch on the record
is a bad record at intake, in the stream and in the recompute alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from recount.core.errors import Terminal
from recount.core.signed_record import SignedRecord

FORMAT = "recount set-aside 1"
SET_ASIDE = "set-aside"
"""The reason of its dead letter."""
_PLACE = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d{1,9})@(?P<offset>\d{1,18})")


@dataclass(frozen=True, kw_only=True)
class RecordPlace:
    """Where a record lies, as all pages write it: ``topic-partition@offset``."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The place in ``text``; raises ``Terminal`` where it names none."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise Terminal(
                "no place of a record",
                given=text,
                expected="TOPIC-PARTITION@OFFSET, as orders-0@1234",
                remedy="take it from the error at which the stream stopped",
            )
        return cls(topic=found["topic"], partition=int(found["partition"]), offset=int(found["offset"]))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def set_aside_command(stream: str, place: RecordPlace | str) -> str:
    """The command that sets the record at ``place`` aside, as errors name it."""
    return f"`recount set-aside {stream} {place} --by NAME --because TEXT`"


@dataclass(frozen=True, kw_only=True)
class AsideOrder(SignedRecord):
    """Who set which record of ``stream`` aside, when and why; it holds for the ``version`` of the stream only."""

    version: int
    topic: str
    partition: int
    offset: int
    at_ms: int
    by: str
    because: str

    @property
    def place(self) -> RecordPlace:
        """Where the record lies."""
        return RecordPlace(topic=self.topic, partition=self.partition, offset=self.offset)

    @property
    def name(self) -> str:
        """The place of the record."""
        return str(self.place)

    @property
    def identity(self) -> Mapping[str, str]:
        """By the place."""
        return {"is": FORMAT, "place": str(self.place)}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The order in ``text``; raises ``Terminal`` where it is none."""
        try:
            order = cls(**json.loads(text))
            if not all(type(one) is int for one in (order.version, order.partition, order.offset, order.at_ms)):
                raise TypeError("version, partition, offset and at_ms are whole numbers")
            return order
        except (ValueError, TypeError, RecursionError) as error:
            raise Terminal(
                "no order to set a record aside",
                given=text[:200],
                expected=FORMAT,
                remedy="see who can write to the table",
            ) from error
