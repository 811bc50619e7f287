"""The records of erasures: the table ``erasures/<stream>``, which the command alone writes; without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from recount.core.erasure import Erasure
from recount.core.errors import Terminal
from recount.core.tables import Tables

_SCHEMA = pa.schema([("erasure", pa.string()), ("document", pa.string())])


class ErasureLog:
    """The records of ``stream`` below ``root``. Who may write to the table can forge one: ask ``audit.erased_keys``."""

    def __init__(self, root: str, stream: str) -> None:
        self._path = Tables(root).erasures(stream)
        self.stream = stream

    def texts(self) -> list[str]:
        """Every row as it lies there."""
        if not DeltaTable.is_deltatable(self._path):
            return []
        return [str(text) for text in DeltaTable(self._path).to_pyarrow_table().column("document").to_pylist()]

    def append(self, erasure: Erasure) -> None:
        """Add a record."""
        rows = pa.table({"erasure": [erasure.erasure], "document": [erasure.to_json()]}, schema=_SCHEMA)
        write_deltalake(self._path, rows, mode="append")

    def require_finished(self) -> None:
        """Raise ``Terminal`` while an erasure of the stream has begun and is not done.

        A record that cannot be read, or that nobody has signed, counts too: a start that is refused harms nothing.
        """
        known = [Erasure.from_json(text) for text in self.texts()]
        left = unfinished(known)
        if left is not None:
            raise not_finished(left)


def unfinished(records: Sequence[Erasure]) -> Erasure | None:
    """The first erasure among ``records`` that has begun and is not done."""
    done = {one.erasure for one in records if one.state == "done"}
    return next((one for one in records if one.erasure not in done), None)


def not_finished(erasure: Erasure) -> Terminal:
    """What is said of an erasure that was killed."""
    return Terminal(
        f"an erasure in {erasure.stream} has begun and is not done",
        given=f"{erasure.erasure}, begun by {erasure.by}",
        expected="a key that is there, or gone everywhere",
        remedy=f"run it again with the same key: recount erase --key KEY --stream {erasure.stream}"
        " --by NAME --reason TEXT",
    )
