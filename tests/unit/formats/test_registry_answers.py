"""What the answers of a registry mean: to the stream by Confluent's client, to the recompute by plain HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.unit.formats.served_registry import answering

from recount.formats.schema_registry import UnknownSchema, avro_schema, protobuf_schema
from recount.profile.daemon import free_ports
from recount.recompute.registry_parsing import fetched_file, fetched_schema
from recount.recompute.rules.value_rules import Bad
from recount.runtime.errors import VARIABLE, RegistryRefused, RegistryUnreachable

Ask = Callable[[int], str]
REFERENCES = [{"name": "other.Name", "subject": "s", "version": 1}]
ANSWERS: dict[int, tuple[int, object]] = {
    1: (200, {"schema": '"string"'}),
    2: (404, {"error_code": 40403, "message": "Schema not found"}),
    3: (503, {"error_code": 50301, "message": "later"}),
    4: (401, {"error_code": 401, "message": "who are you"}),
    5: (404, {"message": "no such path"}),
    6: (200, {"schema": "message M {}", "schemaType": "PROTOBUF"}),
    7: (200, {"schema": '"other.Name"', "references": REFERENCES}),
    8: (200, {"schema": 'import "s"; message M {}', "schemaType": "PROTOBUF", "references": REFERENCES}),
    9: (200, {"schema": "{}", "schemaType": "JSON"}),
}
AVRO = (avro_schema, fetched_schema)
FILES = (protobuf_schema, fetched_file)
"""To the stream and to the recompute."""
BAD = (UnknownSchema, Bad)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The ids for which a registry with ``ANSWERS`` has been asked."""
    found: list[int] = []

    def answer(_method: str, path: str, _given: dict[str, Any]) -> tuple[int, object]:
        found.append(int(path.partition("?")[0].rpartition("/")[2]))
        return ANSWERS[found[-1]]

    with answering(answer) as address:
        monkeypatch.setenv(VARIABLE, address)
        yield found


@pytest.mark.parametrize("ask", AVRO)
def test_a_schema_is_asked_for_once(asked: list[int], ask: Ask) -> None:
    assert (ask(1), ask(1)) == ('"string"', '"string"')
    assert asked == [1]


@pytest.mark.parametrize("ask", FILES)
def test_a_file_of_protobuf_is_asked_for_once_and_may_refer_to_others(asked: list[int], ask: Ask) -> None:
    assert (ask(6), ask(6)) == ("message M {}", "message M {}")
    assert ask(8) == 'import "s"; message M {}'
    assert asked == [6, 8]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("asks", "numbers", "error"),
    [
        (AVRO, [2, 6, 7, 9], BAD),
        (FILES, [1, 2, 9], BAD),
        ((*AVRO, *FILES), [3], RegistryUnreachable),
        ((*AVRO, *FILES), [4, 5], RegistryRefused),
    ],
    ids=["no such schema", "no such file", "an error of its own, so ask later", "refused, or no registry: a human"],
)
def test_what_else_a_registry_answers_means(asks: Sequence[Ask], numbers: list[int], error: Any) -> None:
    for ask in asks:
        for number in numbers:
            with pytest.raises(error, match=str(number) if error is BAD else None):
                ask(number)


@pytest.mark.parametrize("number", [2**31, 2**32 - 1])
@pytest.mark.parametrize("ask", [*AVRO, *FILES])
def test_an_id_that_no_registry_can_have_makes_the_record_bad_and_nobody_is_asked(
    asked: list[int], ask: Ask, number: int
) -> None:
    # registries take such an id for a path that they do not know: the answer 5
    with pytest.raises(BAD, match=str(number)):
        ask(number)
    assert asked == []


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("ask", AVRO)
def test_the_largest_id_that_a_registry_can_have_is_asked_for(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    monkeypatch.setitem(ANSWERS, 2**31 - 1, ANSWERS[1])
    assert ask(2**31 - 1) == '"string"'


@pytest.mark.parametrize("ask", AVRO)
def test_a_registry_that_is_not_there_is_asked_again_later_and_without_an_address_a_human_sets_one(
    monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(RegistryUnreachable):
        ask(1)
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(RegistryRefused, match=VARIABLE):
        ask(1)
