"""All fields of a topic, decoded as the recompute decodes those that a topology looks at."""

from __future__ import annotations

from recount.declare.operators.nodes import Source
from recount.recompute.operators.log_sources import FieldsOfTopic


def whole_topic(source: Source, *, needs_record_key: bool) -> FieldsOfTopic:
    """Every declared field of the topic of ``source``."""
    assert source.topic.value is not None
    return FieldsOfTopic(source=source, needs_record_key=needs_record_key, columns_read=list(source.topic.value.fields))
