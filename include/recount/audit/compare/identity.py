"""Identity of the rows of a sink: by key and window, by key, or by the records that they were made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recount.declare.operators.joins import StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import (
    KEY,
    WINDOW_END,
    WINDOW_START,
    Filter,
    Node,
    Source,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.stateless import Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.schema import FieldType
from recount.declare.topology import Written
from recount.declare.windows import ClosingWindows, GlobalWindow, LastN
from recount.recompute.operators.log_order import NotRecomputable
from recount.recompute.rules.time_rules import has_versions

_PASSING = (Peek, Repartition, Through, WithFields, Select, Filter, TableFilter, Suppress)
"""Operators below which a row is still the result of the aggregation or table above."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Rule by which two rows of ``written`` are copies of one row, and what of them is judged.

    ``is_latest``: of the rows with one key (and window) the highest revision replaces the others. Otherwise every row
    counts: those of records are identified by ``has_origin``, others by key and window or, without bounds, by key and
    time. ``is_dense``: revisions are 0, 1, 2, … without a gap, and where the sink ``was_added`` to the stream at work,
    go on from any. ``is_timed``: the log determines a row's timestamp. ``suppression`` is the one whose updates are
    written.
    """

    written: Written
    is_latest: bool
    has_bounds: bool
    has_origin: bool
    is_dense: bool
    is_timed: bool
    suppression: Suppress | None
    was_added: bool = False

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """The fields of a row that are judged, doubles last: rows that differ by rounding only sort alike.

        The key that a record came with is not published where it has another one now.
        """
        fields = {name: kind for name, kind in self.written.fields.items() if name == self.written.key or name != KEY}
        return dict(sorted(fields.items(), key=lambda field: field[1].kind == "double"))

    @property
    def is_by_time(self) -> bool:
        """Whether key and time alone identify rows: a late record adds to what an older one has made."""
        return not (self.is_latest or self.has_bounds or self.has_origin)


def identity_of(written: Written) -> Identity:
    """The identity of the rows of ``written``.

    Raises ``NotRecomputable`` where the log does not say which row replaces which, or which updates have left.
    """
    path, made_by = _path(written)
    above = above_of(written)
    has_bounds = {WINDOW_START, WINDOW_END} <= written.fields.keys()
    is_latest = _is_latest(written, path, made_by, has_bounds)
    return Identity(
        written=written,
        is_latest=is_latest,
        has_bounds=has_bounds,
        has_origin=not is_latest and _is_made_of_records(written.input),
        is_dense=is_latest
        and _leaves_every_update(made_by)
        and not any(isinstance(node, Filter | TableFilter | Suppress) for node in path),
        is_timed=not any(isinstance(node, TableTableJoin) for node in above),
        suppression=_suppression(written, path, made_by),
    )


def closing_windows(identity: Identity) -> tuple[WindowedAggregate, ClosingWindows] | None:
    """The aggregation whose rows, by key and window, replace each other until the window closes; None where none do."""
    _, made_by = _path(identity.written)
    if not (identity.is_latest and identity.has_bounds and isinstance(made_by, WindowedAggregate)):
        return None
    windows = made_by.windows
    return None if isinstance(windows, GlobalWindow | LastN) else (made_by, windows)


def above_of(node: Node) -> set[Node]:
    """All operators whose rows lead to ``node``."""
    found = set(node.inputs)
    for above in node.inputs:
        found |= above_of(above)
    return found


def _suppression(written: Written, path: list[Node], made_by: Node) -> Suppress | None:
    """The suppression whose updates are written: from a row's last change it must follow whether it has left."""
    held = [node for node in above_of(written) if isinstance(node, Suppress)]
    if not held:
        return None
    if len(held) > 1 or held[0] not in path or not _never_goes_back(made_by):
        raise NotRecomputable(
            f"{written} cannot be audited",
            given=f"{held[0]}, below {made_by}: a row's last change does not say whether it is still held back",
            expected="updates of windows, groups or a versioned table, written as they leave the suppression",
            remedy="write the rows without emit_after, or declare the table versioned=True",
        )
    return held[0]


def _path(written: Written) -> tuple[list[Node], Node]:
    """The operators above the sink that keep a row what it is, nearest first, and the one above them."""
    path: list[Node] = []
    node: Node = written.input
    while isinstance(node, _PASSING):
        path.append(node)
        node = node.input
    return path, node


def _is_latest(written: Written, path: list[Node], made_by: Node, has_bounds: bool) -> bool:
    is_table = isinstance(made_by, ToTable | TableAggregate | TableTableJoin)
    if not is_table and not isinstance(made_by, WindowedAggregate):
        return False
    bounds = {WINDOW_START, WINDOW_END} if isinstance(made_by, WindowedAggregate) and made_by.has_bounds else set()
    replaced = {name for node in path if isinstance(node, WithFields | Select) for name in _computed(node)}
    if made_by.key in replaced or bounds & replaced or (bounds and not has_bounds):
        if isinstance(made_by, WindowedAggregate) and made_by.emission.kind == "final":
            return False
        raise NotRecomputable(
            f"{written} cannot be audited",
            given=f"updates of {made_by} without their key and window",
            expected="rows of which one can say which replaces which",
            remedy="keep key and window: .select('window_start', 'window_end', …), or emit final results",
        )
    is_final = isinstance(made_by, WindowedAggregate) and made_by.emission.kind == "final"
    return is_final or not any(isinstance(node, Filter) for node in path)


def _computed(node: WithFields | Select) -> set[str]:
    if isinstance(node, WithFields):
        return set(node.added)
    return {name for name, tree in node.chosen.items() if str(tree) != name}


def _leaves_every_update(made_by: Node) -> bool:
    """Whether each revision leaves: not where some are history only, nor where a batch lets the last one go."""
    if isinstance(made_by, TableTableJoin):
        return not any(isinstance(node, TableFilter) or has_versions(node) for node in above_of(made_by))
    return isinstance(made_by, WindowedAggregate) or (isinstance(made_by, ToTable) and not made_by.versioned)


def _never_goes_back(made_by: Node) -> bool:
    """Whether the time of a row never falls, so that the last update's time bounds that of the first held."""
    return isinstance(made_by, WindowedAggregate | TableAggregate) or (
        isinstance(made_by, ToTable) and made_by.versioned
    )


def _is_made_of_records(node: Node) -> bool:
    """Whether every row comes from records of the log alone, so that it names them as its origin."""
    match node:
        case Source():
            return True
        case WindowedAggregate():
            return not node.has_bounds and node.emission.kind == "each record"
        case TableAggregate() | TableTableJoin():
            return False
        case StreamTableJoin(left=left):
            return _is_made_of_records(left)
    return all(_is_made_of_records(above) for above in node.inputs)
