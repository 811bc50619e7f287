"""Delta tables as frames, and the removal of files with deleted rows.

Delta keeps files that hold deleted rows, and its log keeps the least and largest values; ``purge`` removes both. A
reader of an earlier version of the table, or one that began before, finds its files removed and reads again.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from recount.declare.columns import BATCH, GENERATION
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of

_LOG = "_delta_log"
Order = tuple[int, int]
_NO_CLEANING = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def frame_at(
    database: Database,
    path: str,
    *,
    after: Order | None = None,
    up_to: Order | None = None,
    among: Mapping[str, Sequence[Any]] | None = None,
) -> Frame:
    """The rows of the table at ``path``: of batches ``after`` one and ``up_to`` one, where these are given.

    And those whose columns have values ``among`` these.
    """
    table = DeltaTable(path)
    rows = table.to_pyarrow_dataset()
    wanted = [
        *([] if after is None else [_is_after(after)]),
        *([] if up_to is None else [~_is_after(up_to)]),
        *(_is_among(rows.schema.field(name), values) for name, values in (among or {}).items()),
    ]
    condition = reduce(and_, wanted) if wanted else None
    # by default Arrow reads up to 64 batches of 131,072 rows ahead
    found = rows.to_batches(filter=condition, batch_readahead=1, fragment_readahead=1)
    return frame_of(database, found, rows.schema)


def _is_among(column: pa.Field, values: Sequence[Any]) -> pc.Expression:
    # Arrow compares no text with a view of one, as which delta-rs gives it
    kind = pa.string() if pa.types.is_string_view(column.type) else column.type
    return pc.field(column.name).cast(kind).isin(pa.array(values, kind))


def _is_after(order: Order) -> pc.Expression:
    generation, batch = order
    same = (pc.field(GENERATION) == generation) & (pc.field(BATCH) > batch)
    return (pc.field(GENERATION) > generation) | same


def purge_files(path: str) -> None:
    """Remove every file that the newest version of the table at ``path`` does not have. Its writer must stand still."""
    DeltaTable(path).vacuum(
        retention_hours=0,
        enforce_retention_duration=False,
        dry_run=False,
        full=True,
        post_commithook_properties=_NO_CLEANING,
    )


def purge(path: str, may_forget: Callable[[int], None] = lambda _: None) -> None:
    """The same, and every commit before the newest: a checkpoint takes their place.

    A commit holds the least and largest value of each column of a file, and what was deleted by which condition.
    ``may_forget`` is called with the newest version before any commit goes. A repetition changes nothing.
    """
    purge_files(path)
    table = DeltaTable(path)
    version = table.version()
    may_forget(version)
    table.create_checkpoint()
    files = PyFileSystem(DeltaStorageHandler(path))
    for file in files.get_file_info(FileSelector(_LOG, recursive=True)):
        if file.type == FileType.File and _is_before(file.base_name, version):
            files.delete_file(file.path)


def _is_before(name: str, version: int) -> bool:
    """Whether a file of the log is of a version before ``version``; Hadoop's checksum of a file is named after it."""
    number = name.lstrip(".").split(".")[0]
    return number.isdigit() and int(number) < version
