"""Whether the topics that a stream reads are still those that its batches have read, and no others of their names."""

from __future__ import annotations

import logging

from recount.acceptance_log import acceptances
from recount.core.errors import Terminal, Transient
from recount.core.finding import finding_id
from recount.core.ledger import BatchProof
from recount.core.registry import declared
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topic_ids import TopicIds, topics_made_anew
from recount.core.verdict import Difference
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.ids_of_topics import ids_of
from recount.spark.work import Work

_LOG = logging.getLogger(__name__)
_ANSWER_S = 2.0
"""How long a batch waits for the brokers."""


class OtherTopic(Terminal):
    """A topic that is read was deleted and made anew, or is on another cluster."""


class SameTopics:
    """The topics of ``work`` by their last known ids: at first those in ``last``, the end of its ledger.

    Of a topic without one, in a proof of an earlier release for instance, any id is right.
    """

    def __init__(self, settings: Settings, work: Work, last: BatchProof | None) -> None:
        self._settings = settings
        self._work = work
        self._connection = Connection.of(settings)
        self._known: TopicIds = last.topic_ids if last else {}

    def require(self, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Raise ``OtherTopic`` where a topic that is read has another id now, unless a person has accepted this one."""
        now = ids_of(self._connection, (*self._work.topics, *self._work.outputs), timeout_s)
        for found in topics_made_anew([self._known, now]):
            if found.place in self._work.topics and not self._is_accepted(found):
                raise self._other(found)
        self._known = {**self._known, **now}

    def __call__(self) -> TopicIds:
        """The ids for the proof of a batch that is not committed yet; raises ``OtherTopic`` as ``require`` does.

        Brokers that do not answer hold it up for no longer than ``_ANSWER_S``; the next batch asks them again.
        """
        try:
            self.require(_ANSWER_S)
        except Transient as error:
            _LOG.warning("whether the topics of %s are still the same is not known: %s", self._work.name, error)
        return self._known

    def _is_accepted(self, found: Difference) -> bool:
        """Whether a person has accepted the finding by which audits know it.

        No audit judges an archive: it goes by what was accepted for the streams that read its topic.
        """
        streams = [self._work.name]
        if self._work.delta_first:
            topologies = declared(self._settings.topologies).topologies.values()
            streams = [one.name for one in topologies if found.place in {source.topic.name for source in one.sources}]
        tables = Tables(self._settings.data)
        return any(one.finding == finding_id(name, found) for name in streams for one in acceptances(tables, name))

    def _other(self, found: Difference) -> OtherTopic:
        stream = self._work.name
        return OtherTopic(
            f"{found.place} is not the topic that {stream} has read: it was made anew, or is on another cluster",
            given=f"topic id {found.actual}",
            expected=f"topic id {found.expected}, as in the ledger",
            remedy=f"`recount reset {stream}` begins anew with this topic; where it has the same records at the same"
            " offsets, as a copy of the former cluster, audit a stream that reads it, accept what the audit says of"
            " the topic (`recount findings accept`), and start again",
        )
