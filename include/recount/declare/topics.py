"""Topics, declared once, and the check that a sink's rows can be written to its topic and read from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from recount.declare.columns import INTERNAL
from recount.declare.plain_values import PlainValue
from recount.declare.schema import FieldType, RecordSchema
from recount.declare.unknown_names import declares
from recount.runtime.errors import require, require_each

CleanupPolicy = Literal["delete", "compact", "compact,delete"]
Encoding = Literal["json", "avro", "protobuf"]
KeyForm = Literal["text", "bytes", "json", "avro", "protobuf"]
UNLIMITED_RETENTION_MS, DEFAULT_RETENTION_MS = -1, 7 * 86_400_000
FARTHEST_AHEAD = "message.timestamp.after.max.ms"
"""The setting that says how far ahead of the broker's clock the time of a record may be."""
TIMESTAMP_TYPE, CREATE_TIME = "message.timestamp.type", "CreateTime"
"""The setting that says whose time a record has, and that it is the one that its writer gave it."""
LARGEST_RECORD = "max.message.bytes"
"""The setting that says how large a batch of records may be, compressed, and so one record."""
_DECLARED = ("cleanup.policy", "min.insync.replicas", "retention.ms")
"""Settings that have an argument of their own."""
_OF_LETTERS = ".dlq"
"""Ends the name of the topic that takes the bad records of another."""
_LONGEST_NAME = 249
LONGEST_SOURCE = _LONGEST_NAME - len(_OF_LETTERS)
_KAFKA_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@declares
@dataclass(frozen=True, kw_only=True)
class Topic:
    """A Kafka topic as it must be.

    ``key`` names the value field that producers use as the record key (text, UTF-8). ``key_form="bytes"``: the key of a
    source's records is any bytes, and rows have it in base64; ``"json"``, ``"avro"`` and ``"protobuf"``: it is read as
    the fields of ``value`` that are declared with ``in_key``. ``event_time`` names a LONG field with milliseconds since
    the epoch, or a TIMESTAMP; None takes the record's own timestamp. ``value`` says what a record holds: a JSON object
    with the fields of a ``RecordSchema``, or a ``PlainValue``; None means: not decoded by us. A sink writes JSON unless
    its topic says otherwise. ``encoding="avro"`` and ``"protobuf"``: each value has the id of its writer's schema in a
    schema registry, and is read as the fields of the ``RecordSchema``.
    ``retention_ms`` -1 keeps records for ever; a topic that is only compacted does so too. ``configs`` holds any
    further topic setting, by Kafka's own names.

    A topic that is only read belongs to others: Recount reports how it differs and never alters it. ``owned`` says that
    it is ours to create and to repair, as every topic is that a topology writes to.
    """

    name: str
    key: str
    value: RecordSchema | PlainValue | None = None
    event_time: str | None = None
    encoding: Encoding = "json"
    key_form: KeyForm = "text"
    partitions: int = 4
    replication_factor: int = 3
    min_insync_replicas: int = 2
    cleanup_policy: CleanupPolicy = "delete"
    retention_ms: int = DEFAULT_RETENTION_MS
    configs: Mapping[str, str] = field(default_factory=dict)
    owned: bool = False

    def __post_init__(self) -> None:
        require(
            isinstance(self.name, str)
            and bool(_KAFKA_NAME.fullmatch(self.name))
            and len(self.name) <= _LONGEST_NAME
            and self.name not in {".", ".."},
            "topic name",
            given=self.name,
            expected=f"1 to {_LONGEST_NAME} letters, digits, '.', '_' or '-'",
            remedy="rename the topic",
        )
        for name, least in (("partitions", 1), ("replication_factor", 1), ("min_insync_replicas", 1)):
            given = getattr(self, name)
            require(
                type(given) is int and given >= least,
                f"topic {self.name} {name}",
                given=given,
                expected=f"an integer >= {least}",
                remedy=f"set {name} to {least} or more",
            )
        require(
            self.min_insync_replicas <= self.replication_factor,
            f"topic {self.name} min_insync_replicas",
            given=self.min_insync_replicas,
            expected=f"at most the replication factor, {self.replication_factor}",
            remedy="with more in-sync replicas than replicas no write can succeed: lower it",
        )
        self._require_kinds()
        if self.cleanup_policy == "compact":
            require(
                self.retention_ms in (UNLIMITED_RETENTION_MS, DEFAULT_RETENTION_MS),
                f"topic {self.name} retention_ms",
                given=f"{self.retention_ms}, with cleanup_policy='compact'",
                expected="no retention: a compacted topic keeps the last record of each key",
                remedy="leave retention_ms out, or declare cleanup_policy='compact,delete'",
            )
            object.__setattr__(self, "retention_ms", UNLIMITED_RETENTION_MS)
        require(
            type(self.retention_ms) is int and (self.retention_ms == UNLIMITED_RETENTION_MS or self.retention_ms > 0),
            f"topic {self.name} retention_ms",
            given=self.retention_ms,
            expected="milliseconds > 0, or -1 for unlimited",
            remedy="declare how long records are kept",
        )
        self._require_event_time_field()

    def _require_kinds(self) -> None:
        require(
            isinstance(self.key, str) and self.key != "",
            f"topic {self.name} key",
            given=self.key,
            expected="the name of the field that producers use as the record key",
            remedy='write key="order_id"; the key itself is no part of the value',
        )
        require_each(
            f"topic {self.name} value",
            [self.value],
            RecordSchema | PlainValue | None,
            expected="a RecordSchema or a PlainValue",
            remedy="RecordSchema.of(amount=decimal(15, 2)), PlainValue.of(text=STRING), or leave it out of a sink",
        )
        require(
            self.encoding in get_args(Encoding),
            f"topic {self.name} encoding",
            given=self.encoding,
            expected=f"one of {', '.join(get_args(Encoding))}",
            remedy="leave it out for 'json'",
        )
        require(
            self.key_form in get_args(KeyForm),
            f"topic {self.name} key_form",
            given=self.key_form,
            expected=f"one of {', '.join(get_args(KeyForm))}",
            remedy="leave it out for 'text'",
        )
        self._require_key_fields()
        require(
            not self.is_of_registry or not isinstance(self.value, PlainValue),
            f"topic {self.name} encoding",
            given=f"{self.encoding}, with a plain value",
            expected="the fields that are read: value=RecordSchema.of(...)",
            remedy="declare the fields that you need; further ones of the writers are ignored",
        )
        require(
            self.cleanup_policy in get_args(CleanupPolicy),
            f"topic {self.name} cleanup_policy",
            given=self.cleanup_policy,
            expected=f"one of {', '.join(get_args(CleanupPolicy))}",
            remedy="leave it out for 'delete'",
        )
        require(
            type(self.owned) is bool,
            f"topic {self.name} owned",
            given=self.owned,
            expected="True or False",
            remedy="owned=True lets Recount create and repair it",
        )
        unlike = [f"{name}={value!r}" for name, value in self.configs.items() if not isinstance(value, str)]
        require(
            not unlike,
            f"topic {self.name} configs",
            given=", ".join(unlike),
            expected="settings and values as texts",
            remedy='write configs={"max.message.bytes": "2000000"}',
        )
        twice = sorted(set(self.configs) & set(_DECLARED))
        require(
            not twice,
            f"topic {self.name} configs",
            given=", ".join(twice),
            expected="settings that have no argument of their own",
            remedy="use cleanup_policy, retention_ms and min_insync_replicas",
        )

    def _require_key_fields(self) -> None:
        names, reads_fields = self.key_fields, self.key_form not in ("text", "bytes")
        require(
            bool(names) == reads_fields,
            f"topic {self.name} key_form",
            given=f"{self.key_form}, {'with ' + ', '.join(names) if names else 'without a field of the key'}",
            expected="fields of the key with 'json', 'avro' or 'protobuf', and with no other",
            remedy='key_form="avro", value=RecordSchema.of(customer=in_key("customer", kind=LONG), amount=LONG)',
        )
        is_whole = isinstance(self.value, RecordSchema) and self.value.reads_whole_key
        require(
            not is_whole or (self.key_form == "avro" and len(names) == 1),
            f"topic {self.name} key_form",
            given=f"{self.key_form}, {', '.join(names)} without a path",
            expected="a path to each field; only a key in Avro can be a text or number itself, and then all of it is",
            remedy='in_key("customer"); a key that is a text needs no key_form: col(KEY) has it',
        )

    def _require_event_time_field(self) -> None:
        if self.event_time is None:
            return
        fields = self.value.fields if self.value else {}
        kind = fields[self.event_time].kind if self.event_time in fields else "not declared"
        require(
            kind == "long",
            f"topic {self.name} event_time",
            given=f"{self.event_time} ({kind})",
            expected="a LONG or TIMESTAMP field of the value",
            remedy="declare the field as LONG, milliseconds since the epoch, or as TIMESTAMP; or leave event_time out"
            " to use the record timestamp",
        )

    @property
    def is_of_registry(self) -> bool:
        """Whether the values are read by schemas of a schema registry."""
        return self.encoding != "json"

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The declared fields that lie in the key."""
        return self.value.key_fields if isinstance(self.value, RecordSchema) else ()

    @property
    def fields_like_the_key(self) -> frozenset[str]:
        """The fields that say the whole key, and so in which partition a record is: of a key with several, none."""
        several = len(self.key_fields) > 1
        return frozenset() if several else frozenset(self.key_fields or (self.key,))

    @property
    def plain_field(self) -> str | None:
        """The field that is the whole value; None where the value is JSON or not decoded."""
        return self.value.name if isinstance(self.value, PlainValue) else None

    @property
    def dead_letter_name(self) -> str:
        """The topic that takes the bad records of this one."""
        return f"{self.name}{_OF_LETTERS}"


def require_writable(topic: Topic, key: str, fields: Mapping[str, FieldType]) -> None:
    """Refuse rows of ``fields`` under the key ``key`` of which a reader of ``topic`` could make nothing.

    A plain value is exactly the one field. Of a schema each field that the rows have must be of a type that reads what
    is written, and no required field may be missing; further fields are ignored by readers.
    """
    require(
        topic.key_form == "text",
        f"sink {topic.name}",
        given=f"key_form={topic.key_form!r}",
        expected="keys as text: others are read only",
        remedy="declare the topic of the sink without key_form=",
    )
    written = {name: kind for name, kind in fields.items() if not name.startswith(INTERNAL)}
    _require_encodable(topic, written)
    match topic.value:
        case RecordSchema() as schema:
            _require_readable(topic, schema, fields)
        case PlainValue() as plain:
            _require_plain(topic, plain, {name: kind for name, kind in written.items() if name != key})


def require_declared(topic: Topic, above: object) -> None:
    """Refuse what a function of the operator ``above`` makes where no field of it is declared: it would be ``{}``."""
    require(
        getattr(above, "made", None) != {},
        f"sink {topic.name}",
        given=f"rows of a {above}without a field".replace(" to without", " without"),
        expected="rows with fields: these would be published as {}",
        remedy="declare its fields where the function is named: flat_map(function, amount=LONG)",
    )


def _require_encodable(topic: Topic, written: Mapping[str, FieldType]) -> None:
    lists = [name for name, kind in written.items() if kind.element is not None]
    require(
        topic.encoding != "protobuf" or not lists,
        f"sink {topic.name}",
        given=", ".join(lists),
        expected="no list: Protobuf does not tell one that is null from one that is empty",
        remedy="choose the other fields before, or declare the topic of the sink with encoding='avro' or without",
    )
    _require_apart_in_json(topic, written)
    no_names = [name for name in written if not _NAME.fullmatch(name)]
    require(
        not topic.is_of_registry or not no_names,
        f"sink {topic.name}",
        given=", ".join(no_names),
        expected="names of Avro and Protobuf: letters, digits and _, and no digit first",
        remedy="name the fields otherwise before: .select(weight_kg=col('weight.kg'))",
    )


def _require_apart_in_json(topic: Topic, written: Mapping[str, FieldType]) -> None:
    """Compilers of Protobuf give each field a name in JSON as well, and refuse a file in which two have the same."""
    known: dict[str, str] = {}
    alike = [
        f"{known[_in_json(name)]} and {name}" for name in written if known.setdefault(_in_json(name), name) != name
    ]
    require(
        topic.encoding != "protobuf" or not alike,
        f"sink {topic.name}",
        given=", ".join(alike),
        expected="names that Protobuf tells apart in JSON too, where foo_bar is fooBar",
        remedy="rename one of the two before: .select(other=col('fooBar'))",
    )


def _in_json(name: str) -> str:
    """``name`` as Protobuf has it in JSON: without ``_``, the letter behind one in upper case.

    >>> _in_json("foo_bar"), _in_json("_id"), _in_json("id_1")
    ('fooBar', 'Id', 'id1')
    """
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _require_readable(topic: Topic, schema: RecordSchema, fields: Mapping[str, FieldType]) -> None:
    unlike = [
        f"{name}: {fields[name]}, declared as {schema.told(name)}"
        for name, kind in schema.fields.items()
        if name in fields and (name in schema.readings or not _reads(kind, fields[name], topic.encoding))
    ]
    missing = [f"no {name}, which is required" for name in sorted(schema.required - fields.keys())]
    require(
        not unlike and not missing,
        f"sink {topic.name}",
        given=", ".join([*unlike, *missing]),
        expected="rows that the topic's schema can read: otherwise each would be a bad record there",
        remedy="choose and convert the fields before, or declare the schema with the types that the rows have",
    )


def _require_plain(topic: Topic, plain: PlainValue, written: Mapping[str, FieldType]) -> None:
    require(
        written == plain.fields,
        f"sink {topic.name}",
        given=_told(written),
        expected=f"the key and {_told(plain.fields)}, for the topic has a plain value",
        remedy=f"choose and name the field before: .select({plain.name}=...), declare the plain value with the"
        " type that the field has, or declare the topic without value=, which makes it JSON",
    )


def _reads(declared: FieldType, written: FieldType, encoding: Encoding) -> bool:
    """Whether a field that is ``declared`` so takes what is ``written``: as it is, or as a number without loss.

    In JSON a decimal is a number like others, of which each is judged for itself. A schema of Avro says how many digits
    a decimal may have, so that all of its values can be read or none. In Protobuf it is a text.
    """
    if declared.kind == "double":
        return written.kind in ("double", "long") or (written.kind == "decimal" and encoding == "json")
    if declared.kind == "decimal" and written.kind == "decimal":
        has_room = written.precision - written.scale <= declared.precision - declared.scale
        return written.scale <= declared.scale and (has_room or encoding != "avro")
    return declared == written or (declared.kind == "decimal" and written.kind == "long")


def _told(fields: Mapping[str, FieldType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in fields.items()) or "no field"
