"""Topics that have, or are to have, more partitions than the streams that read them have met: what follows for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from deltalake.exceptions import DeltaError

from recount.core.errors import RecountError
from recount.core.keys_in_partitions import in_several_partitions
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.kafka.topic_drift import TopicChange
from recount.proofs import Proofs

WHAT_TO_DO = 'What to do: docs/changing.md, "Raising the number of partitions".'


def raised_partitions(
    changes: Iterable[TopicChange], topologies: Iterable[Topology], met: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """Lines about each topic with more partitions than are declared, or declared with more, or than streams have met.

    ``met`` says by stream and topic how many partitions the stream's last batch knew.
    """
    streams = list(topologies)
    for change in changes:
        topic = change.topic
        drift = next((one for one in change.drift if one.setting == "partitions"), None)
        there = int(drift.actual) if drift else topic.partitions
        readers = [one for one in streams if topic.name in {source.topic.name for source in one.sources}]
        told = [
            (stream, there if drift else met[stream.name, topic.name])
            for stream in readers
            if drift or met.get((stream.name, topic.name), there) < there
        ]
        if not told:
            continue
        declared = f", {drift.declared} are declared" if drift else ""
        yield f"{topic.name} has {there} partitions{declared}. Keys change partition where the number does:"
        for stream, before in told:
            knew = "" if drift else f" (its last batch knew {before} partitions)"
            lines = in_several_partitions(stream, topic.name)
            if lines:
                yield f"  {stream.name}{knew}: a key whose records lie in two partitions:"
                yield from (f"    {line}" for line in lines)
            else:
                yield f"  {stream.name}{knew}: no operator asks for the order of a key's records, nothing changes"
        yield WHAT_TO_DO


def partitions_met(topologies: Iterable[Topology], tables: Tables) -> dict[tuple[str, str], int]:
    """By stream and topic how many partitions the stream's last batch knew.

    Nothing of streams that never ran, nor of those whose tables cannot be read: an audit says what is wrong with them.
    """
    met: dict[tuple[str, str], int] = {}
    for stream in topologies:
        proofs = Proofs(state=tables.state(stream.name), moved_to=tables.ledger(stream.name))
        try:
            newest = next(proofs.newest_first(), None)
        except (RecountError, DeltaError, OSError):
            continue
        for part in newest.proof.partitions if newest else ():
            met[stream.name, part.topic] = met.get((stream.name, part.topic), 0) + 1
    return met
