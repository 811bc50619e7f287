"""What the answers of a registry mean: to the stream by Confluent's client, to the recompute by plain HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from recount.codec.writer_schemas import UnknownSchema, avro_schema, protobuf_schema
from recount.core.registry_errors import VARIABLE, RegistryRefused, RegistryUnreachable
from recount.local.ports import free_ports
from recount.recompute.fetched_schemas import fetched_file, fetched_schema
from recount.recompute.rules.json_values import Bad

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
Ask = Callable[[int], str]


class Registry(BaseHTTPRequestHandler):
    asked: list[int] = []

    def do_GET(self) -> None:
        number = int(self.path.partition("?")[0].rpartition("/")[2])
        self.asked.append(number)
        status, said = ANSWERS[number]
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Registry]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{server.server_port}")
    Registry.asked = []
    yield Registry
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=[avro_schema, fetched_schema], ids=["stream", "recompute"])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


@pytest.fixture(params=[protobuf_schema, fetched_file], ids=["stream", "recompute"])
def ask_for_a_file(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


def test_a_schema_is_asked_for_once(registry: type[Registry], ask: Ask) -> None:
    assert (ask(1), ask(1)) == ('"string"', '"string"')
    assert registry.asked == [1]


def test_a_file_of_protobuf_is_asked_for_once_and_may_refer_to_others(
    registry: type[Registry], ask_for_a_file: Ask
) -> None:
    assert (ask_for_a_file(6), ask_for_a_file(6)) == ("message M {}", "message M {}")
    assert ask_for_a_file(8) == 'import "s"; message M {}'
    assert registry.asked == [6, 8]


@pytest.mark.parametrize("number", [1, 2, 9])
def test_a_schema_of_another_kind_makes_a_protobuf_record_bad(
    registry: type[Registry], ask_for_a_file: Ask, number: int
) -> None:
    with pytest.raises((UnknownSchema, Bad), match=str(number)):
        ask_for_a_file(number)


@pytest.mark.parametrize(("number", "error"), [(3, RegistryUnreachable), (4, RegistryRefused), (5, RegistryRefused)])
def test_errors_of_the_registry_mean_the_same_for_protobuf(
    registry: type[Registry], ask_for_a_file: Ask, number: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask_for_a_file(number)


@pytest.mark.parametrize("number", [2, 6, 7, 9])
def test_an_id_that_the_registry_has_no_such_schema_for_makes_the_record_bad(
    registry: type[Registry], ask: Ask, number: int
) -> None:
    with pytest.raises((UnknownSchema, Bad), match=str(number)):
        ask(number)


@pytest.mark.parametrize("number", [2**31, 2**32 - 1])
def test_an_id_that_no_registry_can_have_makes_the_record_bad_and_nobody_is_asked(
    registry: type[Registry], ask: Ask, ask_for_a_file: Ask, number: int
) -> None:
    # registries take such an id for a path that they do not know: the answer 5
    for one in (ask, ask_for_a_file):
        with pytest.raises((UnknownSchema, Bad), match=str(number)):
            one(number)
    assert registry.asked == []


def test_the_largest_id_that_a_registry_can_have_is_asked_for(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setitem(ANSWERS, 2**31 - 1, ANSWERS[1])
    assert ask(2**31 - 1) == '"string"'


def test_a_registry_with_an_error_of_its_own_is_asked_again_later(registry: type[Registry], ask: Ask) -> None:
    with pytest.raises(RegistryUnreachable):
        ask(3)


@pytest.mark.parametrize("number", [4, 5])
def test_a_registry_that_refuses_or_is_none_wants_a_human(registry: type[Registry], ask: Ask, number: int) -> None:
    with pytest.raises(RegistryRefused):
        ask(number)


def test_a_registry_that_is_not_there_is_asked_again_later(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(RegistryUnreachable):
        ask(1)


def test_without_an_address_a_human_is_asked_to_set_one(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(RegistryRefused, match=VARIABLE):
        ask(1)
