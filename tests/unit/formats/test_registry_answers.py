"""What the answers of a registry mean: to the stream by Confluent's client, to the recompute by plain HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.unit.formats.served_registry import answering

from recount.formats.schema_registry import UnknownSchema, avro_schema, protobuf_files
from recount.profile.daemon import free_ports
from recount.recompute.registry_parsing import fetched_files, fetched_schema
from recount.recompute.rules.value_rules import Bad
from recount.runtime.errors import VARIABLE, RegistryRefused, RegistryUnreachable
from recount.runtime.protobuf_files import FILE

Ask = Callable[[int], Any]


def _reference(name: str, version: int) -> list[dict[str, Any]]:
    return [{"name": name, "subject": "of/others", "version": version}]


VERSIONS: dict[str, dict[str, Any]] = {
    "3": {"schema": "message A {}", "schemaType": "PROTOBUF", "references": _reference("b.proto", 4)},
    "4": {"schema": "message B {}", "schemaType": "PROTOBUF"},
}
"""Of the subject of other files."""
ANSWERS: dict[int, tuple[int, object]] = {
    1: (200, {"schema": '"string"'}),
    2: (404, {"error_code": 40403, "message": "Schema not found"}),
    3: (503, {"error_code": 50301, "message": "later"}),
    4: (401, {"error_code": 401, "message": "who are you"}),
    5: (404, {"message": "no such path"}),
    6: (200, {"schema": "message M {}", "schemaType": "PROTOBUF"}),
    7: (200, {"schema": '"other.Name"', "references": _reference("other.Name", 3)}),
    8: (200, {"schema": "message M {}", "schemaType": "PROTOBUF", "references": _reference("a.proto", 3)}),
    9: (200, {"schema": "{}", "schemaType": "JSON"}),
    10: (200, {"schema": "message M {}", "schemaType": "PROTOBUF", "references": _reference("a.proto", 5)}),
}
AVRO = (avro_schema, fetched_schema)
FILES = (protobuf_files, fetched_files)
"""To the stream and to the recompute."""
BAD = (UnknownSchema, Bad)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The ids for which a registry with ``ANSWERS`` has been asked."""
    found: list[int] = []

    def answer(_method: str, path: str, _given: dict[str, Any]) -> tuple[int, object]:
        path = path.partition("?")[0]
        if path.startswith("/subjects/of%2Fothers/versions/"):
            version = path.rpartition("/")[2]
            if version not in VERSIONS:
                return 404, {"error_code": 40402, "message": "Version not found"}
            return 200, {"subject": "of/others", "version": int(version), "id": 100, **VERSIONS[version]}
        found.append(int(path.rpartition("/")[2]))
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
    assert (ask(6), ask(6)) == (((FILE, "message M {}"),),) * 2
    *others, own = ask(8)
    assert sorted(others) == [("a.proto", "message A {}"), ("b.proto", "message B {}")]
    assert own == (FILE, "message M {}")
    assert asked == [6, 8]


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("asks", "numbers", "error"),
    [
        (AVRO, [2, 6, 7, 9], BAD),
        (FILES, [1, 2, 9, 10], BAD),
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
