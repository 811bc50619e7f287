"""Whether the topics that a stream reads are still those that its batches have read, and no others of their names."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from recount.acceptance_log import acceptances
from recount.core.errors import Terminal, Transient
from recount.core.finding import finding_id
from recount.core.ledger import BatchProof
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topic_ids import TopicIds, topics_made_anew
from recount.core.verdict import Difference
from recount.kafka.connection import Connection
from recount.kafka.ids_of_topics import ids_of
from recount.spark.work import Work

_LOG = logging.getLogger(__name__)
_ANSWER_S = 2.0


class OtherTopic(Terminal):
    """A topic that is read was deleted and made anew, or is on another cluster."""


@dataclass(frozen=True, kw_only=True)
class SameTopics:
    """The topics of ``work``, which had the ids ``begun_with`` when this run began."""

    connection: Connection
    work: Work
    begun_with: TopicIds

    @classmethod
    def at_start(cls, settings: Settings, work: Work, last: BatchProof | None) -> SameTopics:
        """Raises ``OtherTopic`` where ``last``, the end of the ledger, has read another topic, unless a person accepts.

        Where it does not say which topics it has read, a proof of an earlier release, those of now are taken.
        """
        connection = Connection.of(settings)
        now = ids_of(connection, (*work.topics, *work.outputs))
        for found in topics_made_anew([last.topic_ids if last else {}, now]):
            if found.place in work.topics and not _is_accepted(settings, work, found):
                raise _other(work.name, found)
        return cls(connection=connection, work=work, begun_with=now)

    def __call__(self) -> TopicIds:
        """The ids as they are now, for the proof of a batch that has been read and is not committed.

        Raises ``OtherTopic`` where a topic that is read has another id than at the start. Brokers that do not answer
        are asked again by the next batch: this one says nothing of its topics.
        """
        try:
            now = ids_of(self.connection, (*self.work.topics, *self.work.outputs), _ANSWER_S)
        except Transient as error:
            _LOG.warning("the topics of %s were not compared with those of its start: %s", self.work.name, error)
            return {}
        for found in topics_made_anew([self.begun_with, now]):
            if found.place in self.work.topics:
                raise _other(self.work.name, found)
        return now


def _is_accepted(settings: Settings, work: Work, found: Difference) -> bool:
    """Whether a person has accepted the finding by which audits know it.

    No audit judges an archive: it goes by what was accepted for the streams that read its topic.
    """
    streams = [work.name]
    if work.delta_first:
        topologies = declared(settings.topologies).topologies.values()
        streams = [one.name for one in topologies if found.place in {source.topic.name for source in one.sources}]
    tables = Tables(settings.data)
    return any(one.finding == finding_id(stream, found) for stream in streams for one in acceptances(tables, stream))


def _other(stream: str, found: Difference) -> OtherTopic:
    return OtherTopic(
        f"{found.place} is not the topic that {stream} has read: it was made anew, or is on another cluster",
        given=f"topic id {found.actual}",
        expected=f"topic id {found.expected}, as in the ledger",
        remedy=f"`recount reset {stream}` begins anew with this topic; where it has the same records at the same"
        " offsets, as a copy of the former cluster, audit a stream that reads it, accept what the audit says of the"
        " topic (`recount findings accept`), and start again",
    )
