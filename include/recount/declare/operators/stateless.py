"""Operators that look at one record at a time and keep no state: what leaves keeps its place in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from recount.declare.columns import INTERNAL, require_free
from recount.declare.expression_types import require_key, require_key_passes, type_of
from recount.declare.expressions import Column, Expression
from recount.declare.schema import STRING, FieldType, require_types
from recount.declare.topics import Topic, require_declared, require_writable
from recount.declare.unknown_names import declares
from recount.runtime.errors import require

if TYPE_CHECKING:
    from recount.declare.operators.nodes import Node

MERGED_FROM = "merged_from"
"""The field in which a cogroup says which stream a record came from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OneInput:
    """An operator with one input whose key, and unless it says otherwise fields, pass unchanged."""

    input: Node
    row_wise: ClassVar[bool] = False
    """Whether of a table it makes a table, row by row and version by version."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def key(self) -> str:
        return self.input.key

    @property
    def fields(self) -> Mapping[str, FieldType]:
        return self.input.fields


@dataclass(frozen=True, kw_only=True, eq=False)
class Select(OneInput):
    """Keeps the key and the fields of ``chosen`` only, each computed by its expression."""

    row_wise = True

    chosen: Mapping[str, Expression]

    def __post_init__(self) -> None:
        kept = {name for name, tree in self.chosen.items() if isinstance(tree, Column) and tree.name == name}
        require_free("fields", [name for name in self.chosen if name not in kept])
        if self.key in self.chosen:
            require_key(f"key {self.key}", self.chosen[self.key], self.input.fields)

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        types = {name: type_of(tree, self.input.fields) or STRING for name, tree in self.chosen.items()}
        return {self.key: self.input.fields[self.key], **types}

    def __str__(self) -> str:
        return "select " + ", ".join(f"{name} = {tree}" for name, tree in self.chosen.items())


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatMap(OneInput):
    """Replaces each record by the rows that a Python ``function`` makes of it; the key passes unchanged.

    ``function`` gets the fields of a record and must depend on nothing else. ``made`` declares the fields of its
    rows; a row's missing fields are null. A null value passes as it is. A record for which it raises is set aside.
    """

    function: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]
    made: Mapping[str, FieldType]
    word: str = "flat-map"

    def __post_init__(self) -> None:
        require(callable(self.function), "not-a-function", given=repr(self.function), field="function")
        require_types("fields", self.made)
        require_free("fields", self.made)
        require_key_passes(f"key {self.key}", self.input.fields[self.key], self.made.get(self.key))

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        return {self.key: self.input.fields[self.key], **self.made}

    def __str__(self) -> str:
        return f"{self.word} to {', '.join(self.made)}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Peek(OneInput):
    """Shows each record to ``action``, which may log or count it; the record passes unchanged.

    An action is outside exactly-once: a replayed batch shows its records again.
    """

    action: Callable[[Mapping[str, Any]], None]

    def __post_init__(self) -> None:
        require(callable(self.action), "not-a-function", given=repr(self.action), field="action")

    def __str__(self) -> str:
        return "peek"


@declares
@dataclass(frozen=True, kw_only=True, eq=False)
class Foreach(Peek):
    """A peek at which the flow ends."""

    def __str__(self) -> str:
        return "for each"


@dataclass(frozen=True, kw_only=True, eq=False)
class Repartition(OneInput):
    """Spreads the records over ``partitions`` tasks by key. Where work is done, never what comes out."""

    partitions: int

    def __post_init__(self) -> None:
        require(type(self.partitions) is int and self.partitions > 0, "repartition-into-nothing", given=self.partitions)

    def __str__(self) -> str:
        return f"repartition to {self.partitions}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Writing(OneInput):
    """Writes to ``topic`` and to the Delta table ``table``, exactly once each."""

    topic: Topic
    table: str

    def __post_init__(self) -> None:
        require_declared(self.topic, self.input)
        require_writable(self.topic, self.key, self.fields)


@dataclass(frozen=True, kw_only=True, eq=False)
class Through(Writing):
    """Writes like a sink, and hands the same records on."""

    def __str__(self) -> str:
        return f"through {self.topic.name}, table {self.table}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Merge:
    """All records of several streams; a field that a stream lacks is null.

    ``names``, of a cogroup, says in the field ``merged_from`` which stream a record came from.
    """

    inputs: tuple[Node, ...]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        keys = {(node.key, str(node.fields[node.key])) for node in self.inputs}
        require(len(keys) == 1, "merge-of-two-keys", given=sorted(keys))
        if self.names is not None:
            for node in self.inputs:
                others = [name for name in node.fields if not name.startswith(INTERNAL)]
                require_free("the fields of a cogroup", others, taken=[MERGED_FROM])
        types: dict[str, set[str]] = {}
        for node in self.inputs:
            for name, kind in node.fields.items():
                types.setdefault(name, set()).add(str(kind))
        unlike = sorted(name for name, kinds in types.items() if len(kinds) > 1)
        require(not unlike, "merge-of-two-types", given=unlike)

    @property
    def key(self) -> str:
        return self.inputs[0].key

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        merged = {name: kind for node in self.inputs for name, kind in node.fields.items()}
        return merged if self.names is None else {**merged, MERGED_FROM: STRING}

    def __str__(self) -> str:
        return "merge" if self.names is None else f"cogroup {', '.join(self.names)}"
