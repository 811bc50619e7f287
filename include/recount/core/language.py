"""The names that declarations and their tests import, all of them from ``recount``."""

from recount.core.aggregates import average, count, distinct, first, fold, largest, last, reduce, smallest, total
from recount.core.archive import Archive
from recount.core.durations import milliseconds
from recount.core.errors import InvalidDeclaration
from recount.core.expressions import Expression, coalesce, col, lit, when
from recount.core.flow import RecordStream, Table, cogroup, stream, table
from recount.core.groups import StreamGroup
from recount.core.limits import Health
from recount.core.nodes import KEY, WINDOW_END, WINDOW_START
from recount.core.plain_values import PlainValue
from recount.core.processing import KeyState
from recount.core.registry import declared
from recount.core.resources import Resources
from recount.core.run_settings import RunSettings
from recount.core.schema import (
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
from recount.core.steps import Row
from recount.core.topics import Topic
from recount.core.topology import Topology
from recount.core.windows import ClosingWindows, all_time, hopping, last_n, session, sliding, tumbling

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
