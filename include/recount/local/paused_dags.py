"""Which DAGs somebody has to switch on: Airflow makes all of them paused."""

from __future__ import annotations

from collections.abc import Sequence

from recount.core.registry import Declarations, is_audited

_LISTED = 6


def streams_of(declarations: Declarations) -> list[str]:
    """The DAGs that run the streams."""
    return [f"stream__{name}" for name in declarations.streams]


def nights_of(declarations: Declarations) -> list[str]:
    """The DAGs that audit every night: one for a group, and one for each stream that shares no driver."""
    groups = [name for name, group in declarations.groups.items() if any(map(is_audited, group.streams))]
    alone = [name for name in declarations.audited if declarations.group_of(name) is None]
    return [*(f"night__{name}" for name in groups), *(f"audit__{name}" for name in alone)]


def what_to_switch_on(declarations: Declarations) -> str:
    """What a newcomer does next, in lines."""
    return "\n".join(
        [
            "All DAGs are paused at first. Create the topics with `recount topics --apply`, then switch on in Airflow",
            f"  {_listed(streams_of(declarations))}: each runs a stream",
            f"  {_listed(nights_of(declarations))}: they audit every night, and when you trigger them with through=now",
        ]
    )


def _listed(dags: Sequence[str]) -> str:
    more = f" and {len(dags) - _LISTED} more" if len(dags) > _LISTED else ""
    return ", ".join(dags[:_LISTED]) + more or "none"
