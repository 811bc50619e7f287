"""State of the operators of a graph, as rows of the stream's state table and back.

A row of the table has many rows of one state, as Arrow IPC: those that a batch has changed, as they are now, or
``deleted`` with their identity. Of one identity the last one counts. Every now and then a batch writes the state whole:
what is before such a *snapshot* is not needed any more, so that the table stays in proportion to the state.

Where the keys are dealt out, each *part* of them has rows of its own (``part``). Clocks, which are alike in all parts,
are those of part 0. The number of parts changes with a snapshot only, whose first row says it.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl
from deltalake import DeltaTable, write_deltalake

from recount.declare.columns import BATCH, GENERATION
from recount.engine.driver.signs_of_work import worked
from recount.engine.stage.intake import from_ipc, to_ipc
from recount.engine.state.keyed_rows import ARRIVED, DELETED, NUMBER, KeyedRows
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import earlier

ROWS, MANY, SNAPSHOT, PART = "rows", "many", "snapshot", "part"
STATE_SCHEMA: dict[str, pl.DataType] = {
    "state": pl.String(),
    ROWS: pl.Binary(),
    MANY: pl.Int64(),
    SNAPSHOT: pl.Boolean(),
    PART: pl.Int32(),
}
"""``many`` is how many rows of the state are in ``rows``."""
HEAD = "parts"
"""The state of the first row of a snapshot, which has the number of parts in ``many``."""
_AS_JSON = "json"
"""The column of rows of a state that an earlier release wrote: see ``bring_up``."""
_FORMER_HEADS = ("", "parts")
"""The states of the first row of a snapshot in an earlier release: of one part, and of several, in ``row``."""
_ORDER = [GENERATION, BATCH]
_ROWS_PER_STATE_ROW = 4
_ROWS_AT_LEAST = 10_000
_ROWS_TOGETHER = 1_000_000
"""So many rows of a state are in one row of the table at most."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Part number ``number`` of ``parts``, of the keys; ``by`` names the column with the key in the rows of a state."""

    number: int = 0
    parts: int = 1
    by: Mapping[str, str] | None = None


WHOLE = Part()


def parts_of(keys: pl.Series, parts: int) -> pl.Series:
    """The part of each of the ``keys``, texts, numbers or booleans; a null is of part 0. No release changes it."""
    texts = keys.cast(pl.String)
    known = texts.unique().drop_nulls()
    numbers = pl.Series([zlib.crc32(text.encode()) % parts for text in known.to_list()], dtype=pl.Int32())
    found = pl.DataFrame({"text": texts}).join(
        pl.DataFrame({"text": known, PART: numbers}), on="text", how="left", maintain_order="left"
    )
    return found[PART].fill_null(0)


class GraphState:
    """Writes and reads the ``part`` of ``states``, by name; ``clocks`` are those that all parts have alike."""

    def __init__(self, states: Mapping[str, KeyedRows], clocks: frozenset[str], part: Part = WHOLE) -> None:
        self._states = states
        self._clocks = clocks
        self._part = part
        self.written = 0
        """Rows of this part that a start would read."""

    def changes(self, *, whole: bool) -> pl.DataFrame:
        """Rows of the table (``STATE_SCHEMA``) with what the batch changed, or with all: a snapshot."""
        changed = {name: state.changes() for name, state in self._states.items()}
        rows = {name: _kept(state.rows) if whole else changed[name] for name, state in self._states.items()}
        mine = {name: each for name, each in rows.items() if self._part.number == 0 or name not in self._clocks}
        many = sum(each.height for each in mine.values())
        self.written = many if whole else self.written + many
        head = [(HEAD, b"", self._part.parts)] if whole and self._part.number == 0 else []
        packed = [one for name, each in mine.items() for one in _packed(name, each)]
        return pl.DataFrame([(*row, whole, self._part.number) for row in (*head, *packed)], STATE_SCHEMA, orient="row")

    def load(self, since: pl.DataFrame) -> bool:
        """Start from the rows ``since`` the last snapshot, of all parts; returns whether they were as many as now.

        Where they were not, the next batch has to write a snapshot. Raises ``Terminal`` for a state that no operator
        has.
        """
        unknown = set(since["state"].unique()) - self._states.keys() - {HEAD}
        if unknown:
            raise Terminal.of(
                "state-of-another-topology", given=", ".join(sorted(unknown)), expected=", ".join(sorted(self._states))
            )
        is_same = _parts_of_heads(since) == self._part.parts
        mine = pl.col(PART) == self._part.number
        self.written = int(since.filter(mine & (pl.col("state") != HEAD))[MANY].sum())
        for name, state in self._states.items():
            found, is_clock = since.filter(pl.col("state") == name), name in self._clocks
            if is_clock or is_same:
                found = found.filter(pl.col(PART) == 0 if is_clock else mine)
            parts = found.partition_by(PART, maintain_order=True)
            rows = _joined((_standing(part, state) for part in parts), state.schema)
            state.load(rows if is_clock or is_same else self._dealt(name, state, rows))
            worked()
        return is_same

    @property
    def size(self) -> int:
        return sum(state.height for state in self._states.values())

    def _dealt(self, name: str, state: KeyedRows, rows: pl.DataFrame) -> pl.DataFrame:
        """The ``rows`` of other parts that belong to this one, as if they had come here."""
        if self._part.by is not None and name in self._part.by:
            rows = rows.filter(parts_of(rows[self._part.by[name]], self._part.parts) == self._part.number)
        if state.identity in ([ARRIVED], [NUMBER]):
            # each part has counted by itself: those of one key have come in this order
            [number] = state.identity
            rows = rows.sort(number, maintain_order=True).with_columns(
                pl.int_range(pl.len(), dtype=pl.Int64).alias(number)
            )
        return rows


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """The rows of ``state``, with the columns of ``schema``, in the table at ``path`` of a stream that stands still.

    Raises ``Terminal`` where the table has the form of an earlier release.
    """

    path: str
    state: str
    schema: Mapping[str, pl.DataType]

    def count(self, which: pl.Expr) -> int:
        return sum(rows.filter(which).height for rows in self._rows(self._table()))

    def remove(self, which: pl.Expr) -> None:
        """Replace the rows by those that are not ``which``."""
        table = self._table()
        left = [rows.filter(~which) for rows in self._rows(table)]
        many = pl.Series(MANY, [rows.height for rows in left], pl.Int64)
        if many.sum() < table[MANY].sum():
            kept = table.with_columns(pl.Series(ROWS, map(packed, left), pl.Binary), many)
            name = self.state.replace("'", "''")
            write_deltalake(self.path, kept, mode="overwrite", predicate=f"state = '{name}'")

    def _rows(self, table: pl.DataFrame) -> Iterator[pl.DataFrame]:
        return (unpacked(blob, self.schema) for blob in table[ROWS])

    def _table(self) -> pl.DataFrame:
        """The rows of the state; none where there is no table."""
        if not DeltaTable.is_deltatable(self.path):
            return pl.DataFrame(schema=STATE_SCHEMA)
        table = pl.scan_delta(self.path)
        if ROWS not in table.collect_schema():
            raise Terminal.of("state-of-an-earlier-release", given=self.path)
        return table.filter(pl.col("state") == self.state).collect()


def is_much(written: int, held: int) -> bool:
    """Whether so much has been ``written`` since the last snapshot that it is time for another one."""
    return written > max(_ROWS_AT_LEAST, _ROWS_PER_STATE_ROW * held)


def since_snapshot(written: pl.LazyFrame) -> pl.DataFrame:
    """The rows ``written`` so far that a start needs, in the order of their batches; no others are read."""
    snapshots = written.filter(SNAPSHOT).select(_ORDER).unique().sort(_ORDER).tail(1).collect()
    since = written if snapshots.is_empty() else written.filter(~earlier(snapshots.row(0)))
    return since.sort(_ORDER, maintain_order=True).collect()


def parts_in(written: pl.LazyFrame) -> int:
    """The number of parts of the rows ``written`` so far; no others than the heads of snapshots are read."""
    heads = written.filter(SNAPSHOT & (pl.col("state") == HEAD)).select("state", MANY, *_ORDER)
    return _parts_of_heads(heads.sort(_ORDER).tail(1).collect())


def unpacked(blob: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The rows in ``blob`` with the columns of ``schema``, null where it lacks one, and ``deleted``."""
    rows = from_ipc(blob)
    if _AS_JSON in rows.columns:
        rows = rows.select(pl.col(_AS_JSON).str.json_decode(pl.Struct(schema)), DELETED).unnest(_AS_JSON)
    lacking = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in rows.columns]
    return rows.with_columns(lacking).select(*schema, DELETED)


def packed(rows: pl.DataFrame) -> bytes:
    """``rows`` of a state, and ``deleted``, as the table has them."""
    return to_ipc(rows, "zstd")


def bring_up(path: str) -> None:
    """Give the state table at ``path`` the form of today, in one commit, where it has that of an earlier release.

    That had a row for each row of a state, with its columns as JSON. The stream must be the only one that writes it.
    """
    if not DeltaTable.is_deltatable(path):
        return
    columns = set((former := pl.scan_delta(path)).collect_schema())
    if not {"identity", "row"} <= columns:
        return
    part = pl.col(PART).fill_null(0) if PART in columns else pl.lit(0, pl.Int32).alias(PART)
    rows_of_all = former.with_columns(part).sort(_ORDER, maintain_order=True).collect()
    groups = rows_of_all.group_by(*_ORDER, SNAPSHOT, PART, "state", maintain_order=True)
    made = [
        (HEAD, b"", int(rows["row"][0] or 1), *place)
        if state in _FORMER_HEADS
        else (state, packed(rows.select(pl.col("row").alias(_AS_JSON), DELETED)), rows.height, *place)
        for (*order, is_snapshot, number, state), rows in groups
        for place in [(is_snapshot, number, *order)]
    ]
    schema = {**STATE_SCHEMA, GENERATION: pl.Int32(), BATCH: pl.Int64()}
    write_deltalake(path, pl.DataFrame(made, schema, orient="row"), mode="overwrite", schema_mode="overwrite")


def _packed(name: str, rows: pl.DataFrame) -> Iterator[tuple[str, bytes, int]]:
    for some in rows.iter_slices(_ROWS_TOGETHER):
        if some.height:
            yield name, packed(some), some.height


def _standing(found: pl.DataFrame, state: KeyedRows) -> pl.DataFrame:
    """The rows of ``state`` after all that rows ``found`` of the table, of one part, say of it."""
    schema = {**state.schema, DELETED: pl.Boolean()}
    whole, changed = (
        _joined((unpacked(blob, state.schema) for blob in found.filter(which)[ROWS]), schema)
        for which in (pl.col(SNAPSHOT), ~pl.col(SNAPSHOT))
    )
    if changed.is_empty():
        return whole.drop(DELETED)
    last = changed.unique(state.identity, keep="last", maintain_order=True)
    kept = whole.join(last, on=state.identity, how="anti", nulls_equal=True, maintain_order="left")
    standing = pl.concat([kept, last.filter(~pl.col(DELETED))]).drop(DELETED)
    # rows that are picked out keep the texts of all the others in memory, unless they are written once
    return from_ipc(to_ipc(standing, "lz4"))


def _joined(parts: Iterable[pl.DataFrame], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=schema), *parts])


def _parts_of_heads(rows: pl.DataFrame) -> int:
    """The number of parts by the last head of a snapshot among ``rows``; 1 where there is none."""
    heads = rows.filter(pl.col("state") == HEAD)[MANY]
    return int(heads[-1]) if len(heads) else 1


def _kept(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(False).alias(DELETED))
