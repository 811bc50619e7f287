"""The names that declarations and their tests import, all of them from ``recount``."""

from recount.declare.aggregates import average, count, distinct, first, fold, largest, last, reduce, smallest, total
from recount.declare.expressions import Expression, coalesce, col, lit, when
from recount.declare.flow import RecordStream, Table, cogroup, stream, table
from recount.declare.groups import Archive, StreamGroup
from recount.declare.limits import Health, Resources
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.operators.processing import KeyState
from recount.declare.plain_values import PlainValue
from recount.declare.registry import declared
from recount.declare.run_settings import RunSettings
from recount.declare.schema import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    RecordSchema,
    decimal,
    header,
    in_key,
    list_of,
    nested,
)
from recount.declare.steps import Row
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import ClosingWindows, all_time, hopping, last_n, session, sliding, tumbling
from recount.runtime.errors import InvalidDeclaration
from recount.runtime.times import milliseconds

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DATE",
    "DOUBLE",
    "KEY",
    "LONG",
    "STRING",
    "TIMESTAMP",
    "WINDOW_END",
    "WINDOW_START",
    "Archive",
    "ClosingWindows",
    "Expression",
    "Health",
    "InvalidDeclaration",
    "KeyState",
    "PlainValue",
    "RecordSchema",
    "RecordStream",
    "Resources",
    "Row",
    "RunSettings",
    "StreamGroup",
    "Table",
    "Topic",
    "Topology",
    "all_time",
    "average",
    "coalesce",
    "cogroup",
    "col",
    "count",
    "decimal",
    "declared",
    "distinct",
    "first",
    "fold",
    "header",
    "hopping",
    "in_key",
    "largest",
    "last",
    "last_n",
    "list_of",
    "lit",
    "milliseconds",
    "nested",
    "reduce",
    "session",
    "sliding",
    "smallest",
    "stream",
    "table",
    "total",
    "tumbling",
    "when",
]
