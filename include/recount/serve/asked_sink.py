"""A sink as it is asked: the columns of its rows, which row replaces which, and what key and time can be asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from recount.audit.shape import flow_of
from recount.audit.topologies.identity import Identity, closing_windows, identity_of
from recount.core.errors import Terminal
from recount.core.nodes import KEY
from recount.core.own_columns import GENERATION
from recount.core.schema import LONG_MAX, LONG_MIN, FieldType, is_unicode
from recount.core.topology import Topology, Written
from recount.core.windows import TimeWindows

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


class BadQuestion(Terminal):
    """A question that cannot be answered, whatever the tables hold."""


@dataclass(frozen=True)
class AskedSink:
    """The sink ``written`` of ``topology``."""

    topology: Topology
    written: Written

    @property
    def name(self) -> str:
        """The sink's topic, by which it is asked for."""
        return self.written.topic.name

    @cached_property
    def identity(self) -> Identity:
        """Which rows replace each other; raises ``Terminal`` where the declaration does not say it."""
        return identity_of(self.written)

    @cached_property
    def objection(self) -> Terminal | None:
        """Why its rows cannot be asked for; None where they can."""
        try:
            assert self.identity
        except Terminal as refused:
            return refused
        return None

    @cached_property
    def is_single(self) -> bool:
        """Whether the topology is a single aggregation, whose corrections have a revision and no batch."""
        return flow_of(self.topology) is not None

    @cached_property
    def ends_count(self) -> bool:
        """Whether a record at the end of a window is in it: in sessions and sliding windows, not in the others."""
        closing = closing_windows(self.identity)
        return closing is not None and not isinstance(closing[1], TimeWindows)

    @property
    def key(self) -> str:
        """The column of the key."""
        return self.written.key

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The fields of a row; the key that a record came with is left out where it has another one now."""
        return {name: kind for name, kind in self.written.fields.items() if name == self.key or name != KEY}

    def key_of(self, text: str) -> str | int:
        """The key that ``text`` names, of the declared type; raises ``BadQuestion``."""
        kind = self.fields[self.key].kind
        if kind == "string":
            _require_unicode(self.name, text)
            return text
        number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        if number is None or not LONG_MIN <= number <= LONG_MAX:
            raise BadQuestion(
                f"{self.name} has no such key",
                given=text[:100],
                expected=f"a {kind.upper()}: {self.key} is a whole number of 64 bits",
                remedy="write the number in digits",
            )
        return number

    def require_windows(self) -> None:
        """Raise ``BadQuestion`` where rows have no window."""
        if not self.identity.has_bounds:
            raise BadQuestion(
                f"the rows of {self.name} have no windows",
                given="a window",
                expected=f"a sink with window_start and window_end; it has {', '.join(self.fields)}",
                remedy="leave the window out",
            )

    def require_countable(self, name: str) -> None:
        """Raise ``BadQuestion`` where rows cannot be counted by a field ``name``."""
        countable = [one for one, kind in self.fields.items() if kind.kind != "list"]
        if name not in countable:
            raise BadQuestion(
                f"rows of {self.name} cannot be counted by that",
                given=name[:100],
                expected=f"one of {', '.join(countable)}",
                remedy="name a field of the rows that is no list",
            )


def _require_unicode(name: str, text: str) -> None:
    if not is_unicode(text):
        raise BadQuestion(
            f"{name} has no such key",
            given=ascii(text)[:100],
            expected="a text in UTF-8",
            remedy="no record has another key",
        )


def asked_sink(topology: Topology, name: str | None) -> AskedSink:
    """The sink of ``topology`` that is called ``name``, or its only one; raises ``BadQuestion``."""
    sinks = {written.topic.name: written for written in topology.written}
    if name is None and len(sinks) == 1:
        [name] = sinks
    if name not in sinks:
        raise BadQuestion(
            f"which sink of {topology.name}?",
            given=name and name[:100],
            expected=f"one of {', '.join(sinks)}" if sinks else "a stream that writes to a topic: it has actions only",
            remedy="name the topic that it writes: --sink TOPIC",
        )
    return AskedSink(topology, sinks[name])


def missing_columns(sink: AskedSink, there: Iterable[str]) -> list[str]:
    """The columns of the rows that are not among those that are ``there``."""
    return sorted({*sink.fields, GENERATION} - set(there))
