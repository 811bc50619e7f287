"""Topics, declared once, and the check that a sink's rows can be written to its topic and read from it."""

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
            "topic-name-unfit",
            given=self.name,
            most=_LONGEST_NAME,
        )
        for name, least in (("partitions", 1), ("replication_factor", 1), ("min_insync_replicas", 1)):
            given = getattr(self, name)
            require(
                type(given) is int and given >= least,
                "topic-number-too-small",
                given=given,
                topic=self.name,
                name=name,
                least=least,
            )
        require(
            self.min_insync_replicas <= self.replication_factor,
            "topic-in-sync-replicas",
            given=self.min_insync_replicas,
            name=self.name,
            replication_factor=self.replication_factor,
        )
        self._require_kinds()
        if self.cleanup_policy == "compact":
            require(
                self.retention_ms in (UNLIMITED_RETENTION_MS, DEFAULT_RETENTION_MS),
                "topic-compacted-with-retention",
                given=f"{self.retention_ms}, with cleanup_policy='compact'",
                name=self.name,
            )
            object.__setattr__(self, "retention_ms", UNLIMITED_RETENTION_MS)
        require(
            type(self.retention_ms) is int and (self.retention_ms == UNLIMITED_RETENTION_MS or self.retention_ms > 0),
            "topic-retention",
            given=self.retention_ms,
            name=self.name,
        )
        self._require_event_time_field()

    def _require_kinds(self) -> None:
        require(isinstance(self.key, str) and self.key != "", "topic-without-a-key", given=self.key, name=self.name)
        require_each("topic-value-of-no-schema", [self.value], RecordSchema | PlainValue | None, name=self.name)
        require(
            self.encoding in get_args(Encoding),
            "topic-encoding-unknown",
            given=self.encoding,
            name=self.name,
            known=", ".join(get_args(Encoding)),
        )
        require(
            self.key_form in get_args(KeyForm),
            "topic-key-form-unknown",
            given=self.key_form,
            name=self.name,
            known=", ".join(get_args(KeyForm)),
        )
        self._require_key_fields()
        require(
            not self.is_of_registry or not isinstance(self.value, PlainValue),
            "topic-encoding-without-fields",
            given=f"{self.encoding}, with a plain value",
            name=self.name,
        )
        require(
            self.cleanup_policy in get_args(CleanupPolicy),
            "topic-cleanup-policy-unknown",
            given=self.cleanup_policy,
            name=self.name,
            known=", ".join(get_args(CleanupPolicy)),
        )
        require(type(self.owned) is bool, "topic-owned-no-boolean", given=self.owned, name=self.name)
        unlike = [f"{name}={value!r}" for name, value in self.configs.items() if not isinstance(value, str)]
        require(not unlike, "topic-configs-no-texts", given=", ".join(unlike), name=self.name)
        twice = sorted(set(self.configs) & set(_DECLARED))
        require(not twice, "topic-configs-with-an-argument", given=", ".join(twice), name=self.name)

    def _require_key_fields(self) -> None:
        names, reads_fields = self.key_fields, self.key_form not in ("text", "bytes")
        require(
            bool(names) == reads_fields,
            "topic-key-form-and-fields",
            given=f"{self.key_form}, {'with ' + ', '.join(names) if names else 'without a field of the key'}",
            name=self.name,
        )
        is_whole = isinstance(self.value, RecordSchema) and self.value.reads_whole_key
        require(
            not is_whole or (self.key_form == "avro" and len(names) == 1),
            "topic-key-without-paths",
            given=f"{self.key_form}, {', '.join(names)} without a path",
            name=self.name,
        )

    def _require_event_time_field(self) -> None:
        if self.event_time is None:
            return
        fields = self.value.fields if self.value else {}
        kind = fields[self.event_time].kind if self.event_time in fields else "not declared"
        require(kind == "long", "topic-event-time", given=f"{self.event_time} ({kind})", name=self.name)

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
    require(topic.key_form == "text", "sink-with-an-encoded-key", given=f"key_form={topic.key_form!r}", name=topic.name)
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
        "sink-without-fields",
        given=f"rows of a {above}without a field".replace(" to without", " without"),
        name=topic.name,
    )


def _require_encodable(topic: Topic, written: Mapping[str, FieldType]) -> None:
    lists = [name for name, kind in written.items() if kind.element is not None]
    require(
        topic.encoding != "protobuf" or not lists,
        "sink-with-a-list-in-protobuf",
        given=", ".join(lists),
        name=topic.name,
    )
    _require_apart_in_json(topic, written)
    no_names = [name for name in written if not _NAME.fullmatch(name)]
    require(
        not topic.is_of_registry or not no_names,
        "sink-with-names-for-no-registry",
        given=", ".join(no_names),
        name=topic.name,
    )


def _require_apart_in_json(topic: Topic, written: Mapping[str, FieldType]) -> None:
    """Compilers of Protobuf give each field a name in JSON as well, and refuse a file in which two have the same."""
    known: dict[str, str] = {}
    alike = [
        f"{known[_in_json(name)]} and {name}" for name in written if known.setdefault(_in_json(name), name) != name
    ]
    require(
        topic.encoding != "protobuf" or not alike,
        "sink-with-names-alike-in-json",
        given=", ".join(alike),
        name=topic.name,
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
        "sink-unreadable-by-its-topic",
        given=", ".join([*unlike, *missing]),
        name=topic.name,
    )


def _require_plain(topic: Topic, plain: PlainValue, written: Mapping[str, FieldType]) -> None:
    require(
        written == plain.fields,
        "sink-of-another-plain-value",
        given=_told(written),
        topic=topic.name,
        field=_told(plain.fields),
        name=plain.name,
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
