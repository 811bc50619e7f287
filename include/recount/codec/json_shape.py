"""The type as which msgspec decodes a JSON value, and where in it the declared fields lie.

Its members are called f0, f1, … for the fields, and o0, o1, … for objects that hold fields: a field can have any name,
``gewicht.kg`` too, and a member cannot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import GenericAlias
from typing import Any

import msgspec

from recount.core.schema import DOUBLE_DIGITS, STRING, FieldType, RecordSchema

_SCALARS: dict[str, Any] = {"string": str, "long": int, "double": float, "decimal": float | str, "boolean": bool}
_NULL = msgspec.Raw(b"null")
_NO_NAME = re.compile(r'["\\\x00-\x1f]')
"""What no name of msgspec may have."""
_Tree = dict[str, Any]
"""By its name each field, as its number, and each object, as what lies in it."""


@dataclass(frozen=True)
class JsonShape:
    """``struct`` has every declared field as the member ``f`` and its number; ``objects`` are the members around it."""

    struct: type[msgspec.Struct]
    objects: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class _Field:
    """A declared field: ``raw`` stays as it is written."""

    name: str
    path: tuple[str, ...]
    kind: FieldType
    is_required: bool
    raw: bool


def json_shape(schema: RecordSchema) -> JsonShape | None:
    """None where msgspec has no type for it: two fields overlap, or a path has a name with quotes."""
    kinds = [kind.element or kind for kind in schema.fields.values()]
    # one of more than 15 digits does not survive as a double: then decimals stay as they are written
    written = any(kind.kind == "decimal" and kind.precision > DOUBLE_DIGITS for kind in kinds)
    return _shape(
        tuple(
            _Field(
                name=name,
                path=schema.path_of(name),
                kind=STRING if schema.form_of(name) else kind,  # a timestamp is a text in JSON
                is_required=name in schema.required,
                raw=written and kind.kind == "decimal",
            )
            for name, kind in schema.fields.items()
        )
    )


@lru_cache(maxsize=64)
def _shape(fields: tuple[_Field, ...]) -> JsonShape | None:
    tree: _Tree = {}
    for index, field in enumerate(fields):
        node = tree
        for step in field.path[:-1]:
            node = node.setdefault(step, {})
            if not isinstance(node, dict):
                return None
        if field.path[-1] in node or any(map(_NO_NAME.search, field.path)):
            return None
        node[field.path[-1]] = index
    objects: dict[str, tuple[str, ...]] = {}
    return JsonShape(_struct(tree, fields, (), objects), objects)


def _struct(
    tree: _Tree, fields: tuple[_Field, ...], around: tuple[str, ...], objects: dict[str, tuple[str, ...]]
) -> type[msgspec.Struct]:
    members: list[Any] = []
    names: dict[str, str] = {}
    for number, (name, node) in enumerate(tree.items()):
        if isinstance(node, dict):
            member = f"o{number}"
            inner = _struct(node, fields, (*around, member), objects)
            members.append((member, inner) if _has_required(node, fields) else (member, inner | None, None))
        else:
            member, field = f"f{node}", fields[node]
            objects[field.name] = around
            members.append((member, *_type_and_default(field)))
        names[member] = name
    return msgspec.defstruct("Value", members, gc=False, kw_only=True, rename=names)


def _has_required(tree: _Tree, fields: tuple[_Field, ...]) -> bool:
    return any(
        _has_required(node, fields) if isinstance(node, dict) else fields[node].is_required for node in tree.values()
    )


def _type_and_default(field: _Field) -> tuple[Any, ...]:
    python_type = msgspec.Raw if field.raw else _python_type(field.kind)
    if field.is_required:
        return (python_type,)
    return (python_type, _NULL) if field.raw else (python_type | None, None)


def _python_type(field_type: FieldType) -> Any:
    return GenericAlias(list, (_python_type(field_type.element),)) if field_type.element else _SCALARS[field_type.kind]
