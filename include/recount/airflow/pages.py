"""The plugin's pages: streams with their status, audits with their certificates, Data Docs.

Every route needs a user whom Airflow knows and who may see plugins; the reports folder is served through these routes
only. A path that leads out of the folder does not exist.
"""

from __future__ import annotations

import os
import time
from html import escape
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.middleware.base import RequestResponseEndpoint

from recount.airflow.drivers import log_of
from recount.airflow.health import StreamHealth, health_of
from recount.airflow.naming import PAGES, report_page, stream_page
from recount.core.durations import readable
from recount.core.registry import Stream, declared
from recount.core.settings import Settings
from recount.kafka.connection import Connection
from recount.kafka.status import StatusBoard, StreamStatus

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{text-align:left;padding:.4rem .7rem;
border-bottom:1px solid #ddd}th{font-weight:600;background:#f6f6f6}pre{background:#f6f6f6;padding:1rem;overflow:auto}
.ok{color:#176b2c}.degraded{color:#8a5a00}.failed{color:#a11}.quiet{color:#666}
"""
_DATA_DOCS = "gx/uncommitted/data_docs/local_site/index.html"
_LOG_TAIL_BYTES = 20_000
_NO_SCRIPT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""For every page but the Data Docs, which are programs of Great Expectations."""


def _reader(user: GetUserDep) -> None:
    if not get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=user):
        raise HTTPException(403, "this user may not see plugins")


def _settings() -> Settings:
    return Settings.from_environment(os.environ)


Here = Annotated[Settings, Depends(_settings)]
app = FastAPI(title="Recount", dependencies=[Depends(_reader)], docs_url=None, redoc_url=None, openapi_url=None)


@app.middleware("http")
async def without_scripts(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """What a page shows comes from topics and records: whatever slips through is never run."""
    answer = await call_next(request)
    answer.headers["X-Content-Type-Options"] = "nosniff"
    if "/reports/gx/" not in request.url.path:
        answer.headers["Content-Security-Policy"] = _NO_SCRIPT
    return answer


@app.get("/", response_class=HTMLResponse)
def overview(settings: Here) -> str:
    """All declared streams and the newest certificates."""
    board = StatusBoard(Connection.of(settings))
    try:
        statuses = board.latest()
    finally:
        board.close()
    streams = declared(settings.topologies).streams
    rows = "".join(overview_row(name, stream, statuses.get(name)) for name, stream in sorted(streams.items()))
    columns = ("stream", "state", "batch", "lag", "records/s", "records", "late", "dead letters", "health")
    heads = "".join(f"<th>{column}</th>" for column in columns)
    return _page("Recount", f"<table><tr>{heads}</tr>{rows}</table>{_certificates(settings)}")


@app.get("/streams/{name}", response_class=HTMLResponse)
def stream_status(name: str, settings: Here) -> str:
    """The last status of one stream, its certificates and the end of its driver's log."""
    declarations = declared(settings.topologies)
    if name not in declarations.streams:
        raise HTTPException(404, "no such stream")
    group = declarations.group_of(name)
    board = StatusBoard(Connection.of(settings))
    try:
        status = board.of(name)
    finally:
        board.close()
    said = status.to_json().decode() if status else "no driver has spoken yet"
    log = _tail(log_of(settings.logs, group.name if group else name))
    title = f"Log of the driver of group {group.name}" if group else "Driver log"
    body = f"<pre>{escape(said.replace(',', ',' + chr(10)))}</pre><h2>{title}</h2><pre>{escape(log)}</pre>"
    return _page(name, _certificates(settings, name) + body)


@app.get("/data-docs")
def data_docs(settings: Here) -> RedirectResponse:
    """The start page of the Data Docs."""
    if not (Path(settings.reports) / _DATA_DOCS).exists():
        raise HTTPException(404, "no Data Docs yet: they are written by the first audit")
    return RedirectResponse(report_page(_DATA_DOCS))


@app.get("/reports/{path:path}")
def report(path: str, settings: Here) -> FileResponse:
    """A file below the reports folder."""
    root = Path(settings.reports).resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root) or not file.is_file():
        raise HTTPException(404, "no such report")
    return FileResponse(file)


def overview_row(name: str, stream: Stream, status: StreamStatus | None) -> str:
    """One line of the overview; every text in it comes from the status topic, to which others may write."""
    link = f'<a href="{escape(stream_page(name))}">{escape(name)}</a>'
    if status is None:
        return f'<tr><td>{link}</td><td class="quiet" colspan="8">never started</td></tr>'
    now_ms = time.time_ns() // 1_000_000
    age = readable(max(0, now_ms - status.heartbeat_ms) // 1_000 * 1_000)
    cells = [
        link,
        f'{escape(status.state)} <span class="quiet">{escape(age)} ago</span>',
        *_numbers(status.batch, status.lag, round(status.records_per_second), status.records_total),
        *_numbers(status.late_records, status.dead_letters),
        _health(health_of(status, stream.health, now_ms)),
    ]
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _numbers(*numbers: int | None) -> list[str]:
    return [escape(str(number)) for number in numbers]


def _health(health: StreamHealth) -> str:
    problems = f": {escape('; '.join(health.problems))}" if health.problems else ""
    return f'<span class="{health.state}">{health.state}{problems}</span>'


def _certificates(settings: Settings, stream: str = "*") -> str:
    """Links to the newest certificates and to the Data Docs."""
    root = Path(settings.reports)
    found = sorted(root.glob(f"certificates/{stream}/*.html"), key=lambda file: file.stat().st_mtime, reverse=True)
    pages = [(report_page(str(file.relative_to(root))), f"{file.parent.name}: {file.stem}") for file in found[:20]]
    links = "".join(f'<li><a href="{escape(quote(page))}">{escape(name)}</a></li>' for page, name in pages)
    docs = f'<p><a href="{PAGES}/data-docs">Data Docs of the expectations</a></p>'
    return f"<h2>Certificates</h2><ul>{links or '<li>none yet</li>'}</ul>{docs}"


def _page(title: str, body: str) -> str:
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><h1>{escape(title)}</h1>{body}</body></html>"


def _tail(log: Path) -> str:
    if not log.exists():
        return "no log on this machine"
    with log.open("rb") as content:
        content.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        return content.read().decode(errors="replace")
