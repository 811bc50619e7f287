"""Why audits will refuse a topology: what its declaration alone says, before it has run for a day."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from recount.audit.audit_shape import flow_of
from recount.audit.compare.identity import identity_of
from recount.declare.registry import is_audited
from recount.declare.topology import Topology, Written
from recount.recompute.operators.beginnings import untold
from recount.recompute.operators.log_order import require_recomputable
from recount.recompute.single_flow import NotRecomputable
from recount.runtime.errors import RecountError, Terminal


def objections(topology: Topology) -> list[RecountError]:
    """Return the errors that an audit of ``topology`` would raise, each once; none where it is judged.

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
    """Return the error that an audit or a backfill of a topology of actions alone raises."""
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
