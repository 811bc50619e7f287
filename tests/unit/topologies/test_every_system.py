"""Every row S1 to S25 has a test that is named for it, and every stream can be audited; docs/shop.md lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from recount.audit.compare.identity import identity_of
from recount.declare.registry import Declarations, declared
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.recompute.operators.log_order import NotRecomputable

ROWS = [f"S{number}" for number in range(1, 26)]
SHOP = declared()
HERE = Path(__file__).parent
PAGE = (HERE.parents[2] / "docs" / "shop.md").read_text()


def streams_in_words(declarations: Declarations) -> Iterator[str]:
    """The lines of the table of streams."""
    yield "| stream | reads | writes |"
    yield "|---|---|---|"
    for name, topology in sorted(declarations.topologies.items()):
        read = ", ".join(topic_in_words(source.topic) for source in topology.sources)
        yield f"| `{name}` | {read} | {', '.join(topic_in_words(node.topic) for node in topology.written)} |"
    for name, archive in sorted(declarations.archives.items()):
        yield f"| `{name}` | {topic_in_words(archive.topic)} | Delta table `archive/{archive.topic.name}` |"


def topic_in_words(topic: Topic) -> str:
    return f"`{topic.name}` (compacted)" if topic.cleanup_policy == "compact" else f"`{topic.name}`"


def test_the_page_of_the_shop_lists_every_stream_with_its_topics() -> None:
    assert PAGE.partition("## Streams\n\n")[2].splitlines() == list(streams_in_words(SHOP))


def test_every_row_has_a_test_that_is_named_for_it() -> None:
    named = re.findall(r"^def test_(s\d+)_", "".join(file.read_text() for file in HERE.glob("test_*.py")), re.MULTILINE)
    assert [row for row in ROWS if row.lower() not in named] == []


@pytest.mark.parametrize("topology", SHOP.topologies.values(), ids=lambda topology: topology.name)
def test_the_audit_can_tell_which_row_of_a_sink_replaces_which(topology: Topology) -> None:
    for written in topology.written:
        try:
            identity_of(written)
        except NotRecomputable as refusal:
            pytest.fail(str(refusal))
