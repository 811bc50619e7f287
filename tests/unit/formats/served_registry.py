"""A schema registry over HTTP, as far as sinks need one: subjects, ids, and a rule that refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import polars as pl

from recount.declare.columns import IS_NULL, ORIGIN, RESULT_TIME, REVISION
from recount.declare.topology import Topology, Written
from recount.engine.exchange.graph_computation import GraphComputation


class ServedRegistry:
    """Its ``schemas`` have the ids 1, 2, …; ``refuses`` are subjects that take nothing more, ``asked`` the requests."""

    def __init__(self, schemas: Iterable[str]) -> None:
        self.schemas = list(schemas)
        self.subjects: dict[str, list[str]] = {}
        self.refuses: dict[str, int] = {}
        self.asked: list[str] = []
        self.address = ""

    def answer(self, method: str, path: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """To a request of Confluent's client, or by plain HTTP."""
        path = path.partition("?")[0]
        self.asked.append(f"{method} {path}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            if number > len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, _said(self.schemas[number - 1])
        subject = parts[1]
        if parts[2:] == ["versions", "latest"] and subject in self.subjects:
            given = {"schema": self.subjects[subject][-1]}
        if parts[2:] == ["versions"]:
            if subject in self.refuses:
                status = self.refuses[subject]
                return status, {"error_code": status, "message": "it is not compatible"}
            if given["schema"] not in self.schemas:
                self.schemas.append(given["schema"])
            self.subjects.setdefault(subject, []).append(given["schema"])
        if given.get("schema") not in self.subjects.get(subject, []):
            return 404, {"error_code": 40401 if subject not in self.subjects else 40403, "message": "not found"}
        number = self.schemas.index(given["schema"]) + 1
        return 200, {"id": number, "subject": subject, "version": 1, **_said(given["schema"])}


def emitted(written: Written, rows: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """``rows`` with all fields of the sink and the columns of ours, and the same as a stream hands them on."""
    own = {RESULT_TIME: 5, REVISION: 0, IS_NULL: False, ORIGIN: None}
    schema = GraphComputation(Topology(name="records", sinks=[written])).output_schema(written)  # type: ignore[list-item]
    told = [{**dict.fromkeys(written.fields), **own, **row} for row in rows]
    return told, pl.DataFrame([{name: row[name] for name in schema} for row in told], schema=schema)


def _said(schema: str) -> dict[str, Any]:
    return {"schema": schema} | ({} if schema[:1] in '{["' else {"schemaType": "PROTOBUF"})


@contextmanager
def served(schemas: Iterable[str] = ()) -> Iterator[ServedRegistry]:
    """One with ``schemas`` on the loopback address, until the end of the block."""
    registry = ServedRegistry(schemas)
    with answering(registry.answer) as registry.address:
        yield registry


@contextmanager
def answering(answer: Callable[[str, str, dict[str, Any]], tuple[int, Any]]) -> Iterator[str]:
    """The address where a registry gives each method, path and document the status and the document of ``answer``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, given: dict[str, Any]) -> None:
            status, said = answer(self.command, self.path, given)
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
