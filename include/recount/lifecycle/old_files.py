"""``recount maintain``: removes files of an installation that are older than they are kept.

The DAG ``maintenance`` runs it every day. Delta tables are their writers' own to trim.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from recount.runtime.settings import Keeping, Settings
from recount.runtime.times import quantity

LOG_BYTES, LOG_BYTES_LEFT = 64 * 2**20, 8 * 2**20
"""A log that has grown beyond the one keeps its last lines, so many bytes of them."""


@dataclass(frozen=True, kw_only=True)
class Freed:
    """Number and size of the removed files of one kind."""

    kind: str
    files: int
    bytes: int


def remove_old(settings: Settings, now_ms: int, *, only_count: bool = False) -> Sequence[Freed]:
    """Remove what ``settings.keeping`` does not keep any longer; ``only_count`` leaves it and says what would go.

    A folder of one audit or run goes whole, once nothing in it is younger. Certificates are not among them. The log of
    a driver is emptied: one that was silent for so long may be at work, and would go on writing to a removed file.
    """
    keeping = Keeping.of(settings.keeping)
    reports, logs = Path(settings.reports), Path(settings.logs)
    of_drivers = logs / "streams"
    results = reports / "gx" / "uncommitted"
    places = {
        "validations": [
            *_below(results / "validations", 3),
            *_below(results / "data_docs" / "local_site" / "validations", 3),
            *(reports / "expectations").glob("*/*.json"),
            *(reports / "expectations").glob("*/*.html"),
        ],
        "logs": (path for path in _walked(logs) if path.is_file() and path.parent != of_drivers),
    }
    freed = [
        _removed(kind, found, now_ms, keeping.milliseconds(kind), only_count=only_count)
        for kind, found in places.items()
    ]
    if not only_count:
        for folder in (results, logs):
            _remove_empty(folder)
    kept_ms = keeping.milliseconds("logs")
    stats = [(path, path.lstat()) for path in of_drivers.glob("*") if path.is_file() and kept_ms is not None]
    silent = [path for path, stat in stats if stat.st_size and now_ms - stat.st_mtime_ns // 1_000_000 > (kept_ms or 0)]
    freed.append(_cut("logs of drivers", silent, 0, only_count=only_count))
    long = [path for path in _walked(logs) if not path.is_symlink() and path.stat().st_size > LOG_BYTES]
    return [*freed, _cut("long logs", long, LOG_BYTES_LEFT, only_count=only_count)]


def _below(folder: Path, depth: int) -> Iterator[Path]:
    return (path for path in folder.glob("/".join("*" * depth)) if path.is_dir() and not path.is_symlink())


def _walked(folder: Path) -> Iterator[Path]:
    for here, _, names in os.walk(folder):
        yield from (Path(here, name) for name in names)


def _removed(kind: str, places: Iterable[Path], now_ms: int, kept_ms: int | None, *, only_count: bool) -> Freed:
    files = size = 0
    for place in list(places) if kept_ms is not None else ():
        inside = [place] if place.is_file() else list(_walked(place))
        stats = [path.lstat() for path in inside if path.is_symlink() or path.exists()]
        written_ms = max((stat.st_mtime_ns // 1_000_000 for stat in stats), default=0)
        if now_ms - written_ms <= (kept_ms or 0):
            continue
        files, size = files + len(stats), size + sum(stat.st_size for stat in stats)
        if not only_count:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    return Freed(kind=kind, files=files, bytes=size)


def _remove_empty(folder: Path) -> None:
    for here, _, _ in sorted(os.walk(folder), reverse=True):
        if Path(here) != folder and not any(Path(here).iterdir()):
            Path(here).rmdir()


def _cut(kind: str, paths: Iterable[Path], left: int, *, only_count: bool) -> Freed:
    """Cut logs in place to their last lines: their writers have them open, and append. Lines of meanwhile are lost."""
    files = size = 0
    for path in paths:
        files, size = files + 1, size + path.stat().st_size - left
        if only_count:
            continue
        with path.open("r+b") as log:
            log.seek(-left, os.SEEK_END)
            log.readline()
            last = log.read()
            log.seek(0)
            log.write(last)
            log.truncate()
    return Freed(kind=kind, files=files, bytes=size)


def maintain(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove validation runs and logs that are older than RECOUNT_KEEPING says."""
    settings = Settings.from_environment(os.environ)
    would = "would free" if dry_run else "freed"
    for freed in remove_old(settings, time.time_ns() // 1_000_000, only_count=dry_run):
        print(f"{freed.kind}: {would} {freed.bytes / 2**20:,.1f} MiB in {quantity(freed.files, 'file')}")
