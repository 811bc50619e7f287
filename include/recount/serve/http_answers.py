"""Answers over HTTP: for every sink of every declared stream its rows, the current row of a key, and counts.

Every path is in /openapi.json, with the declared types of keys and fields. Nothing can be written.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from recount.declare.columns import BACKFILL_NUMBER, BATCH, GENERATION, ORIGIN, RESULT_TIME, REVISION
from recount.declare.registry import Declarations
from recount.declare.schema import FieldType
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.settings import Settings
from recount.runtime.times import A_TIME
from recount.serve.answer import AUDITED, ROWS, Audits, Moment, answer, reading
from recount.serve.asked_sink import AskedSink, BadQuestion, asked_sink
from recount.serve.exposition import Ask, BrokerReader, Exposition
from recount.serve.listening import ERROR_SCHEMA, RequireToken, of_error, of_http
from recount.serve.question import DEFAULT_ROWS, MOST_ROWS, Question
from recount.tables.places import Tables

Schema = dict[str, Any]
_TYPES: dict[str, Schema] = {
    "string": {"type": "string"},
    "long": {"type": "integer", "format": "int64"},
    "double": {"type": "number"},
    "decimal": {"type": "number"},
    "boolean": {"type": "boolean"},
}
_INTEGER: Schema = {"type": ["integer", "null"]}
_OF_BATCH = ("generation", "batch", "recorded_ms", "age_ms", "frontier_ms")
_OF_AUDIT = ("finished_ms", "generation", "batch", "frontier_ms")
_DESCRIPTIONS = {
    "window": f"Only windows with this time in them: {A_TIME}.",
    "at": f"As of a time in the past: {A_TIME}. Now where it is left out.",
    "limit": f"At most so many rows, the newest; {DEFAULT_ROWS} where it is left out.",
    "by": "The field by whose values rows are counted.",
}
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_ALIAS = re.compile(r"([a-z0-9-]+)=([a-z0-9-]+)(?:/([a-zA-Z0-9._-]+))?")
_TAKEN = ("streams", "metrics")
Texts = Mapping[str, str]


def parameters(sink: AskedSink, names: Iterable[str], *, key_in: str = "query") -> list[Schema]:
    schemas = {
        "key": _TYPES[sink.fields[sink.key].kind],
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS},
        "by": {"type": "string", "enum": [name for name, kind in sink.fields.items() if kind.kind != "list"]},
    }
    return [
        {
            "name": name,
            "in": key_in if name == "key" else "query",
            "required": name == "by" or (name == "key" and key_in == "path"),
            "description": _DESCRIPTIONS.get(name, f"The {sink.key} of the rows."),
            "schema": schemas.get(name, {"type": "string"}),
        }
        for name in names
    ]


def responses(sink: AskedSink, *, is_count: bool = False) -> dict[int | str, Schema]:
    row = {"type": "object", "properties": {ROWS: {"type": "integer"}} if is_count else _columns(sink)}
    answer = {
        "type": "object",
        "properties": {
            "stream": {"const": sink.topology.name},
            "sink": {"const": sink.name},
            "state": {"enum": ["ready", "not ready"]},
            "reason": {"type": ["string", "null"], "description": "Why it is not ready."},
            "asked_ms": {"type": "integer"},
            "as_of": _object(**dict.fromkeys(_OF_BATCH, _INTEGER)),
            "audit": _object(
                audited={"type": "boolean"},
                audit={"type": "string"},
                outcome={"enum": ["match", "violation"]},
                **dict.fromkeys(_OF_AUDIT, _INTEGER),
            ),
            "kept_since_ms": _INTEGER,
            "total": {"type": "integer"},
            "rows": {"type": "array", "items": row},
        },
    }
    refused = {
        "400": "A question that means nothing.",
        "401": "No token, or another one.",
        "409": "What this stream has written cannot be read by this release.",
        "503": "The tables could not be read now.",
    }
    return {
        200: _json_body("Rows, and the batch that they are from; or that there is none yet.", answer),
        **{status: _json_body(text, ERROR_SCHEMA) for status, text in refused.items()},
    }


def _columns(sink: AskedSink) -> Schema:
    fields = {name: _schema_of(kind) for name, kind in sink.fields.items()}
    whole = (RESULT_TIME, REVISION, GENERATION, BATCH, BACKFILL_NUMBER)
    origin = {ORIGIN: {"type": ["string", "null"]}} if sink.identity.has_origin else {}
    return {**fields, **dict.fromkeys(whole, _INTEGER), **origin, AUDITED: {"type": "boolean"}}


def _schema_of(kind: FieldType) -> Schema:
    """A field, which can be null."""
    if kind.element is not None:
        return {"type": ["array", "null"], "items": _TYPES[kind.element.kind]}
    return {**_TYPES[kind.kind], "type": [_TYPES[kind.kind]["type"], "null"]}


def _object(**properties: Schema) -> Schema:
    return {"type": ["object", "null"], "properties": properties}


def _json_body(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


@dataclass(frozen=True, kw_only=True)
class Server:
    """Serves the declared streams with the tables of an installation.

    ``now_ms`` is the clock, ``ask`` who asks the brokers for metrics; None: the settings say which.
    """

    settings: Settings
    declarations: Declarations
    now_ms: Callable[[], int]
    ask: Ask | None = None

    def app(self, token: str, aliases: Sequence[str] = ()) -> ASGIApp:
        """The application, for those who have the ``token``; ``aliases`` are texts NAME=STREAM or NAME=STREAM/SINK."""
        app = FastAPI(
            title="Recount",
            description="What the streams know, now and at past times.",
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            # by itself FastAPI takes /streams/a-b/c and /streams/a/b-c for one operation
            generate_unique_id_function=lambda route: f"{route.name}{route.path_format}",
            dependencies=[Security(HTTPBearer(auto_error=False))],
        )
        app.add_exception_handler(RecountError, of_error)
        app.add_exception_handler(HTTPException, of_http)
        self._add_index(app)
        self._add_metrics(app)
        for sink in self._sinks():
            self._add_sink(app, sink)
        known: dict[str, str] = {}
        for alias in aliases:
            self._add_alias(app, alias, known)
        return RequireToken(app, token)

    def _sinks(self) -> list[AskedSink]:
        """Sinks of which it is known which row replaces which; the index says of the others why not."""
        topologies = self.declarations.topologies.values()
        sinks = [AskedSink(topology, written) for topology in topologies for written in topology.written]
        return [sink for sink in sinks if sink.objection is None]

    def _add_index(self, app: FastAPI) -> None:
        tables = Tables(self.settings.data)

        def of_all(request: Request) -> Response:
            _texts(request, ())
            topologies = self.declarations.topologies.values()
            return _json({"streams": [_listed(tables, one, self.now_ms()) for one in topologies]})

        def of_one(request: Request) -> Response:
            _texts(request, ())
            name = request.path_params["stream"]
            if name not in self.declarations.topologies:
                raise HTTPException(404)
            return _json(_listed(tables, self.declarations.topologies[name], self.now_ms()))

        told = {"parameters": [{"name": "stream", "in": "path", "required": True, "schema": {"type": "string"}}]}
        app.get("/streams", summary="All streams", response_model=None)(of_all)
        app.get("/streams/{stream}", summary="A stream and its sinks", response_model=None, openapi_extra=told)(of_one)

    def _add_metrics(self, app: FastAPI) -> None:
        exposition = Exposition(
            tables=Tables(self.settings.data),
            streams=list(self.declarations.streams.values()),
            ask=self.ask or BrokerReader(Connection.of(self.settings), self.declarations.read_topics),
        )

        def metrics(request: Request) -> Response:
            _texts(request, ())
            return Response(exposition.rendered(), headers={**_HEADERS, "Content-Type": CONTENT_TYPE_LATEST})

        told: dict[int | str, Any] = {200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}}
        app.get("/metrics", summary="Metrics of all streams", response_model=None, responses=told)(metrics)

    def _add_sink(self, app: FastAPI, sink: AskedSink) -> None:
        path = f"/streams/{sink.topology.name}/{sink.name}"
        names = ["key", *(["window"] if sink.identity.has_bounds else []), "at", "limit"]

        def rows(request: Request) -> Response:
            return self._answer(sink, _texts(request, names))

        def current(request: Request) -> Response:
            return self._current(sink, request)

        def counts(request: Request) -> Response:
            texts = dict(_texts(request, ("by", "at", "limit")))
            by = texts.pop("by", None)
            if by is None:
                raise BadQuestion.of("count-by-what", fields=", ".join(sink.fields))
            return self._answer(sink, texts, count_by=by)

        self._add(app, path, rows, f"Rows of {sink.name}, the newest first", sink, parameters(sink, names))
        told = parameters(sink, ("key", "at"), key_in="path")
        self._add(app, path + "/current/{key:path}", current, f"The current row of a {sink.key}", sink, told)
        told = parameters(sink, ("by", "at", "limit"))
        self._add(app, f"{path}/counts", counts, "Rows by the values of a field", sink, told, is_count=True)

    def _add_alias(self, app: FastAPI, text: str, known: dict[str, str]) -> None:
        """``/NAME/KEY/``, with or without the last slash, is the current row of the key; ``known`` are those before."""
        found = _ALIAS.fullmatch(text)
        if not found or found[1] in _TAKEN:
            raise Terminal.of("no-such-route", given=text, taken=", ".join(_TAKEN))
        before = known.setdefault(found[1], text)
        if before != text:
            raise Terminal.of("two-routes-of-one-name", given=f"{before} and {text}")
        sink = asked_sink(self.declarations.topology(found[2]), found[3])

        def current(request: Request) -> Response:
            return self._current(sink, request)

        told = parameters(sink, ("key", "at"), key_in="path")
        path, summary = f"/{found[1]}/{{key:path}}", f"The current row of a {sink.key} in {sink.name}"
        self._add(app, f"{path}/", current, summary, sink, told)
        app.get(path, include_in_schema=False, response_model=None)(current)

    def _add(
        self,
        app: FastAPI,
        path: str,
        endpoint: Callable[[Request], Response],
        summary: str,
        sink: AskedSink,
        told: list[dict[str, Any]],
        *,
        is_count: bool = False,
    ) -> None:
        app.get(
            path,
            summary=summary,
            tags=[sink.topology.name],
            response_model=None,
            responses=responses(sink, is_count=is_count),
            openapi_extra={"parameters": told},
        )(endpoint)

    def _current(self, sink: AskedSink, request: Request) -> Response:
        texts = dict(_texts(request, ("at",)))
        return self._answer(sink, {**texts, "key": request.path_params["key"], "limit": "1"})

    def _answer(self, sink: AskedSink, texts: Texts, count_by: str | None = None) -> Response:
        now_ms = self.now_ms()
        question = Question.of(sink, now_ms=now_ms, count_by=count_by, **texts)
        found = answer(Tables(self.settings.data), question, now_ms)
        return Response(found.to_json(), media_type="application/json", headers=_HEADERS)


def _texts(request: Request, known: Collection[str]) -> Texts:
    """The query; a parameter that is not ``known`` is refused, for the answer would be to another question."""
    given = request.query_params.multi_items()
    names = [name for name, _ in given]
    if len(set(names)) < len(names) or not set(names) <= set(known):
        raise BadQuestion.of("parameters-unknown", given=", ".join(names)[:200], known=", ".join(known) or "none")
    return dict(given)


def _json(document: Mapping[str, Any]) -> Response:
    return Response(json.dumps(document, ensure_ascii=False), media_type="application/json", headers=_HEADERS)


def _listed(tables: Tables, topology: Topology, now_ms: int) -> Mapping[str, Any]:
    """``topology`` over HTTP, with its newest batch, or why it has none, and its newest audit."""
    with reading(topology.name):
        found = Moment.of(tables, topology.name, None, now_ms)
        moment = None if isinstance(found, str) else found
        judged = Audits.of(tables, topology).judged_to(moment.newest) if moment else None
    return {
        "stream": topology.name,
        "state": "ready" if moment else "not ready",
        "reason": found if isinstance(found, str) else None,
        "as_of": moment and moment.document,
        "audit": judged.document(moment) if judged and moment else None,
        "sinks": [_of(AskedSink(topology, written)) for written in topology.written],
    }


def _of(sink: AskedSink) -> Mapping[str, Any]:
    objection = sink.objection
    return {
        "sink": sink.name,
        "path": None if objection else f"/streams/{sink.topology.name}/{sink.name}",
        "objection": objection and str(objection),
        "key": sink.key,
        "fields": {name: str(kind) for name, kind in sink.fields.items()},
    }
