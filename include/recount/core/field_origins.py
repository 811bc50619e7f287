"""From which fields of which topics each field of a result is made: a declaration's question, for those who ask later.

>>> from recount.core.registry import declared
>>> revenue = declared("topologies.orders").topologies["revenue-by-region"]
>>> [sink] = revenue.written
>>> made = origins(revenue)[sink]
>>> sorted(made.fields["revenue"]), sorted(made.rows)
([('orders', 'amount')], [('orders', 'region')])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from recount.core.aggregates import Aggregate
from recount.core.changelogs import TableAggregate, TableFilter
from recount.core.expression_types import columns_of
from recount.core.expressions import Expression
from recount.core.joins import Join, StreamTableJoin
from recount.core.nodes import Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.processing import Deduplicate, Process
from recount.core.stateless import FlatMap, Merge, Select
from recount.core.topology import Topology

Place = tuple[str, str]
"""The name of a topic, and a field of its records: of the value, or the key under the name that the topic gives it."""
Places = frozenset[Place]


@dataclass(frozen=True, kw_only=True)
class Origins:
    """By field the places of which its value is made, and the places that decide about ``rows``.

    Those are read by filters, keys of groups, joins and deduplications, and as event time: which rows there are, and
    which of them go together. A function in Python may use every field that it is given.
    """

    fields: Mapping[str, Places]
    rows: Places

    def of(self, *trees: Expression | None) -> Places:
        """The places that expressions over these rows read."""
        names = {name for tree in trees if tree is not None for name in columns_of(tree)}
        return self.of_fields(*names)

    def of_fields(self, *names: str) -> Places:
        return frozenset().union(*(self.fields.get(name, frozenset()) for name in names))


def origins(topology: Topology) -> Mapping[Node, Origins]:
    """Those of what leaves each operator."""
    found: dict[Node, Origins] = {}
    for node in topology.nodes():
        found[node] = _of(node, [found[above] for above in node.inputs])
    return found


def _of(node: Node, above: list[Origins]) -> Origins:
    match node:
        case Source():
            return _of_source(node)
        case Merge():
            names = {name for one in above for name in one.fields}
            fields = {name: frozenset().union(*(one.of_fields(name) for one in above)) for name in names}
            return Origins(fields=fields, rows=frozenset().union(*(one.rows for one in above)))
        case Join(left=left, right=right):
            of_left, of_right = above
            by = node.by if isinstance(node, StreamTableJoin) else None
            keys = of_left.of_fields(left.key) if by is None else of_left.of(by)
            right_keys = of_right.of_fields(right.key)
            kept = {name: places for name, places in of_right.fields.items() if name != right.key}
            fields = {**kept, **of_left.fields}
            if node.kind == "outer":
                fields[left.key] = keys | right_keys
            return Origins(fields=fields, rows=of_left.rows | of_right.rows | keys | right_keys)
    [given] = above
    match node:
        case Filter(predicate=predicate) | TableFilter(predicate=predicate):
            return replace(given, rows=given.rows | given.of(predicate))
        case Deduplicate(by=by):
            return replace(given, rows=given.rows | given.of(by))
        case WithFields(added=added):
            return replace(given, fields={**given.fields, **{name: given.of(tree) for name, tree in added.items()}})
        case SelectKey(key=key, by=by):
            return replace(given, fields={**given.fields, key: given.of(by)})
        case Select(chosen=chosen):
            return _only(given, given.of_fields(node.key), node.key, {n: given.of(tree) for n, tree in chosen.items()})
        case FlatMap(made=made) | Process(made=made):
            every = given.of_fields(*given.fields)
            free = replace(given, rows=given.rows | every)
            return _only(free, given.of_fields(node.key), node.key, dict.fromkeys(made, every))
        case WindowedAggregate(aggregates=aggregates):
            return _grouped(given, given.of_fields(node.key), node.key, aggregates)
        case TableAggregate(by=by, aggregates=aggregates):
            return _grouped(given, given.of(by), node.key, aggregates)
    return given


def _of_source(node: Source) -> Origins:
    topic = node.topic
    assert topic.value is not None, "checked by Source"
    fields = {name: frozenset({(topic.name, name)}) for name in topic.value.fields}
    rows = frozenset({(topic.name, topic.event_time)}) if topic.event_time else frozenset()
    return Origins(fields={**fields, node.key: frozenset({(topic.name, topic.key)})}, rows=rows)


def _grouped(given: Origins, of_key: Places, key: str, aggregates: Mapping[str, Aggregate]) -> Origins:
    made = {name: given.of(one.of, one.where) for name, one in aggregates.items()}
    return _only(replace(given, rows=given.rows | of_key), of_key, key, made)


def _only(given: Origins, of_key: Places, key: str, made: Mapping[str, Places]) -> Origins:
    return replace(given, fields={key: of_key, **made})
