"""Tables put aside: moved whole to ``former/<stream>/<version>`` below the data root, never deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from pyarrow.fs import FileSystem, FileType

from recount.core.errors import Terminal


@dataclass(frozen=True, kw_only=True)
class Move:
    """A folder and where it is kept."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


def moves(root: str, stream: str, version: int, folders: Iterable[str]) -> list[Move]:
    """Where ``folders``, relative to ``root``, are kept when ``version`` of the stream is over."""
    kept = f"{root}/former/{stream}/{version}"
    return [Move(source=f"{root}/{folder}", target=f"{kept}/{folder}") for folder in folders]


def put_aside(planned: Sequence[Move]) -> list[Move]:
    """Make the moves that are not made yet; returns what was moved.

    A rename of a folder is whole or not at all, so that this can be repeated after a crash. An object store has no such
    rename: there it says what to move.
    """
    left = [move for move in planned if is_there(move.source)]
    twice = [move for move in left if is_there(move.target)]
    if twice:
        raise Terminal(
            "a table lies where it is used and where it is kept",
            given="; ".join(map(str, twice)),
            expected="it to be in one place",
            remedy="compare the two, move the one that is not wanted out of the way, then repeat the reset",
        )
    remote = [move for move in left if local_path(move.source) is None]
    if remote:
        raise Terminal(
            "an object store cannot rename a folder at once",
            given="; ".join(map(str, remote)),
            expected="the folders to be moved with the store's own tools",
            remedy="move each as written above, check that nothing is left behind, then repeat the reset",
        )
    for move in left:
        source, target = local_path(move.source), local_path(move.target)
        assert source is not None
        assert target is not None
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    return left


def local_path(place: str) -> Path | None:
    """The folder ``place`` of this machine; None where it is an object store's."""
    parsed = urlparse(place)
    return Path(parsed.path if parsed.scheme == "file" else place) if parsed.scheme in ("", "file") else None


def is_there(place: str) -> bool:
    """Whether the folder exists."""
    path = local_path(place)
    if path is not None:
        return path.exists()
    files, inside = files_at(place)
    return bool(files.get_file_info(inside).type != FileType.NotFound)


def files_at(place: str) -> tuple[FileSystem, str]:
    """The object store of ``place``, and the path within it."""
    files, inside = FileSystem.from_uri(place.replace("s3a://", "s3://", 1))
    return files, inside
