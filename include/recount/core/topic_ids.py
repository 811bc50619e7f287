"""Which topics a stream has read and written, by the ids that Kafka gives them.

A topic that is deleted and made anew has another id, and so has its copy on another cluster: the name is the same, and
offsets of the one say nothing about the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recount.core.verdict import Difference

TOPIC, MADE_ANEW = "topic", "made anew"
TopicIds = Mapping[str, str]
"""By topic; one of which no id is known is left out."""


def topics_made_anew(told: Iterable[TopicIds]) -> list[Difference]:
    """Each change of a topic's id in ``told``, oldest first; where one says nothing of a topic, those before it count.

    Both ids are evidence, and so part of the finding's id: who accepts one change has accepted no other. Of the ids a,
    unknown, b, b there is one change, from a to b.
    """
    last: dict[str, str] = {}
    found = []
    for ids in told:
        for topic, now in ids.items():
            before = last.get(topic, now)
            if now != before:
                found.append(_made_anew(topic, before, now))
            last[topic] = now
    return found


def _made_anew(topic: str, before: str, now: str) -> Difference:
    return Difference(
        kind=TOPIC,
        place=topic,
        verdict=MADE_ANEW,
        expected=before,
        actual=now,
        cause="the topic has another id: it was deleted and made anew, or it is on another cluster",
        evidence=(before, now),
    )
