"""Files that hold what was deleted, really gone: Delta keeps them, and its log keeps the least and largest values.

Whoever reads an earlier version of the table, or began to read before, finds its files gone and reads again.
"""

from __future__ import annotations

from collections.abc import Callable

from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

_LOG = "_delta_log"
_NO_CLEANING = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


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
