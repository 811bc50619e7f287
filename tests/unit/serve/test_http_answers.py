"""Answers over HTTP: the same as elsewhere, for those who have the token; no input is an error of the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as drawing
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import ASGIApp
from tests.eventually import eventually
from tests.unit.serve.test_questions import BY_NUMBER
from tests.unit.serve.written_streams import WrittenStream, as_arrivals, listened, recorded_ms

from recount.declare.registry import Declarations, declared
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.profile.daemon import LOOPBACK, free_ports
from recount.runtime.errors import RecountError, Terminal, Transient
from recount.runtime.settings import Settings
from recount.runtime.times import NoTime, told_time
from recount.serve.asked_sink import BadQuestion
from recount.serve.http_answers import Server
from recount.serve.listening import LimitRate, RequireToken, of_error, rate_of, token_of

TOKEN = "a-token-of-the-tests"  # noqa: S105
KNOWN = {"Authorization": f"Bearer {TOKEN}"}
REVENUE = "/streams/product-revenue/product-revenue"
HOUR_S, NOW_MS = 3_600, recorded_ms(10)
PRODUCTS = ("tea", "a/b", "ünë", "50% off", "tea/")


def served(root: Path) -> Server:
    shop, places = declared(), dict.fromkeys(("checkpoints", "reports", "logs", "run", "jars"), "nowhere")
    settings = Settings(profile="embedded", bootstrap_servers="nowhere:1", data=str(root), **places)
    declarations = Declarations(topologies={**shop.topologies, BY_NUMBER.name: BY_NUMBER}, topics=shop.topics)
    return Server(settings=settings, declarations=declarations, now_ms=lambda: NOW_MS)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Where a real server listens."""
    root = tmp_path_factory.mktemp("data")
    orders = [
        (f"o{hour}", hour * HOUR_S, {"order_id": f"o{hour}", "product": product, "amount": f"{hour}.50"})
        for product in PRODUCTS
        for hour in (1, 2)
    ]
    WrittenStream(declared().topologies["product-revenue"], root).write([as_arrivals("orders", *orders)])
    with listened(served(root).app(TOKEN, ["stats=product-revenue"])) as place:
        yield place


@pytest.fixture(scope="module")
def client(address: tuple[str, int]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url="http://{}:{}".format(*address), headers=KNOWN, timeout=60) as client:
        yield client


def said(client: httpx.Client, path: str, status: int = 200) -> Any:
    found = client.get(path)
    assert found.status_code == status, found.text
    return json.loads(found.text, parse_float=Decimal)


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_current_value_of_a_key_is_its_newest_window(client: httpx.Client, product: str) -> None:
    for path in (f"{REVENUE}/current/{quote(product)}", f"/stats/{quote(product)}/"):
        answer = said(client, path)
        assert (answer["state"], answer["total"]) == ("ready", 2)
        [row] = answer["rows"]
        assert (row["product"], row["hourly_revenue"]) == (product, Decimal("2.50"))
        assert row["window_start"] == 2 * HOUR_S * 1_000
        assert answer["as_of"] == {
            "generation": 0,
            "batch": 0,
            "recorded_ms": recorded_ms(0),
            "age_ms": NOW_MS - recorded_ms(0),
            "frontier_ms": None,
        }


def test_rows_can_be_asked_for_by_key_window_and_time_and_be_counted(client: httpx.Client) -> None:
    assert said(client, "/stats/tea")["rows"] == said(client, "/stats/tea/")["rows"], "with and without a slash"
    assert said(client, REVENUE)["total"] == 2 * len(PRODUCTS)
    of_tea = said(client, f"{REVENUE}?key=tea&window={HOUR_S * 1_000}")
    assert [row["hourly_revenue"] for row in of_tea["rows"]] == [Decimal("1.50")]
    assert said(client, f"{REVENUE}?at={recorded_ms(0) - 1}")["state"] == "not ready"
    answer = said(client, f"{REVENUE}/counts?by=window_start")
    assert answer["rows"] == [{"window_start": hour * HOUR_S * 1_000, "recount_rows": len(PRODUCTS)} for hour in (1, 2)]
    answer = said(client, "/streams/order-counts/order-counts?key=ann")
    assert (answer["state"], answer["reason"]) == ("not ready", "order-counts has not committed a batch yet")


def test_the_index_has_every_stream_with_its_sinks_and_how_far_it_is(client: httpx.Client) -> None:
    streams = {one["stream"]: one for one in said(client, "/streams")["streams"]}
    assert streams.keys() == {*declared().topologies, "by-number"}
    assert (streams["product-revenue"]["state"], streams["order-counts"]["state"]) == ("ready", "not ready")
    assert [one["sink"] for one in streams["high-value-orders"]["sinks"]] == ["high-value-orders", "vip-orders"]
    assert said(client, "/streams/by-number")["sinks"] == [
        {
            "sink": "by-number",
            "path": "/streams/by-number/by-number",
            "objection": None,
            "key": "number",
            "fields": {"number": "long", "tags": "list of string"},
        }
    ]


def test_openapi_has_every_path_with_the_declared_types(client: httpx.Client) -> None:
    document = said(client, "/openapi.json")
    shop = declared().topologies.values()
    sinks = {f"/streams/{one.name}/{written.topic.name}" for one in shop for written in one.written}
    assert {f"{path}{more}" for path in sinks for more in ("", "/counts", "/current/{key}")} <= document["paths"].keys()
    [key, *_] = document["paths"]["/streams/by-number/by-number"]["get"]["parameters"]
    assert (key["name"], key["schema"]["type"]) == ("key", "integer")
    answer = document["paths"][REVENUE]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    row = answer["properties"]["rows"]["items"]["properties"]
    assert (row["product"]["type"], row["hourly_revenue"]["type"]) == (["string", "null"], ["number", "null"])
    assert set(said(client, f"{REVENUE}?key=tea")["rows"][0]) <= row.keys()
    assert document["paths"]["/stats/{key}/"]["get"]["security"] == [{"HTTPBearer": []}]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer ünë".encode("latin-1")},
        [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")],
    ],
)
@pytest.mark.parametrize("path", ["/streams", "/openapi.json", "/metrics", "/nowhere", f"{REVENUE}?limit=all"])
def test_without_the_token_every_path_answers_401(client: httpx.Client, path: str, headers: Any) -> None:
    with httpx.Client(base_url=client.base_url, timeout=60) as stranger:
        found = stranger.get(path, headers=headers)
    assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN not in found.text


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("/streams/by-number/by-number?key=one", 400, "a LONG: number is a whole number of 64 bits"),
        ("/streams/by-number/by-number/current/1.0", 400, "a LONG: number is a whole number of 64 bits"),
        (f"{REVENUE}?window=noon", 400, "a time in ISO 8601"),
        (f"{REVENUE}?at={NOW_MS + 1}", 400, f"up to now: {told_time(NOW_MS)}"),
        (f"{REVENUE}?limit=1000000", 400, "1 to 10000"),
        (f"{REVENUE}?ket=tea", 400, "each of these at most once: key, window, at, limit"),
        (f"{REVENUE}?key=tea&key=mug", 400, "each of these at most once"),
        (f"{REVENUE}/counts", 400, "by=FIELD"),
        (f"{REVENUE}/counts?by=price", 400, "one of product, window_start"),
        ("/streams?key=1", 400, "none"),
        ("/streams/by-number/by-number?window=0", 400, "key, at, limit"),
        ("/streams/nothing", 404, "a path of /openapi.json"),
        ("/streams/nothing/nothing", 404, "a path of /openapi.json"),
        ("/docs", 404, "a path of /openapi.json"),
    ],
)
def test_an_error_says_what_was_expected(client: httpx.Client, path: str, status: int, expected: str) -> None:
    assert expected in said(client, path, status)["expected"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(BadQuestion("odd"), 400), (NoTime("odd"), 400), (Transient("busy"), 503), (Terminal("old"), 409)],
)
def test_an_error_has_the_status_that_says_whether_to_ask_again(error: RecountError, status: int) -> None:
    found = of_error(Request({"type": "http"}), error)
    assert (found.status_code, found.headers.get("retry-after")) == (status, "1" if status == 503 else None)


def test_nothing_can_be_written(client: httpx.Client) -> None:
    for method in ("post", "put", "patch", "delete"):
        assert getattr(client, method)(REVENUE).status_code == 405


ODD = ["9" * 5_000, "%", "%2", "%00", "%ff", "..", "//", "\x00", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"]
TEXTS = st.text(max_size=60) | st.sampled_from(ODD)
PATHS = st.sampled_from(
    [f"{REVENUE}", f"{REVENUE}/counts", f"{REVENUE}/current/", "/stats/", "/streams/by-number/by-number/current/", "/"]
)


@drawing(max_examples=30)
@given(
    path=PATHS,
    rest=TEXTS,
    encoded=st.booleans(),
    query=st.dictionaries(st.sampled_from(["key", "window", "at", "limit", "by", "x"]), TEXTS, max_size=3),
    method=st.sampled_from(["GET", "HEAD", "POST", "OPTIONS"]),
)
def test_no_path_and_no_query_is_an_error_of_the_server(
    client: httpx.Client, path: str, rest: str, encoded: bool, query: dict[str, str], method: str
) -> None:
    asked = path + (quote(rest, safe="") if encoded else quote(rest, safe="/?=&%;.+ "))
    found = client.request(method, asked, params=query or None)
    assert found.status_code in (200, 400, 404, 405), found.text
    if found.status_code != 200 and method != "HEAD":
        assert set(found.json()) == {"error", "given", "expected", "remedy"}


@drawing(max_examples=30)
@given(token=st.binary(max_size=80).filter(lambda token: token.strip() != TOKEN.encode()))
def test_no_other_token_is_the_token(address: tuple[str, int], token: bytes) -> None:
    asked = b"GET /streams HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + b"\r\nConnection: close\r\n\r\n"
    # what is no header at all is no request either
    assert status_of(raw(address, asked)) in (400, 401)


@drawing(max_examples=30)
@given(garbage=st.binary(min_size=1, max_size=200), is_path=st.booleans())
def test_bytes_that_are_no_request_are_no_error_of_the_server(
    address: tuple[str, int], garbage: bytes, is_path: bool
) -> None:
    asked = b"GET /streams/" + garbage + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
    asked = asked + TOKEN.encode() + b"\r\nConnection: close\r\n\r\n" if is_path else garbage + b"\r\n\r\n"
    answer = raw(address, asked)
    assert not answer or status_of(answer) in (200, 400, 401, 404), answer


def test_a_key_of_ten_megabytes_is_refused_before_it_is_read(address: tuple[str, int]) -> None:
    assert status_of(raw(address, b"GET /stats/" + b"x" * 10_000_000 + b"/ HTTP/1.1\r\nHost: x\r\n\r\n")) == 400


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def raw(address: tuple[str, int], asked: bytes) -> bytes:
    """What comes back for these bytes, until the server hangs up."""
    answer = b""
    with socket.create_connection(address, timeout=30) as line:
        sending = Thread(target=lambda: suppressed(line.sendall, asked))
        sending.start()
        with suppress(ConnectionError):
            while not answer.endswith(b"}") and (piece := line.recv(65_536)):
                answer += piece
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
        sending.join()
    return answer


def suppressed(call: Callable[[bytes], object], given: bytes) -> None:
    with suppress(OSError):
        call(given)


def test_a_token_comes_from_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert token_of(file, {"RECOUNT_TOKEN": "that-of-the-environment"}) == TOKEN
    file.chmod(0o640)
    with pytest.raises(Terminal, match="others can read the token"):
        token_of(file, {})
    for missing in (None, tmp_path / "nothing"):
        with pytest.raises(Terminal, match="token"):
            token_of(missing, {})


def test_a_token_comes_from_the_environment_and_is_no_setting(settings: Settings) -> None:
    assert token_of(None, {"RECOUNT_TOKEN": TOKEN}) == TOKEN
    read = Settings.from_environment({**settings.to_environment(), "RECOUNT_TOKEN": TOKEN})
    assert TOKEN not in str(read.to_environment())


@pytest.mark.parametrize("token", ["", "short", "with a space in the middle", "ünprintable-in-ascii", "x" * 513])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(Terminal) as refused:
        token_of(None, {"RECOUNT_TOKEN": token})
    assert token not in str(refused.value) or not token


@pytest.mark.parametrize(
    "text", ["stats", "streams=order-counts", "Stats=order-counts", "a=b/c", "a=high-value-orders"]
)
def test_a_route_must_name_a_sink(tmp_path: Path, text: str) -> None:
    with pytest.raises(Terminal):
        served(tmp_path).app(TOKEN, [text])


def test_two_routes_of_one_name_are_refused_and_one_that_is_said_twice_is_not(tmp_path: Path) -> None:
    """The second was passed over without a word."""
    server = served(tmp_path)
    with pytest.raises(Terminal, match="two routes of one name"):
        server.app(TOKEN, ["stats=product-revenue", "stats=order-counts"])
    assert server.app(TOKEN, ["stats=product-revenue", "stats=product-revenue", "counts=order-counts"])


def test_each_operation_of_openapi_has_an_id_of_its_own_however_streams_and_topics_are_called(tmp_path: Path) -> None:
    """Programs that make clients of the document refuse it otherwise."""
    events = stream(Topic(name="events", key="id", value=RecordSchema.of(n=LONG)))
    named = [
        Topology(name=name, sinks=[events.to(Topic(name=topic, key="id"))])
        for name, topic in (("a-b", "c"), ("a", "b-c"))
    ]
    server = replace(
        served(tmp_path), declarations=Declarations(topologies={one.name: one for one in named}, topics={})
    )
    document = TestClient(server.app(TOKEN)).get("/openapi.json", headers=KNOWN).json()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) == 9


def statuses(app: ASGIApp, times: int, address: str = "10.0.0.1", **headers: str) -> list[int]:
    """What ``app`` answers to one after the other from ``address``."""

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://recount", headers=headers) as client:
            return [(await client.get("/")).status_code for _ in range(times)]

    return asyncio.run(ask())


@pytest.fixture
def limited() -> ASGIApp:
    """Three requests in two seconds."""
    return LimitRate(RequireToken(PlainTextResponse("answered"), TOKEN), rate_of("3/2 second"))


def test_what_is_asked_too_often_is_refused_until_the_time_that_is_said(limited: ASGIApp) -> None:
    with listened(limited) as (host, port), httpx.Client(base_url=f"http://{host}:{port}", headers=KNOWN) as client:
        assert [client.get("/").status_code for _ in range(3)] == [200, 200, 200]
        refused = client.get("/")
        assert refused.status_code == 429 and refused.json()["expected"] == "at most 3 per 2 second"
        time.sleep(int(refused.headers["Retry-After"]))
        assert client.get("/").status_code == 200


def test_guessing_tokens_is_limited_too_and_an_address_is_answered_while_another_asks_too_often(
    limited: ASGIApp,
) -> None:
    assert statuses(limited, 4) == [401, 401, 401, 429]
    assert statuses(limited, 4, "10.0.0.2", **KNOWN) == [200, 200, 200, 429]
    assert statuses(limited, 1, "10.0.0.3", **KNOWN) == [200]


def test_a_process_answers_those_who_have_the_token_until_it_is_ended(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    [port] = free_ports(1)
    code = "import sys; from recount.cli import app; app(['serve', *sys.argv[1:]])"
    arguments = ["--token-file", str(file), "--port", str(port), "--route", "stats=product-revenue"]

    def asked(path: str, **headers: str) -> httpx.Response | None:
        try:
            return httpx.get(f"http://{LOOPBACK}:{port}{path}", headers=headers, timeout=60)
        except httpx.ConnectError:
            return None

    environment = {**os.environ, **settings.to_environment()}
    with subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment) as server:
        try:
            assert eventually(lambda: asked("/streams") is not None, expected=True, limit_s=120)
            assert asked("/streams").status_code == 401
            assert asked("/stats/tea/", **KNOWN).json()["state"] == "not ready"
            assert 'recount_source_up{source="kafka"} 0.0' in asked("/metrics", **KNOWN).text
            server.send_signal(signal.SIGTERM)
            # as a shell tells that a signal ended it, once all answers had been given
            assert server.wait(60) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        finally:
            server.kill()
