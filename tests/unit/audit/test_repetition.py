"""An audit is repeated by what its certificate says that it saw."""

from __future__ import annotations

from tests.unit.audit.documents import findings

from recount.audit.cut.audited_ledger import Repetition
from recount.certificate.finding import difference_document
from recount.tables.ledger import topics_made_anew


def test_topics_have_the_ids_that_the_audit_saw_whatever_they_have_now() -> None:
    document = findings("night-1")
    assert Repetition.of(document).topic_ids == {}
    [found] = topics_made_anew([{"orders": "a"}, {"orders": "b"}])
    seen = {**document, "differences": [difference_document(found)]}
    assert Repetition.of(seen).topic_ids == {"orders": "b"}
