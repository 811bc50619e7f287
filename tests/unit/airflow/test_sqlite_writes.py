"""A server of its own, with handlers that stay at work: who waits for whom, and who does not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn
from fastapi import Body, FastAPI

from recount.airflow import sqlite_writes
from recount.airflow.sqlite_writes import OneWriteAtATime
from recount.profile.daemon import LOOPBACK


class Server:
    """``write`` answers after a tenth of a second, and counts how many are at work with it."""

    def __init__(self) -> None:
        self.listening = socket.create_server((LOOPBACK, 0))
        self.address = self.listening.getsockname()
        self.client = httpx.Client(base_url=f"http://{LOOPBACK}:{self.address[1]}", timeout=30)
        self.at_work = self.most = 0
        self.app = FastAPI()
        self.app.add_middleware(OneWriteAtATime)
        self.app.post("/write")(self.write)
        self.app.post("/nested")(lambda: self.client.post("/write", json={"text": "nested"}).json())
        self.app.get("/read")(lambda: self.at_work)
        self.served = uvicorn.Server(uvicorn.Config(self.app, log_level="warning"))

    def write(self, text: str = Body(embed=True)) -> str:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        time.sleep(0.1)
        self.at_work -= 1
        return text


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.served.run, args=([server.listening],))
    thread.start()
    yield server
    server.served.should_exit = True
    thread.join()
    server.listening.close()


def test_writes_follow_one_another_and_keep_their_bodies_and_who_reads_does_not_wait(server: Server) -> None:
    texts = ["a" * 500_000, "b", "c", "d"]
    with ThreadPoolExecutor() as users:
        answers = list(users.map(lambda text: server.client.post("/write", json={"text": text}).json(), texts))
    assert answers == texts
    assert server.most == 1
    with ThreadPoolExecutor() as users:
        written = users.submit(server.client.post, "/write", json={"text": "a"})
        while server.client.get("/read").json() == 0:
            assert not written.done()
        assert written.result().json() == "a"


def test_half_a_request_keeps_nobody_waiting(server: Server) -> None:
    with socket.create_connection(server.address) as half:
        half.sendall(b"POST /write HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert server.client.get("/read").status_code == 200  # it has been taken by now
        assert server.client.post("/write", json={"text": "a"}, timeout=5).json() == "a"


def test_a_request_that_makes_another_is_answered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writes, "_PATIENCE_S", 0.2)
    assert server.client.post("/nested").json() == "nested"
    assert server.client.post("/write", json={"text": "a"}).json() == "a"
