"""The workload assumed of a stream: records a second, keys, sizes, batches; and its measured event rate.

``Arrivals`` says when keys occur: the one model behind every estimate. Event rates come from the proofs of batches.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recount.declare.expression_types import columns_of
from recount.declare.operators.nodes import KEY, Node, Source
from recount.declare.operators.processing import Deduplicate
from recount.declare.topology import Topology
from recount.runtime.errors import Terminal
from recount.runtime.times import milliseconds, readable
from recount.tables.ledger import BatchProof

SECONDS_A_DAY = 86_400
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
EACH_ITS_OWN = math.inf
"""As many keys as there are records: none comes twice."""
UNIQUE = "unique"
"""How an option says that each record has a key of its own."""
_PARTS = (("topic", "records/s", "rate", "rates"), ("operator", "keys", "keys", "keys_by_name"))
NEWEST_BATCHES = 200
"""Of how many of the newest batches a stream's figures are."""


def counted(number: float) -> str:
    """``1234.5`` is ``1,234``, below 10 with two digits: ``0.0233`` is ``0.023``."""
    if math.isinf(number):
        return "as many as records"
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


def sized(size: float) -> str:
    """Bytes in the largest unit of which there is one: ``1536`` is ``1.5 KiB``."""
    unit = min(int(math.log2(size) // 10), len(_UNITS) - 1) if size >= 1 else 0
    return f"{size:,.0f} B" if unit == 0 else f"{size / 1024**unit:,.1f} {_UNITS[unit]}"


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Rows that come ``per_s`` a second over ``keys`` that are all alike and speak independently of each other.

    So the rows of one key are a Poisson process of ``per_s / keys`` a second (Ross, Introduction to Probability Models,
    5.3). Busier and quieter keys lie below it for windows, which have fewer keys then, and above it for sessions, of
    which quiet keys have more.
    """

    per_s: float
    keys: float

    def within(self, ms: float) -> float:
        """How many rows come in ``ms``."""
        return self.per_s * ms / 1_000

    def silence(self, ms: float) -> float:
        """The chance that a key says nothing for ``ms``: 100 rows/s of 100 keys, 1 s: e^-1."""
        return math.exp(-self.within(ms) / self.keys)

    def keys_within(self, ms: float) -> float:
        """How many keys speak in ``ms``: 100 rows/s of 100 keys, 1 s: 63; in 10 s: 100."""
        if math.isinf(self.keys):
            return self.within(ms)
        return self.keys * -math.expm1(-self.within(ms) / self.keys)

    def firsts_per_s(self, ms: float) -> float:
        """How many rows a second are the first of their key since a first more than ``ms`` ago.

        A key has one in ``ms`` and the time to its next row (Ross, 7.3: renewals). 100 rows/s of 100 keys, 1 s: 50.
        """
        return self.per_s / (1 + self.within(ms) / self.keys)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The assumptions behind an estimate.

    ``rate`` records a second of event time come to each source topic, unless ``rates`` names another figure for it;
    ``keys`` different keys each operator meets, unless ``keys_by_name`` has another figure for its key. A record's
    value has ``record_bytes``. A batch spans ``trigger_ms`` of event time: the time from one to the next, and more
    while a stream catches up. ``late_by_ms``: how far the slowest partition's stream time is behind the fastest
    one's; state that waits for the slowest is kept so much longer.
    """

    rate: float = 1_000.0
    rates: Mapping[str, float] = field(default_factory=dict)
    keys: float = 1_000.0
    keys_by_name: Mapping[str, float] = field(default_factory=dict)
    record_bytes: float = 100.0
    trigger_ms: int = 1_000
    late_by_ms: int = 0

    @property
    def document(self) -> dict[str, Any]:
        by_name = {name: _plain(keys) for name, keys in self.keys_by_name.items()}
        return {**vars(self), "rates": dict(self.rates), "keys": _plain(self.keys), "keys_by_name": by_name}

    def rate_of(self, topic: str) -> float:
        return self.rates.get(topic, self.rate)

    def keys_of(self, name: str) -> float:
        return self.keys_by_name.get(name, self.keys)

    def ids_of(self, node: Deduplicate) -> float:
        """How many ids a deduplication meets: unless the field is named, each record has one of its own."""
        names = columns_of(node.by)
        return self.keys_by_name.get(next(iter(names)), EACH_ITS_OWN) if len(names) == 1 else EACH_ITS_OWN


def _plain(keys: float) -> float | str:
    return UNIQUE if math.isinf(keys) else keys


def worded(assumed: Mapping[str, Any]) -> str:
    parts = []
    for what, unit, rest, named in _PARTS:
        figures = {**assumed[named], f"each {'other ' if assumed[named] else ''}{what}": assumed[rest]}
        numbers = {name: EACH_ITS_OWN if number == UNIQUE else number for name, number in figures.items()}
        parts += [f"{name} {counted(number)} {unit}" for name, number in numbers.items()]
    parts += [f"{sized(assumed['record_bytes'])} a record", f"a batch every {readable(assumed['trigger_ms'])}"]
    if assumed["late_by_ms"]:
        parts.append(f"the slowest partition {readable(assumed['late_by_ms'])} behind")
    return ", ".join(parts)


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
    key_counts = _figures("keys", keys, set(_key_names(topology)), also=UNIQUE)
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
    """Return the name of ``node``'s key: by ``select_key``, else by the topic that its records come from."""
    while node.key == KEY and not isinstance(node, Source):
        node = node.inputs[0]
    return node.topic.key if isinstance(node, Source) and node.key == KEY else node.key


def _key_names(topology: Topology) -> Iterator[str]:
    for node in topology.nodes():
        yield key_name(node)
        if isinstance(node, Deduplicate):
            yield from columns_of(node.by)


def _figures(option: str, given: Sequence[str], names: Collection[str], also: str = "") -> dict[str, float]:
    """The figures by name; under the empty name the one that holds for all others."""
    figures: dict[str, float] = {}
    expected = "a number above 0" + (f", or {also}" if also else "") + f"; for one alone --{option} NAME=NUMBER"
    for text in given:
        name, _, figure = text.rpartition("=")
        if name and name not in names:
            raise Terminal.of(
                "workload-of-something-else",
                given=text,
                option=option,
                names=", ".join(sorted(names)),
                first=min(names),
                figure=figure,
            )
        if also and figure == also:
            figures[name] = EACH_ITS_OWN
            continue
        try:
            figures[name] = float(figure.replace(",", "").replace("_", ""))
        except ValueError:
            figures[name] = math.nan
        _require_positive(option, figures[name], text, expected)
    return figures


def _require_positive(option: str, number: float, given: object, expected: str) -> None:
    if not 0 < number < math.inf:
        raise Terminal.of("figure-of-the-workload", given=given, option=option, expected=expected)


def event_rates(proofs: Sequence[BatchProof]) -> dict[str, float]:
    """Return the event rate of each topic, from ``proofs`` of which the newest is the first.

    Records of all batches but the oldest, over how far stream time came in them: 600 records in a minute are 10/s.
    """
    rates = {}
    for topic in {part.topic for part in proofs[-1].partitions}:
        records = sum(part.records for proof in proofs[:-1] for part in proof.partitions if part.topic == topic)
        newest_ms, oldest_ms = (
            max((part.stream_time_ms or 0 for part in proof.partitions if part.topic == topic), default=0)
            for proof in (proofs[0], proofs[-1])
        )
        if records and newest_ms > oldest_ms:
            rates[topic] = records * 1_000 / (newest_ms - oldest_ms)
    return rates
