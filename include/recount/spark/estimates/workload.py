"""What a stream is assumed to be given: records a second, keys, sizes, batches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from recount.core.durations import milliseconds, readable
from recount.core.errors import Terminal
from recount.core.expression_types import columns_of
from recount.core.nodes import KEY, Node, Source
from recount.core.processing import Deduplicate
from recount.core.topology import Topology
from recount.spark.estimates.amounts import counted, sized
from recount.spark.estimates.arrivals import EACH_ITS_OWN

UNIQUE = "unique"
"""How an option says that each record has a key of its own."""
_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The assumptions behind an estimate.

    ``rate`` records a second of event time come to each source topic, unless ``rates`` names another figure for it;
    ``keys`` different keys each operator meets, unless ``keys_by_name`` has another figure for its key. A record's
    value has ``record_bytes``. A batch spans ``trigger_ms`` of event time: the time from one to the next, and more
    while a stream catches up. ``late_by_ms``: how far the slowest partition's stream time lies behind the fastest
    one's; state that waits for the slowest is kept so much longer.
    """

    rate: float = 1_000.0
    keys: float = 1_000.0
    record_bytes: float = 100.0
    trigger_ms: int = 1_000
    late_by_ms: int = 0
    rates: Mapping[str, float] = field(default_factory=lambda: _NONE)
    keys_by_name: Mapping[str, float] = field(default_factory=lambda: _NONE)

    @property
    def document(self) -> dict[str, Any]:
        """The assumptions as plain values."""
        return {
            "rate": self.rate,
            "rates": dict(self.rates),
            "keys": _plain(self.keys),
            "keys_by_name": {name: _plain(keys) for name, keys in self.keys_by_name.items()},
            "record_bytes": self.record_bytes,
            "trigger_ms": self.trigger_ms,
            "late_by_ms": self.late_by_ms,
        }

    def __str__(self) -> str:
        parts = [
            *(f"{topic} {counted(rate)} records/s" for topic, rate in self.rates.items()),
            f"each {'other ' if self.rates else ''}topic {counted(self.rate)} records/s",
            *(f"{name} {counted(keys)} keys" for name, keys in self.keys_by_name.items()),
            f"each {'other ' if self.keys_by_name else ''}operator {counted(self.keys)} keys",
            f"{sized(self.record_bytes)} a record",
            f"a batch every {readable(self.trigger_ms)}",
        ]
        late = [f"the slowest partition {readable(self.late_by_ms)} behind"] if self.late_by_ms else []
        return ", ".join([*parts, *late])

    def rate_of(self, topic: str) -> float:
        """Records a second of ``topic``."""
        return self.rates.get(topic, self.rate)

    def keys_of(self, name: str) -> float:
        """How many different keys called ``name`` there are."""
        return self.keys_by_name.get(name, self.keys)

    def ids_of(self, node: Deduplicate) -> float:
        """How many ids a deduplication meets: unless the field is named, each record has one of its own."""
        names = columns_of(node.by)
        return self.keys_by_name.get(next(iter(names)), EACH_ITS_OWN) if len(names) == 1 else EACH_ITS_OWN


def workload(
    topology: Topology,
    *,
    rate: Sequence[str] = (),
    keys: Sequence[str] = (),
    record_bytes: float = Workload.record_bytes,
    trigger: str = "1 s",
    late_by: str = "0 s",
) -> Workload:
    """The workload that the options of ``recount estimate`` ask for; raises ``Terminal`` for what ``topology`` has not.

    ``rate`` and ``keys`` are numbers (``"1000"``) or numbers for a topic or a key (``"orders=1000"``).
    """
    rates = _figures("rate", rate, {source.topic.name for source in topology.sources})
    key_counts = _figures("keys", keys, set(key_names(topology)), also=UNIQUE)
    trigger_ms = milliseconds(trigger, "trigger")
    _require_positive("trigger", trigger_ms, trigger, "a duration above 0: '1 s'")
    _require_positive("record-bytes", record_bytes, record_bytes, "a number of bytes above 0")
    return Workload(
        rate=rates.pop("", Workload.rate),
        keys=key_counts.pop("", Workload.keys),
        record_bytes=record_bytes,
        trigger_ms=trigger_ms,
        late_by_ms=milliseconds(late_by, "late-by"),
        rates=rates,
        keys_by_name=key_counts,
    )


def key_name(node: Node) -> str:
    """What ``node``'s key is called: by ``select_key``, else by the topic that its records come from."""
    while node.key == KEY and not isinstance(node, Source):
        node = node.inputs[0]
    return node.topic.key if isinstance(node, Source) and node.key == KEY else node.key


def key_names(topology: Topology) -> Iterator[str]:
    """Every name for which a number of keys can be given."""
    for node in topology.nodes():
        yield key_name(node)
        if isinstance(node, Deduplicate):
            yield from columns_of(node.by)


def _plain(keys: float) -> float | str:
    return UNIQUE if math.isinf(keys) else keys


def _figures(option: str, given: Sequence[str], names: Collection[str], also: str = "") -> dict[str, float]:
    """The figures by name; under the empty name the one that holds for all others."""
    figures: dict[str, float] = {}
    for text in given:
        name, _, figure = text.rpartition("=")
        if name and name not in names:
            raise Terminal(
                f"--{option} names what the topology has not",
                given=text,
                expected=f"one of {', '.join(sorted(names))}",
                remedy=f"--{option} {min(names)}={figure}",
            )
        figures[name] = EACH_ITS_OWN if also and figure == also else _number(option, figure, text, also)
    return figures


def _number(option: str, figure: str, text: str, also: str) -> float:
    expected = "a number above 0" + (f", or {also}" if also else "") + f"; for one alone --{option} NAME=NUMBER"
    try:
        number = float(figure.replace(",", "").replace("_", ""))
    except ValueError:
        number = math.nan
    _require_positive(option, number, text, expected)
    return number


def _require_positive(option: str, number: float, given: object, expected: str) -> None:
    if not 0 < number < math.inf:
        raise Terminal(f"invalid --{option}", given=given, expected=expected, remedy=f"give another --{option}")
