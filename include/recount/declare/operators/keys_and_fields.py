"""Keys of records and fields of rows: topics that need keys, keys in several partitions, origins of results.

A key is in several partitions where partitions are added to a topic, or where a second producer assigns keys to
partitions differently. The rule is in docs/semantics.md, "A key in several partitions". Origins say from which fields
of which topics a result is made; other functions say which fields of an operator's rows are read below it.

>>> from recount.declare.registry import declared
>>> revenue = declared("topologies.orders").topologies["revenue-by-region"]
>>> [sink] = revenue.written
>>> made = origins(revenue)[sink]
>>> sorted(made.fields["revenue"]), sorted(made.rows)
([('orders', 'amount')], [('orders', 'region')])
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recount.declare.aggregates import Aggregate
from recount.declare.expression_types import columns_of
from recount.declare.expressions import Column, Expression
from recount.declare.operators.event_time import can_be_revised
from recount.declare.operators.joins import Join, StreamStreamJoin, StreamTableJoin
from recount.declare.operators.nodes import KEY, Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import FlatMap, Merge, Repartition, Select
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.output import encode_value
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import GlobalWindow
from recount.runtime.errors import Terminal

Place = tuple[str, str]
"""The name of a topic, and a field of its records: of the value, or the key under the name that the topic gives it."""
Places = frozenset[Place]
Fields = frozenset[str]


def key_text(topic: Topic, raw: bytes) -> str | None:
    """Return the key ``raw`` of a record of ``topic`` as rows have it; None where it is no text and must be one.

    Of keys with fields see ``key_of``.
    """
    if topic.key_form == "bytes":
        return base64.b64encode(raw).decode()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def key_of(fields: Mapping[str, str | int | None]) -> str | None:
    """Return a key with ``fields`` as rows have it: of one its text, of several a JSON object; None where all are null.

    >>> key_of({"customer": 7}), key_of({"customer": 7, "region": "EU"})
    ('7', '{"customer":7,"region":"EU"}')
    """
    if all(value is None for value in fields.values()):
        return None
    [*values] = fields.values()
    return str(values[0]) if len(values) == 1 else encode_value(fields).decode()


def raw_key(topic: Topic, text: str) -> bytes | None:
    """The key of the records of ``topic`` of which rows have ``text``; None where none can have it.

    Keys with fields cannot be derived from it: many bytes can say the same.
    """
    if topic.key_form == "text":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def topics_needing_a_key(topology: Topology) -> frozenset[str]:
    """The topics whose own record key groups or joins records, so that a record without one is bad."""
    topics: set[str] = set()
    for node in topology.nodes():
        for above in _keyed_inputs(node):
            found = above
            while found.key == KEY and not isinstance(found, Source) and len(found.inputs) == 1:
                [found] = found.inputs
            if isinstance(found, Source) and found.key == KEY:
                topics.add(found.topic.name)
    return frozenset(topics)


def _keyed_inputs(node: Node) -> tuple[Node, ...]:
    """The inputs of which the operator drops null keys; an outer side of a join keeps them."""
    match node:
        case WindowedAggregate() | ToTable() | Process():
            return node.inputs
        case StreamStreamJoin(kind="inner"):
            return node.inputs
        case StreamStreamJoin(kind="left"):
            return (node.right,)
        case StreamTableJoin(kind="inner", by=None):
            return (node.left,)
    return ()


def in_several_partitions(topology: Topology, topic: str) -> list[str]:
    """Return what follows for operators that read ``topic`` by its record key and to which order means something."""
    readers = topology.readers()
    return [f"{node}: {said}" for node in readers for said in _said(node, readers) if topic in keyed_by(node.inputs[0])]


def folds_by_key(node: WindowedAggregate) -> bool:
    """Whether a reduce or fold takes all values that a record key of one topic ever had, in the order of the log.

    It cannot take in one that would come before those that it has taken: ``out_of_order``.
    """
    folds = any(one.fold is not None for one in node.aggregates.values())
    of_one_topic = isinstance(node.windows, GlobalWindow) and len(keyed_by(node.input)) == 1
    return folds and of_one_topic and _is_all_keyed(node.input) and not can_be_revised(node.input)


def _is_all_keyed(node: Node) -> bool:
    """Whether each row that leaves ``node`` has a record key of those topics that it is ``keyed_by``."""
    above = (node.left,) if isinstance(node, StreamTableJoin) else node.inputs
    return bool(keyed_by(node)) and all(map(_is_all_keyed, above))


def goes_by_key(node: Deduplicate | StreamTableJoin | TableAggregate) -> bool:
    """Whether ``node`` tells records apart, looks up or groups by the very key of the records."""
    above = node.left if isinstance(node, StreamTableJoin) else node.input
    return node.by is None or is_key(node.by, above)


def is_key(tree: Expression, node: Node) -> bool:
    """Whether ``tree`` is the key of the rows of ``node``."""
    return isinstance(tree, Column) and tree.name == node.key


def out_of_order(node: WindowedAggregate, key: Any, before: str, now: str) -> Terminal:
    """The error of a ``node`` that ``folds_by_key``: the record ``now`` would come before one that was taken."""
    return Terminal.of("record-out-of-order", given=f"key {key!r} at {before}, then at {now}", node=node)


def keyed_by(node: Node) -> frozenset[str]:
    """The topics whose record key is the key of what leaves ``node``, and whose records leave it as they are read."""
    match node:
        case Source(topic=topic):
            return frozenset({topic.name})
        case InOrder() | Suppress() | TableAggregate() | StreamStreamJoin() | Deduplicate(partitioned=False):
            return frozenset()
        case WindowedAggregate(windows=windows) if not isinstance(windows, GlobalWindow):
            return frozenset()
        case SelectKey(by=by, input=above) if not (isinstance(by, Column) and by.name in names_of_key(above)):
            return frozenset()
        case WithFields(added=added) if node.key in added:
            return frozenset()
        case Process() if node.on_timer is not None:  # rows that a timer makes come when time has passed
            return frozenset()
        case StreamTableJoin(left=left, grace_ms=grace_ms):
            return keyed_by(left) if grace_ms is None else frozenset()
    return frozenset().union(*map(keyed_by, node.inputs))


def names_of_key(node: Node) -> frozenset[str]:
    """The fields that hold the key of ``node``: of a source those, too, that repeat it."""
    like_it = node.topic.fields_like_the_key if isinstance(node, Source) else frozenset()
    return frozenset({node.key}) | like_it


def _is_looked_up_by_time(table: Node, readers: Mapping[Node, Sequence[tuple[Node, int]]]) -> bool:
    """Whether nobody reads ``table``, or its rows filtered and mapped, but lookups as of the event's time."""
    return all(
        _is_looked_up_by_time(reader, readers)
        if isinstance(reader, TableFilter | WithFields | Select)
        else isinstance(reader, StreamTableJoin) and port == 1 and reader.as_of == "event"
        for reader, port in readers[table]
    )


def _said(node: Node, readers: Mapping[Node, Sequence[tuple[Node, int]]]) -> Iterator[str]:
    match node:
        case ToTable(versioned=False) if not _is_looked_up_by_time(node, readers):
            yield "its row is the one that was read last; of one batch, the one of the later event time"
        case Deduplicate(partitioned=True):
            yield "the record that was read first wins; of one batch, the one of the earlier event time"
        case Process() if keyed_by(node.input):
            yield "the stream ends at the first record in another partition, unless nothing is remembered of the key"
        case WindowedAggregate(aggregates=aggregates):
            ordered = sorted({one.kind for one in aggregates.values()} & {"first", "last", "reduce", "fold"})
            if folds_by_key(node):
                yield "the stream ends at a record in a lower partition than one that was read before"
            elif ordered:
                yield f"{', '.join(ordered)} take the values of the lower partition first, whatever their times"
            if node.emission.kind == "each record":
                yield "its updates leave in the order in which the records are read"


@dataclass(frozen=True, kw_only=True)
class Origins:
    """Places of which the value of each field is made, and the places that decide about ``rows``.

    The latter are read by filters, keys of groups, joins and deduplications, and as event time: which rows there are,
    and which of them go together. A function in Python may use every field that it is given.
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
    """Return the origins of what leaves each operator."""
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


def fields_read(topology: Topology) -> Mapping[Node, Fields]:
    """For every operator those of its ``fields`` that a result, a function or a fate can depend on."""
    found: dict[Node, Fields] = dict.fromkeys(topology.nodes(), frozenset())
    for node in reversed(list(topology.nodes())):
        for above in node.inputs:
            found[above] |= _read(node, found[node]) & above.fields.keys()
    return found


def columns_read(topology: Topology, topic: Topic) -> list[str]:
    """The declared fields of the values of ``topic`` that are looked at, event time among them, in declared order."""
    assert topic.value is not None, "checked by Source"
    found = fields_read(topology)
    sources = [node for node in found if isinstance(node, Source) and node.topic.name == topic.name]
    read = frozenset({topic.event_time}).union(*(found[source] for source in sources))
    return [name for name in topic.value.fields if name in read]


def _read(node: Node, below: Fields) -> Fields:
    """The fields that ``node`` reads of its inputs, for the sake of its own rows' fields ``below`` among others."""
    match node:
        case Repartition():
            return below
        case InOrder():
            return below | {node.key}  # for the late ledger
        case Filter(predicate=predicate):
            return below | columns_of(predicate)
        case WithFields(added=added):
            return below - added.keys() | _columns(added.values())
        case SelectKey(key=key, by=by):
            return below - {key} | columns_of(by)
        case Select(chosen=chosen):
            return frozenset({node.key}) | _columns(chosen.values())
        case WindowedAggregate(aggregates=aggregates):
            trees = [tree for each in aggregates.values() for tree in (each.of, each.where) if tree is not None]
            return frozenset({node.key}) | _columns(trees)
    return frozenset(name for above in node.inputs for name in above.fields)


def _columns(trees: Iterable[Expression]) -> Fields:
    return frozenset().union(*map(columns_of, trees))
