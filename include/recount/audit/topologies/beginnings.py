"""Whether the audit can tell what a sink must hold that is added to a stream at work."""

from __future__ import annotations

from recount.audit.topologies.identity import identity_of
from recount.core.topology import Written
from recount.recompute.flow import NotRecomputable
from recount.recompute.graph.beginnings import untold


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
