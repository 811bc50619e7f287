"""Operators without state: what leaves keeps its place in the log, and so its stream time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from recount.core.evaluation import evaluate
from recount.core.interpreter.operator import Operator, place_of
from recount.core.interpreter.record import Record
from recount.core.nodes import Filter, SelectKey, Stateless, WithFields
from recount.core.returned_values import as_declared
from recount.core.stateless import MERGED_FROM, FlatMap, Foreach, Merge, Peek, Select
from recount.core.user_functions import failed, handed, own_values
from recount.core.withdrawals import can_be_withdrawn


@dataclass(kw_only=True)
class StatelessOperator(Operator):
    """Any of the operators that look at one record at a time."""

    node: Stateless

    def receive(self, record: Record, port: int) -> Iterable[Record]:
        """What the operator makes of the record."""
        row, given = record.row, self.node.inputs[0].fields
        match self.node:
            case Filter(predicate=predicate):
                if evaluate(predicate, row, given) is True:
                    return (record,)
                is_replaced = record.revision > 0 and can_be_withdrawn(self.node.input)
                return (replace(record, is_null=True),) if is_replaced else ()
            case WithFields(added=added):
                made = {name: evaluate(tree, row, given) for name, tree in added.items()}
                return (record.with_row({**row, **made}),)
            case SelectKey(key=key, by=by):
                return (record.with_row({**row, key: evaluate(by, row, given)}),)
            case Select(chosen=chosen, key=key):
                made = {name: evaluate(tree, row, given) for name, tree in chosen.items()}
                return (record.with_row({key: row[key], **made}),)
            case FlatMap() as node:
                return self._mapped(node, record)
            case Merge(names=names, fields=fields):
                source = {} if names is None else {MERGED_FROM: names[port]}
                return (record.with_row({**dict.fromkeys(fields), **row, **source}),)
            case Foreach() as node:
                self._show(node, record)
                self.journal.note(record.entry, "counted")
                return ()
            case Peek() as node:
                self._show(node, record)
        return (record,)

    def _mapped(self, node: FlatMap, record: Record) -> Iterable[Record]:
        key = {node.key: record.row[node.key]}
        try:
            made = [{}] if record.is_null else node.function(handed(record.row, node.input.fields))
            returned = [own_values({**row, **key}) for row in made]
        except Exception as error:
            return self.raised(node, record, error)
        return [record.with_row(as_declared(row, node.fields, node)) for row in returned]

    def _show(self, node: Peek, record: Record) -> None:
        try:
            node.action(handed(record.row, node.fields))
        except Exception as error:
            raise failed(node, place_of(record, node), error) from error
