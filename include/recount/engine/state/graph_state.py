"""State of the operators of a graph, as rows of the stream's state table and back.

A row says of one state row what it is now (``row``, JSON by column name) or that it is deleted (``deleted``); the last
one of an identity counts. Every now and then a batch writes the state whole: what is before such a *snapshot* is not
needed any more, so that the table stays in proportion to the state.

Where the keys are dealt out, each *part* of them has rows of its own (``part``). Clocks, which are alike in all parts,
are those of part 0. The number of parts changes with a snapshot only, which says it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from recount.declare.columns import BATCH, GENERATION
from recount.engine.driver.signs_of_work import worked
from recount.engine.state.keyed_rows import ARRIVED, DELETED, KeyedRows
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import earlier

SNAPSHOT, PART = "snapshot", "part"
STATE_SCHEMA: dict[str, pl.DataType] = {
    "state": pl.String(),
    "identity": pl.String(),
    "row": pl.String(),
    DELETED: pl.Boolean(),
    SNAPSHOT: pl.Boolean(),
    PART: pl.Int32(),
}
ADDED_COLUMNS = frozenset({PART})
"""Columns that tables of earlier releases lack: their rows are of one part."""
_HEADS = ("", "parts")
"""The states of the first row of a snapshot: of one part, and of several, which an earlier release refuses to read."""
_IS_HEAD = pl.col("state").is_in(_HEADS)
_ORDER = [GENERATION, BATCH]
_ROWS_PER_STATE_ROW = 4
_ROWS_AT_LEAST = 10_000


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
        """Rows that the batch changed, or all rows: a snapshot."""
        changed = {name: state.changes() for name, state in self._states.items()}
        rows = {name: _kept(state.rows) if whole else changed[name] for name, state in self._states.items()}
        mine = [_encoded(name, self._states[name], each) for name, each in rows.items() if self._writes(name)]
        head = self._head() if whole and self._part.number == 0 else self._head().clear()
        made = pl.concat([head, *mine]).with_columns(
            pl.lit(whole).alias(SNAPSHOT), pl.lit(self._part.number, pl.Int32).alias(PART)
        )
        self.written = made.height if whole else self.written + made.height
        return made.select(list(STATE_SCHEMA))

    def load(self, since: pl.DataFrame) -> bool:
        """Start from the rows ``since`` the last snapshot, of all parts; returns whether they were as many as now.

        Where they were not, the next batch has to write a snapshot. Raises ``Terminal`` for a state that no operator
        has.
        """
        unknown = set(since["state"].unique()) - self._states.keys() - set(_HEADS)
        if unknown:
            raise Terminal(
                "the state of another topology",
                given=", ".join(sorted(unknown)),
                expected=", ".join(sorted(self._states)),
                remedy="give the changed topology a new name, or reset the stream",
            )
        is_same = _parts_of_heads(since.filter(_IS_HEAD)) == self._part.parts
        number = self._part.number
        if is_same:
            since = since.filter((pl.col(PART) == number) | pl.col("state").is_in(list(self._clocks)))
        self.written = since.filter(pl.col(PART) == number).height
        latest = since.unique(["state", PART, "identity"], keep="last", maintain_order=True).filter(~pl.col(DELETED))
        for name, state in self._states.items():
            found = latest.filter((pl.col("state") == name) & ((pl.col(PART) == 0) | (name not in self._clocks)))
            rows = found["row"].str.json_decode(pl.Struct(state.schema)).struct.unnest()
            state.load(rows if is_same else self._dealt(name, state, rows))
            worked()
        return is_same

    @property
    def size(self) -> int:
        """How many rows are remembered."""
        return sum(state.height for state in self._states.values())

    def _writes(self, name: str) -> bool:
        return self._part.number == 0 or name not in self._clocks

    def _head(self) -> pl.DataFrame:
        """The first row of a snapshot, which there is even when nothing is remembered."""
        parts = self._part.parts
        head = {"state": _HEADS[parts > 1], "identity": "", "row": str(parts) if parts > 1 else "", DELETED: True}
        return pl.DataFrame([head])

    def _dealt(self, name: str, state: KeyedRows, rows: pl.DataFrame) -> pl.DataFrame:
        """The ``rows`` of other parts that belong to this one, as if they had come here."""
        if self._part.by is not None and name in self._part.by:
            rows = rows.filter(parts_of(rows[self._part.by[name]], self._part.parts) == self._part.number)
        if state.identity == [ARRIVED]:
            # each part has counted by itself: those of one key have come in this order
            rows = rows.sort(ARRIVED, maintain_order=True).with_columns(
                pl.int_range(pl.len(), dtype=pl.Int64).alias(ARRIVED)
            )
        return rows


def is_much(written: int, held: int) -> bool:
    """Whether so much has been ``written`` since the last snapshot that it is time for another one."""
    return written > max(_ROWS_AT_LEAST, _ROWS_PER_STATE_ROW * held)


def since_snapshot(written: pl.LazyFrame) -> pl.DataFrame:
    """The rows ``written`` so far that a start needs, in the order of their batches; no others are read."""
    snapshots = written.filter(SNAPSHOT).select(_ORDER).unique().sort(_ORDER).tail(1).collect()
    since = written if snapshots.is_empty() else written.filter(~earlier(snapshots.row(0)))
    # a table of an earlier release has one part, and no column that says so until its stream starts again
    part = pl.col(PART).fill_null(0) if PART in since.collect_schema() else pl.lit(0, pl.Int32).alias(PART)
    return since.with_columns(part).sort(_ORDER, maintain_order=True).collect()


def parts_in(written: pl.LazyFrame) -> int:
    """The number of parts of the rows ``written`` so far; no others than the heads of snapshots are read."""
    return _parts_of_heads(written.filter(SNAPSHOT & _IS_HEAD).sort(_ORDER).tail(1).collect())


def _parts_of_heads(heads: pl.DataFrame) -> int:
    """The number of parts by the last of the ``heads`` of snapshots; that of one part says none."""
    return int(heads["row"][-1] or 1) if heads.height else 1


def _kept(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.lit(False).alias(DELETED))


def _encoded(name: str, state: KeyedRows, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(
        pl.lit(name).alias("state"),
        pl.struct(state.identity).struct.json_encode().alias("identity"),
        pl.struct(list(state.schema)).struct.json_encode().alias("row"),
        DELETED,
    )
