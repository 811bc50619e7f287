"""How a stream goes on that has stopped at a record: the remedy of its error says which command sets it aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from recount.core.aside_order import RecordPlace, set_aside_command
from recount.core.errors import OfARecord
from recount.spark.checkpoint import BatchRange

_MOST_PARTITIONS = 4
_A_PLACE = re.compile(r"[a-zA-Z0-9._-]+-\d{1,9}@\d{1,18}")


@contextmanager
def without_its_record(stream: str, span: BatchRange) -> Iterator[None]:
    """Add to the remedy of an ``OfARecord`` how ``stream`` goes on without the record, one of those in ``span``."""
    try:
        yield
    except OfARecord as error:
        error.remedy = f"{error.remedy}; {_way_out(stream, span, error.record)}"
        raise


def _way_out(stream: str, span: BatchRange, record: str | None) -> str:
    places = [RecordPlace.from_text(text) for text in _A_PLACE.findall(record or "")]
    if not places:
        place = "TOPIC-PARTITION@OFFSET"
        return f"to go on without a record of this batch, {_spans(span)}: {set_aside_command(stream, place)}"
    unread = [place for place in places if _is_in(span, place)]
    if not unread:
        read = ", ".join(map(str, places))
        return f"an earlier batch has read {read}, so that no record can be set aside: mend the declaration"
    return f"to go on without this record: {set_aside_command(stream, unread[-1])}"


def _is_in(span: BatchRange, place: RecordPlace) -> bool:
    partition = place.topic, place.partition
    return span.start.get(partition, 0) <= place.offset < span.end.get(partition, 0)


def _spans(span: BatchRange) -> str:
    read = {place: (span.start.get(place, 0), end) for place, end in span.end.items()}
    told = [f"{topic}-{part}@[{start}, {end})" for (topic, part), (start, end) in sorted(read.items()) if start < end]
    more = len(told) - _MOST_PARTITIONS
    return ", ".join(told[:_MOST_PARTITIONS]) + (f" and of {more} more partitions" if more > 0 else "")
