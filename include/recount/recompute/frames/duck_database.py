"""The database of one recompute: DuckDB in this process, within a limit of memory, spilling to a folder of its own."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from threading import Lock, RLock
from typing import Any
from weakref import finalize

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType
from pyspark.sql.pandas.types import to_arrow_type

from recount.recompute.frames.duck_columns import REFUSED, PythonFunction, duck_type
from recount.runtime.errors import Terminal

DEFAULT_MEMORY = "1GiB"
ROWS_AT_ONCE = 50_000
_ROWS_UNCOMPRESSED = 250_000
"""So many new rows of tables wait until all of them are compressed together."""
_TABLES = "kept"
"""The database in memory that has the tables: only one that is attached can compress them."""
_NUMBERS = count()
Pass = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class NotComputable(Terminal):
    """A value of the log that no result of the topology can hold, as a sum beyond its type."""


class Database:
    """Tables and queries of one recompute, which end with this object.

    It takes so much ``memory`` before it spills. Raises ``Terminal`` where memory or the disk is not enough, and what a
    function of Python raises.
    """

    def __init__(self, memory: str = DEFAULT_MEMORY) -> None:
        self._folder = tempfile.mkdtemp(prefix="recount-recompute-")
        self._connection = duckdb.connect(
            config={
                "memory_limit": memory,
                "threads": len(os.sched_getaffinity(0)),
                "temp_directory": self._folder,
                "preserve_insertion_order": False,
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                # memory that is free goes back to the system: without them it never does
                "allocator_background_threads": True,
            }
        )
        self._connection.execute(f"ATTACH ':memory:' AS {_TABLES} (COMPRESS)")
        self._uncompressed = 0
        self._known: set[PythonFunction] = set()
        self._unneeded: list[str] = []
        self._raised: list[BaseException] = []
        self.lock = RLock()
        self._preparing = Lock()
        self._close = finalize(self, _closed, self._connection, self._folder)

    def close(self) -> None:
        """Give memory and disk back. The frames of the database are of no use any more."""
        self._close()

    def arrow(self, sql: str, functions: Iterable[PythonFunction] = ()) -> pa.Table:
        """The rows of a query."""
        return self._run(lambda: self._cursor(functions).sql(sql).to_arrow_table())

    def batches(self, sql: str, functions: Iterable[PythonFunction] = ()) -> Iterator[pa.RecordBatch]:
        """The same, some at a time."""
        reader = self._run(lambda: self._cursor(functions).sql(sql).to_arrow_reader(ROWS_AT_ONCE))
        while (batch := self._run(lambda: next(reader, None))) is not None:
            yield batch

    def schema(self, sql: str, functions: Iterable[PythonFunction] = ()) -> pa.Schema:
        """The columns of a query, which is not computed."""
        return self.arrow(f"SELECT * FROM ({sql}) LIMIT 0", functions).schema

    def keep(self, sql: str, functions: Iterable[PythonFunction]) -> str:
        """The name, as SQL writes it, of a new table with the rows of a query."""
        name = _new_table()
        made = self._run(lambda: self._cursor(functions).execute(f"CREATE TABLE {name} AS {sql}").fetchone())
        self._compress(made[0])
        return name

    def keep_passed(self, sql: str, functions: Iterable[PythonFunction], through: Pass, schema: pa.Schema) -> str:
        """The name of a new table with what ``through`` makes of the rows of a query, batch after batch."""
        return self.keep_rows(through(self.batches(sql, functions)), schema)

    def keep_rows(self, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema) -> str:
        """The name of a new table with the rows of ``batches``, which all have ``schema``."""
        name = _new_table()
        self._put(schema.empty_table(), f"CREATE TABLE {name} AS SELECT * FROM given")
        for batch in batches:
            if batch.num_rows:
                rows = batch if isinstance(batch, pa.Table) else pa.table(batch)
                self.add(name, rows.cast(schema))
        return name

    def add(self, name: str, rows: pa.Table) -> None:
        """Add ``rows`` to the table ``name``, which has their columns."""
        self._put(rows, f"INSERT INTO {name} SELECT * FROM given")
        self._compress(rows.num_rows)

    def forget(self, name: str) -> None:
        """Drop the table ``name``, when the next query begins: nobody reads it any more."""
        self._unneeded.append(name)

    def _compress(self, rows: int) -> None:
        """Note so many new ``rows`` of tables, and compress all tables once these are many: a third to a tenth is left.

        While another query is at work nothing can be compressed; later rows will come to it.
        """
        self._uncompressed += rows
        if self._uncompressed > _ROWS_UNCOMPRESSED:
            with suppress(duckdb.TransactionException):
                self._run(lambda: self._connection.cursor().execute(f"CHECKPOINT {_TABLES}"))
                self._uncompressed = 0

    def _put(self, rows: pa.Table, sql: str) -> None:
        cursor = self._connection.cursor()
        cursor.register("given", rows)
        self._run(lambda: cursor.execute(sql))
        cursor.unregister("given")

    def _cursor(self, functions: Iterable[PythonFunction]) -> duckdb.DuckDBPyConnection:
        """A cursor that knows ``functions``; of several threads that ask for one, one at a time uses the connection."""
        with self._preparing:
            while self._unneeded:
                self._connection.execute(f"DROP TABLE {self._unneeded.pop()}")
            for one in set(functions) - self._known:
                self._connection.create_function(
                    one.name,
                    self._by_row(one),
                    return_type=duck_type(one.kind),
                    type=PythonUDFType.ARROW,
                    null_handling=FunctionNullHandling.SPECIAL,
                )
                self._known.add(one)
            return self._connection.cursor()

    def _by_row(self, one: PythonFunction) -> Callable[..., pa.Array]:
        kind = to_arrow_type(one.kind)

        def computed(*columns: pa.ChunkedArray) -> pa.Array:
            try:
                rows = zip(*(column.to_pylist() for column in columns), strict=True)
                return pa.array([one.function(*row) for row in rows], kind)
            except Exception as error:
                self._raised.append(error)
                raise

        return computed

    def _run(self, query: Callable[[], Any]) -> Any:
        try:
            return query()
        except duckdb.OutOfMemoryException as error:
            raise Terminal(
                "a recompute needs more memory than it may take",
                given=str(error).splitlines()[0],
                expected="a limit of memory that is enough, and a disk with room for what spills",
                remedy="set RECOUNT_AUDIT_MEMORY higher, or TMPDIR to a folder of a disk with more room",
            ) from None
        except duckdb.Error as error:
            if self._raised:
                raise self._raised.pop() from error
            _, refused, text = str(error).partition(REFUSED)
            if not refused:
                raise
            raise NotComputable(
                text.splitlines()[0],
                given="a value of the log",
                expected="one that every result of the topology can hold",
                remedy="declare a wider type, or filter such records",
            ) from None


def _new_table() -> str:
    return f"{_TABLES}.rows_{next(_NUMBERS)}"


def _closed(connection: duckdb.DuckDBPyConnection, folder: str) -> None:
    connection.close()
    shutil.rmtree(folder, ignore_errors=True)
