"""Digests of rows: SHA-256 of their columns in the order of the rows, however these are cut into batches.

Each column has hashes of its own: of which values are null, of the lengths of texts and lists, of the values. A column
that holds nothing but nulls does not count, so that one which is added later leaves the digests of older rows alone.
What does not change a value changes no digest: the width of an integer, how Arrow lays a text out.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from recount.recompute.raw_log import Log, Ranges, RawLog, RecordsAtHand, runs
from recount.runtime.errors import Terminal

HASHED = ("offset", "timestamp_ms", "key", "value", "headers")
"""What a digest of a log covers of each record, in offset order."""
Span = tuple[str, int, int, int]
"""Topic, partition, first offset and the one after the last."""


@dataclass(frozen=True)
class Digest:
    """The digest of a number of rows."""

    rows: int
    sha256: str


class RowsDigest:
    """The digest of rows that come in batches."""

    def __init__(self) -> None:
        self._rows = 0
        self._hashes: dict[str, Any] = {}
        self._kinds: dict[str, str] = {}

    def update(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Take ``rows`` in after those before."""
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                self._column(json.dumps(name), column, self._rows)
            self._rows += batch.num_rows

    def digest(self) -> Digest:
        """The digest of all rows so far."""
        parts = {path: [kind, *self._ended(path)] for path, kind in sorted(self._kinds.items())}
        text = json.dumps({"rows": self._rows, "columns": parts}, sort_keys=True, separators=(",", ":"))
        return Digest(self._rows, hashlib.sha256(text.encode()).hexdigest())

    def _ended(self, path: str) -> list[str]:
        return [self._hashes[f"{path} {what}"].hexdigest() for what in _PARTS if f"{path} {what}" in self._hashes]

    def _column(self, path: str, column: pa.Array, before: int) -> None:
        """``before`` is how many values of the column there were in earlier batches."""
        if column.null_count == len(column):
            # before the first value nothing tells of nulls: it is counted then how many there were
            if path in self._kinds:
                self._nulls(path, len(column))
            return
        if path not in self._kinds:
            self._kinds[path] = _kind(column.type)
            self._nulls(path, before)
        self._feed(path, "valid", column.is_valid().to_numpy(zero_copy_only=False).astype(np.int8))
        kind = column.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._feed(path, "lengths", _numbers(pc.list_value_length(column)))
            self._elements(path, column.flatten())
        elif _is_text(kind):
            texts = pc.fill_null(column.cast(pa.large_binary()), b"")
            self._feed(path, "lengths", _numbers(pc.binary_length(texts)))
            self._feed(path, "values", _bytes_of(texts))
        else:
            self._feed(path, "values", _fixed(column))

    def _elements(self, path: str, elements: pa.Array) -> None:
        """The elements of lists: their number is known from the lengths, so that each kind of them is a column."""
        fields = {"": elements}
        if pa.types.is_struct(elements.type):
            names = [elements.type.field(place).name for place in range(elements.type.num_fields)]
            fields = dict(zip(names, elements.flatten(), strict=True))
        for name, values in fields.items():
            inner = f"{path}[{json.dumps(name)}]"
            self._kinds.setdefault(inner, _kind(values.type))
            self._column(inner, values, 0)

    def _nulls(self, path: str, number: int) -> None:
        kind = self._kinds[path]
        self._feed(path, "valid", np.zeros(number, np.int8))
        self._feed(path, "lengths" if kind in ("list", "text") else "values", np.zeros(number * _width(kind), np.int8))

    def _feed(self, path: str, what: str, values: Any) -> None:
        self._hashes.setdefault(f"{path} {what}", hashlib.sha256()).update(memoryview(values).cast("B"))


_PARTS = ("valid", "lengths", "values")


def _width(kind: str) -> int:
    """Bytes a null of ``kind`` feeds: those of its length, or of its value."""
    return 16 if kind.startswith("decimal") else 1 if kind == "boolean" else 8


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"decimal {kind.scale}"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list"
    if _is_text(kind):
        return "text"
    if pa.types.is_floating(kind):
        return "float"
    return "boolean" if pa.types.is_boolean(kind) else "integer"


def _is_text(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
            pa.types.is_string_view,
            pa.types.is_binary_view,
        )
    )


def _numbers(values: pa.Array) -> np.ndarray:
    return np.ascontiguousarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype("<i8"))


def _bytes_of(texts: pa.LargeBinaryArray) -> np.ndarray:
    _, ends, values = texts.buffers()
    if not len(texts) or values is None:
        return np.zeros(0, np.int8)
    bounds = np.frombuffer(ends, np.int64)
    return np.frombuffer(values, np.int8)[bounds[texts.offset] : bounds[texts.offset + len(texts)]]


def _fixed(column: pa.Array) -> np.ndarray:
    kind = column.type
    if pa.types.is_decimal(kind):
        wide = pc.fill_null(column.cast(pa.decimal128(38, kind.scale)), 0)
        return np.frombuffer(wide.buffers()[1], np.int8)[wide.offset * 16 : (wide.offset + len(wide)) * 16]
    if pa.types.is_floating(kind):
        return np.ascontiguousarray(pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False))
    if pa.types.is_boolean(kind):
        return np.ascontiguousarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False).astype(np.int8))
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return _numbers(column.cast(pa.int64()))


class _Union(AccumulatorParam):  # type: ignore[type-arg]
    """Findings of tasks, each under its own name: a task that runs twice reports the same again."""

    def zero(self, _: object) -> set[Any]:
        return set()

    def addInPlace(self, found: set[Any], more: set[Any]) -> set[Any]:  # noqa: N802
        return found | more


class DigestedLog:
    """A log whose records are digested as they are read: in the same pass, from the same bytes.

    The digests are known once what reads the log has been computed to its end. ``of`` is the log itself.
    """

    def __init__(self, of: Log) -> None:
        self.of = of
        self._found: Any = None

    def read(
        self,
        session: SparkSession,
        topic: str,
        ranges: Ranges,
        *,
        with_key: bool = True,  # noqa: ARG002 - keys and headers are digested
        with_headers: bool = True,  # noqa: ARG002
    ) -> RawLog | RecordsAtHand:
        """The records of ``of``, always with their keys and headers."""
        raw = self.of.read(session, topic, ranges, with_headers=True)
        if self._found is None:
            self._found = session.sparkContext.accumulator(set(), _Union())
        return raw.before(_Digesting(topic=topic, ranges=dict(ranges), found=self._found))

    def digests(self, session: SparkSession, topic: str, ranges: Ranges) -> dict[Span, Digest]:
        """The digest of each range; what nobody has read to its end is read now.

        Raises ``Terminal`` when two readings differ.
        """
        spans = {(topic, partition, start, end) for partition, (start, end) in ranges.items()}
        missing = {p: (start, end) for _, p, start, end in spans - self._known().keys() if start < end}
        if missing:
            raw = self.read(session, topic, missing)
            if isinstance(raw, RecordsAtHand):
                sum(batch.num_rows for batch in raw.through())
            else:
                raw.through("rows long", _counted).agg({"rows": "sum"}).collect()
        known, nothing = self._known(), RowsDigest().digest()
        return {span: known.get(span, nothing) for span in sorted(spans)}

    def _known(self) -> dict[Span, Digest]:
        found: dict[Span, Digest] = {}
        for span, digest in self._found.value if self._found is not None else ():
            if found.setdefault(span, digest) != digest:
                raise Terminal(
                    "the log changed while it was read",
                    given=f"{span[0]}-{span[1]}@[{span[2]}, {span[3]})",
                    expected="the same records in every reading",
                    remedy="audit again; see whether the topic is compacted, or was deleted and made again",
                )
        return found


@dataclass(frozen=True, kw_only=True)
class _Digesting:
    """One task's pass: hands every record on as it is and tells the digests at the end."""

    topic: str
    ranges: Ranges
    found: Any

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last: dict[int, int] = {}
        digests: dict[int, RowsDigest] = {}
        for batch in batches:
            for partition, records in runs(batch, last):
                digests.setdefault(partition, RowsDigest()).update(records.select(HASHED))
                yield records
        found = {(self.topic, partition, *self.ranges[partition], one) for partition, one in digests.items()}
        self.found.add({((topic, p, start, end), one.digest()) for topic, p, start, end, one in found})


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([batch.num_rows], pa.int64())], names=["rows"])
