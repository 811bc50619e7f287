"""Why audits will refuse a topology: what its declaration alone says, before it has run for a day."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from recount.audit.shape import flow_of
from recount.audit.topologies.identity import identity_of
from recount.core.errors import RecountError, Terminal
from recount.core.registry import is_audited
from recount.core.topology import Topology, Written
from recount.recompute.flow import NotRecomputable
from recount.recompute.graph.beginnings import untold
from recount.recompute.graph.updates import require_recomputable


def objections(topology: Topology) -> list[RecountError]:
    """What an audit of ``topology`` would raise, each once; none where it is judged.

    What depends on the log, such as a batch of another declaration, is not among them.
    """
    if not is_audited(topology):
        return [writes_nothing(topology)]
    if flow_of(topology) is not None:
        return []
    found: dict[str, RecountError] = {}
    checks: list[Callable[[], object]] = [partial(require_recomputable, topology)]
    checks += [partial(identity_of, one) for one in topology.written]
    for check in checks:
        try:
            check()
        except NotRecomputable as refusal:
            found.setdefault(str(refusal), refusal)
    return list(found.values())


def writes_nothing(topology: Topology) -> Terminal:
    """What an audit or a backfill of a topology of actions alone raises."""
    return Terminal(
        f"nothing to audit: {topology.name} writes no records",
        given="actions only",
        expected="a topology with a sink",
        remedy="do not name it, or give it a sink: .to(topic)",
    )


def objection_to_beginning(sink: Written) -> str | None:
    """Why the log and a batch do not tell what is written to ``sink`` after that batch; None where they do."""
    held = untold(sink.input)
    if held is not None:
        return (
            f"{sink}: whether a row of [{held}] left before or after the last batch does not follow from the log:"
            " declare a topology of its own, which may read a topic that this one writes"
        )
    try:
        identity_of(sink)
    except NotRecomputable as reason:
        return str(reason)
    return None
