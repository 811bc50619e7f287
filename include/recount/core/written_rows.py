"""Which rows a sink may write: those of which a reader of its topic can make something."""

from __future__ import annotations

import re
from collections.abc import Mapping

from recount.core.errors import require
from recount.core.own_columns import INTERNAL
from recount.core.plain_values import PlainValue
from recount.core.schema import FieldType, RecordSchema
from recount.core.topics import Encoding, Topic

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
