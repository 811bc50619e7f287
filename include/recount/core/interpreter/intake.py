"""From raw bytes to a row: what makes a record bad, in the order in which it is tested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recount.core.aside_order import SET_ASIDE, RecordPlace
from recount.core.event_units import unit_ahead
from recount.core.interpreter.journal import DeadLetter
from recount.core.interpreter.record import Entry, Row
from recount.core.nodes import Source
from recount.core.record_keys import key_of, key_text, topics_needing_a_key
from recount.core.schema import BadRecord, Headers, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A good record: where it entered, its decoded key and its fields."""

    entry: Entry
    key: str | None
    fields: Row

    def row(self, source: Source) -> Row:
        """The fields and the key as ``source`` names it."""
        return {**self.fields, source.key: self.key}


class Intake:
    """Decodes the records of a topology's source topics; those that are ``set_aside`` are bad."""

    def __init__(self, topology: Topology, set_aside: Iterable[RecordPlace] = ()) -> None:
        self._topics: dict[str, Topic] = {source.topic.name: source.topic for source in topology.sources}
        self._keyed = topics_needing_a_key(topology)
        self._max_future_ms = topology.max_future_ms
        self._set_aside = frozenset(set_aside)

    def take(
        self,
        *,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        wall_clock_ms: int | None,
        headers: Headers = (),
    ) -> Taken | DeadLetter:
        """The record decoded, or its dead letter."""
        declared = self._topics[topic]
        try:
            if RecordPlace(topic=topic, partition=partition, offset=offset) in self._set_aside:
                raise BadRecord(SET_ASIDE, "somebody ordered to set the record aside")
            fields = _fields(declared, value, headers, key)
            text = self._key(topic, key, fields)
            event_time_ms = _event_time_ms(declared, fields, timestamp_ms)
            if wall_clock_ms is not None and event_time_ms > wall_clock_ms + self._max_future_ms:
                unit = unit_ahead(event_time_ms, timestamp_ms)
                looks = f", it looks like {unit}" if unit else ""
                raise BadRecord("future-timestamp", f"event time {event_time_ms} ms{looks}")
        except BadRecord as bad:
            return DeadLetter(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                key=key,
                value=value,
                reason=bad.reason,
                detail=bad.detail,
            )
        entry = Entry(topic=topic, partition=partition, offset=offset, timestamp_ms=event_time_ms)
        return Taken(entry=entry, key=text, fields=fields)

    def _key(self, topic: str, key: bytes | None, fields: Mapping[str, Any]) -> str | None:
        needed = topic in self._keyed
        if key is None:
            if needed:
                raise BadRecord("null-key", "the record has no key")
            return None
        declared = self._topics[topic]
        names = declared.key_fields
        text = key_of({name: fields[name] for name in names}) if names else key_text(declared, key)
        if text is None and needed:
            raise BadRecord("undecodable", "the key is no text")
        return text


def _fields(topic: Topic, value: bytes | None, headers: Headers, key: bytes | None) -> dict[str, Any]:
    assert topic.value is not None, "checked by Source"
    if isinstance(topic.value, RecordSchema):
        if value is not None:
            return topic.value.decode(value, headers, key)
        return dict.fromkeys(topic.value.fields) | topic.value.of_raw_key(key)
    return dict.fromkeys(topic.value.fields) if value is None else topic.value.decode(value)


def _event_time_ms(topic: Topic, fields: Mapping[str, Any], timestamp_ms: int) -> int:
    event_time_ms = timestamp_ms if topic.event_time is None else fields[topic.event_time]
    if event_time_ms is None:
        raise BadRecord("schema", f"event time {topic.event_time} is missing")
    if event_time_ms < 0:
        raise BadRecord("negative-timestamp", f"event time {event_time_ms} ms")
    return int(event_time_ms)
