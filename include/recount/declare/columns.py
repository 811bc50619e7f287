"""Names of the columns that Recount adds where a table or a frame holds a user's fields as well.

They begin with ``PREFIX``, which no declared name may begin with (``require_free``): so a field, a key or an aggregate
can have any other name. ``window_start`` and ``window_end`` are columns of a windowed result, see ``operators.nodes``.
"""

import re
from collections.abc import Iterable, Mapping

from recount.runtime.errors import require

PREFIX, INTERNAL = "recount_", "__"
"""How the names of our columns begin: in tables, and in frames that nobody else sees."""
RESULT_TIME = "recount_timestamp_ms"
"""The largest event time behind a result."""
REVISION = "recount_revision"
"""0 for the first result of a key and window, then 1, 2, …"""
IS_NULL = "recount_is_null"
"""Whether the value is null: a table's row is deleted."""
ORIGIN = "recount_origin"
"""Which records of the log a row was made of, where it is no window's; in the audit, who wrote it."""
GENERATION, BATCH = "recount_generation", "recount_batch"
"""Which batch wrote the row."""
BEYOND = "recount_beyond_"
"""Before the name of a sum, in state of earlier releases: what it has beyond its own column; null in most rows."""
AUDIT = "recount_audit"
"""Which audit wrote the row."""
JUDGED_KEY = "recount_key"
"""The key of a result that is judged, so that it can be declared by any name."""
BACKFILL, BACKFILL_NUMBER, PUBLISHED_AT = "recount_backfill", "recount_backfill_number", "recount_published_at_ms"
"""Of a correction: which backfill made it, the number of that, and when it was written."""
_ESCAPED = re.compile(r'[\x00-\x1f\x7f-\x9f"\\]')
_PATTERN = re.compile(r"\*|\^.*\$")
"""What Polars takes for several columns, not for the name of one."""
TIMESTAMP, STREAM_TIME = "timestamp_ms", "stream_time_ms"
"""Event time of a record; the largest event time of a partition so far."""


def require_free(what: str, names: Iterable[str], *, taken: Iterable[str] = ()) -> None:
    """Refuse ``names``, declared for ``what``, that are ours: by their beginning, or among ``taken``; in any case.

    Delta and Spark do not tell ``Id`` and ``id`` apart, so neither does this. Nor may a name be empty, hold what JSON
    has to escape, or be a pattern to Polars: ``*``, or one that begins with ``^`` and ends with ``$``.
    """
    names = list(names)
    escaped = [name for name in names if not name or _ESCAPED.search(name)]
    require(not escaped, "names-with-quotes", given=", ".join(map(repr, escaped)), what=what)
    patterns = [name for name in names if _PATTERN.fullmatch(name)]
    require(not patterns, "names-that-are-patterns", given=", ".join(patterns), what=what)
    reserved = {name.lower() for name in taken}
    refused = [name for name in names if name.lower() in reserved or name.lower().startswith((PREFIX, INTERNAL))]
    others = f", and are not {', '.join(sorted(taken))}" if reserved else ""
    require(
        not refused,
        "names-with-our-prefix",
        given=", ".join(refused),
        what=what,
        prefix=PREFIX,
        internal=INTERNAL,
        others=others,
    )


def require_distinct(what: str, names: Iterable[str]) -> None:
    """Refuse ``names`` of one table of which two differ in their case only: Delta and Spark take them for one."""
    known: dict[str, str] = {}
    alike = [f"{known[_folded(name)]} and {name}" for name in names if known.setdefault(_folded(name), name) != name]
    require(not alike, "names-that-differ-in-case", given=", ".join(alike), what=what)


def _folded(name: str) -> str:
    """``name`` as Spark compares it: by Java's ``equalsIgnoreCase``, each character in upper and then in lower case.

    >>> _folded("Größe") == _folded("GRÖßE"), _folded("\u00b5") == _folded("\u03bc"), _folded("ß") == _folded("ss")
    (True, True, False)
    """
    upper = (one.upper() if len(one.upper()) == 1 else one for one in name)
    return "".join(one.lower()[0] for one in upper)  # Python makes two characters of a dotted capital I, Java the first


def require_bounds(what: str, kinds: Mapping[str, str]) -> None:
    """Refuse rows that are written with one bound of a window, or with bounds that are no times: ``kinds`` by name.

    Readers of a table or topic distinguish rows by them, also where they are fields of records of others.
    """
    bounds = ("window_start", "window_end")
    found = {name: kind for name, kind in kinds.items() if name.lower() in bounds}
    require(
        not found or found == dict.fromkeys(bounds, "long"),
        "names-of-window-bounds",
        given=", ".join(f"{name}: {kind}" for name, kind in found.items()),
        what=what,
    )
