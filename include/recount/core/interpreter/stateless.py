"""Operators without state: what leaves keeps its place in the log, and so its stream time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from recount.core.evaluation import evaluate
from recount.core.interpreter.operator import Operator
from recount.core.interpreter.record import Record
from recount.core.nodes import Filter, SelectKey, Stateless, WithFields
from recount.core.returned_values import require_returned
from recount.core.stateless import MERGED_FROM, FlatMap, Foreach, Merge, Peek, Select
from recount.core.withdrawals import can_be_withdrawn


@dataclass(kw_only=True)
class StatelessOperator(Operator):
    """Any of the operators that look at one record at a time."""

    node: Stateless

    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """What the operator makes of the record."""
        row = record.row
        match self.node:
            case Filter(predicate=predicate):
                if evaluate(predicate, row) is True:
                    return (record,)
                is_replaced = record.revision > 0 and can_be_withdrawn(self.node.input)
                return (replace(record, is_null=True),) if is_replaced else ()
            case WithFields(added=added):
                return (record.with_row({**row, **{name: evaluate(tree, row) for name, tree in added.items()}}),)
            case SelectKey(key=key, by=by):
                return (record.with_row({**row, key: evaluate(by, row)}),)
            case Select(chosen=chosen, key=key):
                return (
                    record.with_row({key: row[key], **{name: evaluate(tree, row) for name, tree in chosen.items()}}),
                )
            case FlatMap() as node:
                return self._mapped(node, record)
            case Merge(names=names, fields=fields):
                source = {} if names is None else {MERGED_FROM: names[port]}
                return (record.with_row({**dict.fromkeys(fields), **row, **source}),)
            case Foreach(action=action):
                action(row)
                self.journal.note(record.entry, "counted")
                return ()
            case Peek(action=action):
                action(row)
        return (record,)

    def _mapped(self, node: FlatMap, record: Record) -> Iterable[Record]:
        empty = dict.fromkeys(node.fields)
        key = {node.key: record.row[node.key]}
        try:
            made = [{}] if record.is_null else node.function(record.row)
            leaving = [record.with_row({**empty, **row, **key}) for row in made]
        except Exception as error:
            return self.raised(node, record, error)
        for one in leaving:
            require_returned(one.row, node.fields, node)
        return leaving
