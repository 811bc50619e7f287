"""Frames: rows that DuckDB computes when they are first read, from other frames or from rows of this process.

A frame is a query over the frames that it was made of. ``once`` keeps its rows in a table of the database from when
they are first read, until nobody refers to the frame any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal
from weakref import finalize

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, LocalFileSystem
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from recount.recompute.frames.duck_columns import (
    Column,
    Given,
    PythonFunction,
    column_of,
    duck_type,
    kind_of,
    literal,
    named,
    quoted,
)
from recount.recompute.frames.duck_database import ROWS_AT_ONCE, Database, Pass
from recount.recompute.frames.duck_functions import struct

How = Literal["inner", "left", "full", "left_semi", "left_anti"]
_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN", "left_semi": "SEMI JOIN", "left_anti": "ANTI JOIN"}
_NUMBERS = count()
_FRAMES_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """The rows of ``query`` over the frames ``above``, which it calls by their names, with these ``columns``."""

    database: Database
    query: str
    columns: Sequence[str]
    above: list[Frame] = field(default_factory=list)
    functions: frozenset[PythonFunction] = frozenset()
    is_kept: bool = False
    is_by_row: bool = False
    through: Pass | None = None
    declared: pa.Schema | None = None
    name: str = field(default_factory=lambda: f"frame_{next(_NUMBERS)}")
    _state: dict[str, Any] = field(default_factory=dict)

    # ---- rows

    def select(self, *columns: Given) -> Frame:
        """These columns of each row, and no others."""
        made = [column_of(one) for one in columns]
        names = [_named(one) for one in made]
        is_by_row = not any(" OVER (" in one.sql for one in made)
        return self._made(f"SELECT {_listed(made)} FROM {self.name}", names, made, is_by_row=is_by_row)

    def where(self, condition: Given) -> Frame:
        """The rows for which ``condition`` holds."""
        holds = column_of(condition)
        return self._made(f"SELECT * FROM {self.name} WHERE {holds.sql}", self.columns, [holds], is_by_row=True)

    def with_column(self, name: str, value: Given) -> Frame:
        """The rows with one more column, or another in place of the one of that name."""
        return self.with_columns({name: value})

    def with_columns(self, values: Mapping[str, Given]) -> Frame:
        """The same with several, each of which sees the columns as they were."""
        made = {name: column_of(value).alias(name) for name, value in values.items()}
        columns = [made.pop(name, named(name)) for name in self.columns]
        return self.select(*columns, *made.values())

    def renamed(self, names: Mapping[str, str]) -> Frame:
        """The rows with other names of columns."""
        return self.select(*(named(name).alias(names.get(name, name)) for name in self.columns))

    def under(self, names: Iterable[str]) -> Frame:
        """The rows with these names of columns, in their order."""
        return self.renamed(dict(zip(self.columns, names, strict=True)))

    def drop(self, *names: str) -> Frame:
        """The rows without the columns of these names, if they have them."""
        return self.select(*(one for one in self.columns if one not in names))

    def distinct(self) -> Frame:
        """Each row once."""
        return self._made(f"SELECT DISTINCT * FROM {self.name}", self.columns)

    def one_of_each(self, names: Sequence[str]) -> Frame:
        """Some row for each combination of these columns."""
        keys = ", ".join(map(quoted, names))
        return self._made(f"SELECT DISTINCT ON ({keys}) * FROM {self.name}", self.columns)

    def union(self, *others: Frame) -> Frame:
        """The rows of all, by the names of their columns; one that a frame has not is null there."""
        frames = [self, *others]
        query = " UNION ALL BY NAME ".join(f"SELECT * FROM {one.name}" for one in frames)
        columns = list(dict.fromkeys(name for one in frames for name in one.columns))
        return Frame(database=self.database, query=query, columns=columns, above=list(dict.fromkeys(frames)))

    def join(self, other: Frame, on: Column | Sequence[str], how: How = "inner", *, nulls_fit: bool = False) -> Frame:
        """The rows of both that fit; the columns ``on`` of names come first, and once.

        ``nulls_fit``: of names, those of two rows that both have no value fit too.
        """
        assert not isinstance(on, str), "names are a list"
        of_both = self.columns if how in ("left_semi", "left_anti") else [*self.columns, *other.columns]
        if isinstance(on, Column):
            assert len(set(of_both)) == len(of_both), f"columns of one name: {of_both}"
            query = f"SELECT {_listed(map(named, of_both))} FROM {self.name} {_JOINS[how]} {other.name} ON {on.sql}"
            return self._made(query, of_both, [on], other)
        names = [*on, *(one for one in of_both if one not in on)]
        assert len(set(names)) == len(names) and other is not self, f"columns of one name: {of_both}"
        keys, rest = [quoted(one) for one in on], [quoted(one) for one in names[len(on) :]]
        fit = f"USING ({', '.join(keys)})"
        if nulls_fit:
            both = [(f"{self.name}.{key}", f"{other.name}.{key}") for key in keys]
            fit = "ON " + " AND ".join(f"{mine} IS NOT DISTINCT FROM {theirs}" for mine, theirs in both)
            if how not in ("left_semi", "left_anti"):
                keys = [f"COALESCE({', '.join(pair)}) AS {key}" for pair, key in zip(both, keys, strict=True)]
        query = f"SELECT {', '.join([*keys, *rest])} FROM {self.name} {_JOINS[how]} {other.name} {fit}"
        return self._made(query, names, (), other)

    def group_by(self, *keys: Given) -> Groups:
        """The rows by ``keys``."""
        return Groups(frame=self, keys=[column_of(key) for key in keys])

    def agg(self, *columns: Column) -> Frame:
        """One row over all."""
        return self.group_by().agg(*columns)

    def sorted_by(self, *names: str, at_most: int | None = None) -> Frame:
        """The rows sorted, to be read as they are; ``at_most`` so many of the first."""
        order = ", ".join(f"{quoted(name)} ASC NULLS FIRST" for name in names)
        limit = "" if at_most is None else f" LIMIT {at_most}"
        return self._made(f"SELECT * FROM {self.name} ORDER BY {order}{limit}", self.columns)

    def whole(self, name: str) -> Frame:
        """Each row as one column ``name``."""
        return self.select(struct(*self.columns).alias(name))

    def parts_of(self, name: str) -> Frame:
        """The parts of the struct ``name`` as columns."""
        kind = self.schema[name].dataType
        assert isinstance(kind, T.StructType)
        return self.select(*(named(name).part(part).alias(part) for part in kind.names))

    def passed_through(self, function: Pass, schema: T.StructType) -> Frame:
        """The rows that ``function`` makes of these, which come batch after batch, as they are sorted."""
        return Frame(
            database=self.database,
            query=f"SELECT * FROM {self.name}",
            columns=schema.names,
            above=[self],
            is_kept=True,
            through=function,
            declared=to_arrow_schema(schema),
        )

    # ---- what they are

    @property
    def schema(self) -> T.StructType:
        """The columns with their types."""
        return T.StructType([T.StructField(one.name, kind_of(one.type)) for one in self.arrow_schema])

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns with their types, as Arrow has them."""
        if self.declared is not None:
            return self.declared
        if "table" in self._state:
            return self.database.schema(f"SELECT * FROM {self._state['table']}")
        if "schema" not in self._state:
            steps = dict[str, str]()
            functions = self.functions.union(*(one._shaped(steps) for one in self.above))
            self._state["schema"] = self.database.schema(_with(steps, self.query), functions)
        found: pa.Schema = self._state["schema"]
        return found

    def _shaped(self, steps: dict[str, str]) -> frozenset[PythonFunction]:
        """Add to ``steps`` those that tell the types of the columns; returns the functions of Python in them."""
        if self.name in steps:
            return frozenset()
        if self.declared is not None or self._state or self.is_kept:
            # each table by itself: a query has no more than a thousand steps
            steps[self.name] = f"SELECT {self._nothing} LIMIT 0"
            return frozenset()
        functions = self.functions.union(*(one._shaped(steps) for one in self.above))
        steps[self.name] = self.query
        return functions

    @property
    def _nothing(self) -> str:
        kinds = ((one.name, duck_type(kind_of(one.type))) for one in self.arrow_schema)
        return ", ".join(
            f"CAST(NULL AS {'INTEGER' if kind == 'VOID' else kind}) AS {quoted(name)}" for name, kind in kinds
        )

    def arrow(self) -> pa.Table:
        """All rows."""
        return self.database.arrow(*self._whole_query())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, some at a time."""
        return self.database.batches(*self._whole_query())

    def rows(self) -> list[dict[str, Any]]:
        """All rows, which are few."""
        found: list[dict[str, Any]] = self.arrow().to_pylist()
        return found

    def number(self) -> int:
        """How many rows there are."""
        [row] = self._made(f"SELECT count(*) AS number FROM {self.name}", ["number"]).rows()
        found: int = row["number"]
        return found

    def is_empty(self) -> bool:
        """Whether there is no row."""
        return not self._made(f"SELECT 1 AS one FROM {self.name} LIMIT 1", ["one"]).rows()

    @property
    def is_cheap(self) -> bool:
        """Whether the rows are single ones of tables and files, with other columns: to keep them costs more."""
        if self.is_kept or not self.above:
            return True
        return self.is_by_row and not self.functions and self.above[0].is_cheap

    def add(self, rows: pa.Table) -> None:
        """Add ``rows``, whose columns lie as those of the frame, which has rows of this process (``frame_of``)."""
        self.database.add(self._state["table"], rows.rename_columns(self.columns).cast(self.arrow_schema))

    # ---- how they are computed

    def _made(
        self,
        query: str,
        columns: Sequence[str],
        parts: Iterable[Column] = (),
        other: Frame | None = None,
        *,
        is_by_row: bool = False,
    ) -> Frame:
        functions = frozenset[PythonFunction]().union(*(one.functions for one in parts))
        above = [self] if other is None or other is self else [self, other]
        return Frame(
            database=self.database,
            query=query,
            columns=columns,
            above=above,
            functions=functions,
            is_by_row=is_by_row,
        )

    def _whole_query(self) -> tuple[str, frozenset[PythonFunction]]:
        """The query with those of all frames that it is made of; what is kept is computed here."""
        found: dict[str, Frame] = {}
        self._collect(found)
        functions = frozenset[PythonFunction]().union(*(one.functions for one in found.values() if not one.is_kept))
        ours = found.pop(self.name)
        return _with({name: one._step() for name, one in found.items()}, ours._step()), functions

    def _step(self) -> str:
        return f"SELECT * FROM {self._table()}" if self.is_kept else self.query

    def _collect(self, found: dict[str, Frame]) -> None:
        """The frames that must be named in a query of this one, those above first."""
        if self.name in found:
            return
        if self.is_kept:
            self._table()
        else:
            for one in self.above:
                one._collect(found)
        found[self.name] = self

    def _table(self) -> str:
        """The table that has the rows; of several readers at once the first computes it."""
        with self.database.lock:
            return self._computed()

    def _computed(self) -> str:
        if "table" not in self._state:
            found: dict[str, Frame] = {}
            for one in self.above:
                one._collect(found)
            query = _with({name: one._step() for name, one in found.items()}, self.query)
            functions = self.functions.union(*(one.functions for one in found.values() if not one.is_kept))
            if self.through is None:
                table = self.database.keep(query, functions)
            else:
                assert self.declared is not None
                table = self.database.keep_passed(query, functions, self.through, self.declared)
            self._state["table"] = table
            self.above.clear()
            finalize(self, self.database.forget, table)
        name: str = self._state["table"]
        return name


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """The rows of ``frame`` by ``keys``."""

    frame: Frame
    keys: Sequence[Column]

    def agg(self, *columns: Column) -> Frame:
        """A row for each group: its keys and these aggregates."""
        made = [*self.keys, *columns]
        by = ", ".join(str(at) for at in range(1, len(self.keys) + 1))
        query = f"SELECT {_listed(made)} FROM {self.frame.name}" + (f" GROUP BY {by}" if by else "")
        return self.frame._made(query, [_named(one) for one in made], made)


def frame_of(database: Database, batches: Iterable[pa.RecordBatch | pa.Table], schema: pa.Schema) -> Frame:
    """The rows of ``batches``, which are of this process."""
    table = database.keep_rows(batches, schema)
    frame = Frame(
        database=database, query="", columns=schema.names, is_kept=True, declared=schema, _state={"table": table}
    )
    finalize(frame, database.forget, table)
    return frame


def frame_of_files(database: Database, files: FileSystem, names: Sequence[str], schema: pa.Schema) -> Frame:
    """The rows of the Parquet files ``names``, which stay there; of another file system than this machine's a copy."""
    if not names:
        return frame_of(database, [], schema)
    if not isinstance(files, LocalFileSystem):
        found = ds.dataset(list(names), filesystem=files, format="parquet")
        # by default Arrow reads up to 64 batches of 131,072 rows ahead of a database that spills
        rows = found.to_batches(batch_size=ROWS_AT_ONCE, batch_readahead=1, fragment_readahead=1)
        return frame_of(database, rows, schema)
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    return Frame(
        database=database, query=f"SELECT * FROM read_parquet([{listed}])", columns=schema.names, declared=schema
    )


def once(frame: Frame) -> Frame:
    """The rows of ``frame``, computed once: when they are first read."""
    if frame.is_kept:
        return frame
    above, functions = list(frame.above), frame.functions
    return Frame(
        database=frame.database,
        query=frame.query,
        columns=frame.columns,
        above=above,
        functions=functions,
        is_kept=True,
    )


def union_of(frames: Sequence[Frame]) -> Frame:
    """The rows of all ``frames``, of which there must be one.

    Many are taken together some at a time: DuckDB takes no query of more than a thousand steps.
    """
    if len(frames) > _FRAMES_AT_ONCE:
        return union_of([once(union_of(some)) for some in _some_at_a_time(frames)])
    first, *others = frames
    return first.union(*others) if others else first


def _some_at_a_time(frames: Sequence[Frame]) -> Iterator[Sequence[Frame]]:
    for start in range(0, len(frames), _FRAMES_AT_ONCE):
        yield frames[start : start + _FRAMES_AT_ONCE]


def no_rows(database: Database, columns: str) -> Frame:
    """No row with these ``columns``: their names and types, as Spark writes them."""
    kinds = dict(one.split(" ", 1) for one in columns.split(", "))
    made = [literal(None).cast(kind).alias(name) for name, kind in kinds.items()]
    return Frame(database=database, query=f"SELECT {_listed(made)} LIMIT 0", columns=list(kinds))


def _with(steps: Mapping[str, str], query: str) -> str:
    named_steps = ", ".join(f"{name} AS ({step})" for name, step in steps.items())
    return f"WITH {named_steps} {query}" if steps else query


def _named(column: Column) -> str:
    assert column.name is not None, f"a column without a name: {column.sql}"
    return column.name


def _listed(columns: Iterable[Column]) -> str:
    return ", ".join(f"{one.sql} AS {quoted(_named(one))}" for one in columns)
