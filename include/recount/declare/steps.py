"""The steps that keep no state, as methods of every stream; ``flow`` adds windows, joins and tables."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from recount.declare.expressions import Expression, coalesce, col, expression
from recount.declare.operators.nodes import Filter, Node, SelectKey, Sink, WithFields
from recount.declare.operators.stateless import FlatMap, Foreach, Merge, Peek, Repartition, Select, Through
from recount.declare.output import OnTooLarge, fitting
from recount.declare.schema import FieldType
from recount.declare.topics import Topic
from recount.declare.unknown_names import declares
from recount.runtime.errors import require, require_each

Row = Mapping[str, Any]


@declares
@dataclass(frozen=True)
class Rows:
    node: Node

    def with_fields(self, /, **added: object) -> Self:
        """The same rows with fields added or replaced."""
        return type(self)(WithFields(input=self.node, added=_expressions(added, self.node)))

    def select(self, /, *kept: str, **chosen: object) -> Self:
        """The key and the named fields only: ``select("order_id", total=col("amount"))``."""
        require_each("selection-of-no-names", kept, str)
        return type(self)(
            Select(input=self.node, chosen={**{name: col(name) for name in kept}, **_expressions(chosen, self.node)})
        )


@declares
@dataclass(frozen=True)
class Steps(Rows):
    """Steps that look at one record at a time."""

    def filter(self, predicate: Expression) -> Self:
        """Only the records for which ``predicate`` is true."""
        return type(self)(Filter(input=self.node, predicate=predicate))

    def select_key(self, /, **key: object) -> Self:
        """The same records under a new key, named by the one keyword: ``select_key(region=col("region"))``."""
        name, by = one_key(key, self.node)
        return type(self)(SelectKey(input=self.node, key=name, by=by))

    def map(self, function: Callable[[Row], Row], /, **made: FieldType) -> Self:
        """Each record replaced by the row that ``function`` makes of its fields; ``made`` declares the row."""
        require(callable(function), "not-a-function", given=repr(function), field="map")
        require(bool(made), "map-without-fields", given="no fields")
        return type(self)(FlatMap(input=self.node, function=lambda row: (function(row),), made=dict(made), word="map"))

    def flat_map(self, function: Callable[[Row], Iterable[Row]], /, **made: FieldType) -> Self:
        """Each record replaced by any number of rows."""
        return type(self)(FlatMap(input=self.node, function=function, made=dict(made)))

    def peek(self, action: Callable[[Row], None]) -> Self:
        """Shows each record to ``action`` and passes it on."""
        return type(self)(Peek(input=self.node, action=action))

    def foreach(self, action: Callable[[Row], None]) -> Foreach:
        """Shows each record to ``action``; goes into a topology's ``actions``."""
        return Foreach(input=self.node, action=action)

    def branch(self, /, **predicates: Expression) -> dict[str, Self]:
        """One stream per predicate, each record in the first that is true, and ``rest`` for those in none."""
        require("rest" not in predicates, "branch-with-a-taken-name", given="rest")
        streams = {}
        rest = self
        for name, predicate in predicates.items():
            streams[name] = rest.filter(predicate)
            rest = rest.filter(~coalesce(predicate, False))
        return {**streams, "rest": rest}

    def merge(self, *others: Self) -> Self:
        """All records of this and the other streams."""
        return type(self)(Merge(inputs=(self.node, *(node_of(other, Steps) for other in others))))

    def repartition(self, partitions: int) -> Self:
        """The same records, worked on by ``partitions`` tasks from here on."""
        return type(self)(Repartition(input=self.node, partitions=partitions))

    def through(self, topic: Topic, *, table: str | None = None) -> Self:
        """Writes to ``topic`` and goes on with the same records."""
        require_topic("through", topic)
        return type(self)(Through(input=self.node, topic=topic, table=_table_name(topic, table)))

    def to(self, topic: Topic, *, table: str | None = None, on_too_large: OnTooLarge = "stop") -> Sink:
        """Writes to ``topic`` and to a Delta table, by default named like the topic with ``_`` for ``-`` and ``.``.

        ``on_too_large``: a result that is larger than the topic takes stops the stream, or its record is a dead letter.
        """
        require_topic("to", topic)
        above = fitting(self.node, topic, on_too_large)
        return Sink(input=above, topic=topic, table=_table_name(topic, table))


def node_of(rows: Rows, kind: type[Rows]) -> Node:
    """The operator that ``rows`` leave; raises ``InvalidDeclaration`` where they are not of ``kind``."""
    require_each("rows-of-another-kind", [rows], kind, wanted=kind.__name__)
    return rows.node


def require_topic(field: str, given: object) -> None:
    require_each("not-a-topic", [given], Topic, field=field)


def _expressions(given: Mapping[str, object], above: Node) -> dict[str, Expression]:
    return {name: _expression(value, above) for name, value in given.items()}


def _expression(given: object, above: Node) -> Expression:
    """Refuses a text that is the name of a field: the field is meant, and each row would have its name."""
    require(not isinstance(given, str) or given not in above.fields, "text-like-a-field", given=repr(given), name=given)
    return expression(given)


def one_key(key: Mapping[str, object], above: Node) -> tuple[str, Expression]:
    """The name and the expression of the one keyword that names a key."""
    require(len(key) == 1, "key-of-many-keywords", given=sorted(key))
    [(name, by)] = key.items()
    return name, _expression(by, above)


_TABLE = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]*")


def _table_name(topic: Topic, given: str | None) -> str:
    if given is None:
        return re.sub(r"[-.]", "_", topic.name)
    require(isinstance(given, str) and _TABLE.fullmatch(given) is not None, "table-name-unfit", given=given)
    return given
