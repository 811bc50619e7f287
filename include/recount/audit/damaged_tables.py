"""Tables that somebody has damaged, as an error of ours: whoever audits is told what to do, not what a library says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import polars as pl
import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException

from recount.core.errors import RecountError, Terminal

_DAMAGE = (
    DeltaError,
    pl.exceptions.PolarsError,
    # at a Parquet file that was cut off; it is no Exception, and would end the audits of all other streams as well
    pl.exceptions.PanicException,
    pa.ArrowException,
    FileNotFoundError,
    AnalysisException,
)
_SHOWN = 500
"""Characters of the first line of what a library says: it can name a whole schema."""


@contextmanager
def damage_told(stream: str, command: str = "recount audit") -> Iterator[None]:
    """Raise ``Terminal`` where a table of ``stream`` cannot be read: it has been altered, or lacks files, or is gone.

    Unlike the answers of ``recount.serve``, which take it for passing, since a stream may remove files meanwhile: an
    audit reads what no stream removes before it is released.
    """
    try:
        yield
    except RecountError:
        raise
    except _DAMAGE as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise Terminal(
            f"a table of {stream} cannot be read",
            given=f"{type(error).__name__}: {first}"[:_SHOWN],
            expected="tables as the stream and its audits left them",
            remedy=f"restore the table from a backup, or delete what was added to its _delta_log; `{command}` again",
        ) from error
