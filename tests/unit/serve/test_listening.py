"""How often an address may ask ``recount serve``: more is refused for as long as is said, and others are answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp
from tests.unit.serve.listened import listened

from recount.runtime.errors import Terminal
from recount.serve.listening import LimitRate, RequireToken, rate_of

KNOWN = {"Authorization": "Bearer a-token-of-the-tests"}


@pytest.fixture
def limited() -> ASGIApp:
    """Three requests in two seconds."""
    return LimitRate(RequireToken(PlainTextResponse("answered"), "a-token-of-the-tests"), rate_of("3/2 second"))


@pytest.fixture
def client(limited: ASGIApp) -> Iterator[httpx.Client]:
    with listened(limited) as (host, port), httpx.Client(base_url=f"http://{host}:{port}") as client:
        yield client


def test_what_is_asked_too_often_is_refused_until_the_time_that_is_said(client: httpx.Client) -> None:
    assert [client.get("/", headers=KNOWN).status_code for _ in range(3)] == [200, 200, 200]
    refused = client.get("/", headers=KNOWN)
    assert refused.status_code == 429 and refused.json()["expected"] == "at most 3 per 2 second"
    time.sleep(int(refused.headers["Retry-After"]))
    assert client.get("/", headers=KNOWN).status_code == 200


def test_guessing_tokens_is_limited_too(client: httpx.Client) -> None:
    assert [client.get("/").status_code for _ in range(4)] == [401, 401, 401, 429]


def test_an_address_is_answered_while_another_asks_too_often(limited: ASGIApp) -> None:
    async def statuses(address: str, times: int) -> list[int]:
        transport = httpx.ASGITransport(limited, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://recount") as client:
            return [(await client.get("/", headers=KNOWN)).status_code for _ in range(times)]

    assert asyncio.run(statuses("10.0.0.1", 4)) == [200, 200, 200, 429]
    assert asyncio.run(statuses("10.0.0.2", 1)) == [200]


@pytest.mark.parametrize("text", ["", "often", "50", "0/second", "-1/second", "5/fortnight"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Terminal, match=r"--rate 50/second"):
        rate_of(text)
