"""The plugin's pages: the streams, each of them, what Great Expectations found, and the reports folder.

Every route needs a user whom Airflow knows and who may see plugins. The pages are rendered by ``recount.pages`` and run
no script; the reports folder is served through these routes only. A path that leads out of the folder does not exist.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import Depends, FastAPI, Form, HTTPException, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.base import RequestResponseEndpoint

from recount.airflow.deployed import Deployment, deployment
from recount.airflow.drivers import log_of
from recount.airflow.health import health_of
from recount.airflow.links import audit_dag, domain_of, night_dag, stream_dag
from recount.airflow.page_orders import AirflowRuns, DagState, Order, buttons, dags_of, is_token_of, token_for
from recount.declare.registry import Declarations, Stream, is_audited
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.pages import stream_lines
from recount.pages.issued import MOST, certificates, first_misses, outcome, outcomes
from recount.pages.rendering import TITLES, panel, rendered
from recount.pages.stream_detail import log_tail, tables_say
from recount.pages.stream_lines import BrokersSay, BrokerWatch, NextAudit, StreamLine, left_behind
from recount.runtime.errors import RecountError
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.places import Tables

_STATIC = Path(stream_lines.__file__).parent / "static"
_STATIC_FILES = frozenset({"pages.css", "icon.svg"})
_EVERYWHERE = "default-src 'none'; base-uri 'none'; frame-ancestors 'self'"
_OWN = f"{_EVERYWHERE}; style-src 'self'; img-src 'self'; form-action 'self'"
_REPORTS = f"{_EVERYWHERE}; style-src 'unsafe-inline'; img-src data:; form-action 'none'"
"""Certificates are pages of one file."""
Watch = Callable[[], BrokersSay]
_ALONE = "a driver of its own"


def reader(user: GetUserDep) -> None:
    if not get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=user):
        raise HTTPException(403, "this user may not see plugins")


def settings_here() -> Settings:
    return Settings.from_environment(os.environ)


Here = Annotated[Settings, Depends(settings_here)]


def deployed_here(settings: Here) -> Deployment:
    """Return what is declared at this moment, whatever it was when the api-server started."""
    return deployment(settings.topologies)


Deployed = Annotated[Deployment, Depends(deployed_here)]


@lru_cache(maxsize=2)
def _watch(settings: Settings, topics: tuple[tuple[str, tuple[str, ...]], ...]) -> BrokerWatch:
    return BrokerWatch(Connection.of(settings), dict(topics))


def brokers(settings: Here, deployed: Deployed) -> Watch:
    """One watch for the whole process, that keeps its topics open; another one where other streams are declared."""
    return _watch(settings, tuple((name, tuple(own)) for name, own in deployed.declarations.read_topics.items()))


def airflow_runs() -> AirflowRuns:
    return AirflowRuns()


Brokers = Annotated[Watch, Depends(brokers)]
OfAirflow = Annotated[AirflowRuns, Depends(airflow_runs)]
Now = Annotated[int, Depends(clock_ms)]
app = FastAPI(title="Recount", dependencies=[Depends(reader)], docs_url=None, redoc_url=None, openapi_url=None)


@app.middleware("http")
async def without_scripts(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Add headers by which nothing that slips from a topic or record into a page is ever run, or loads anything."""
    answer = await call_next(request)
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Referrer-Policy"] = "same-origin"
    is_report = request.url.path.removeprefix(_base(request)).startswith("/reports/")
    answer.headers["Content-Security-Policy"] = _REPORTS if is_report else _OWN
    return answer


@app.exception_handler(RecountError)
async def of_error(request: Request, error: RecountError) -> Response:
    """Settings or declarations that are wrong are said on the page, and are no error of the server."""
    return _message(request, 503, "This cannot be shown now", str(error))


@app.exception_handler(AnyHTTPException)
async def of_http(request: Request, error: AnyHTTPException) -> Response:
    """A page that says what is wrong, with the status of the error."""
    answer = _message(request, error.status_code, {404: "Not found"}.get(error.status_code, "Refused"), error.detail)
    answer.headers.update(error.headers or {})
    return answer


@app.get("/", response_class=HTMLResponse)
def overview(
    request: Request,
    settings: Here,
    deployed: Deployed,
    watch: Brokers,
    runs: OfAirflow,
    now: Now,
    text: str = "",
    state: str = "",
    by: str = "",
) -> str:
    """All declared streams, those that match ``text`` and ``state``; a filter that there is not shows all."""
    declarations = deployed.declarations
    audits = {dag for name in declarations.audited for dag in (audit_dag(name), nightly_dag(declarations, name))}
    scene = Scene(settings=settings, declarations=declarations, say=watch(), dags=runs.states(audits), now_ms=now)
    lines = [scene.line(name, stream_lines.NIGHTS) for name in declarations.streams]
    wanted = stream_lines.Wanted.of(text, state, by)
    return _page(
        request,
        "overview.html",
        here="overview",
        now_ms=scene.now_ms,
        problems=[*_not_deployed(deployed), *scene.say.problems],
        totals=stream_lines.Totals.of(lines),
        wanted=wanted,
        states=stream_lines.STATES,
        sections=stream_lines.sections(lines, wanted),
        nights=stream_lines.NIGHTS,
        left=left_behind(settings.reports, scene.say.statuses, declarations, now),
    )


@app.get("/streams/{name}", response_class=HTMLResponse)
def stream_page(
    name: str,
    request: Request,
    settings: Here,
    deployed: Deployed,
    watch: Brokers,
    runs: OfAirflow,
    now: Now,
    user: GetUserDep,
    started: str = "",
) -> str:
    """One stream; ``started`` names the order that was just given."""
    declarations = deployed.declarations
    stream = _stream(declarations, name)
    say = tables_say(Tables(settings.data), stream)
    states = runs.states({*dags_of(stream), nightly_dag(declarations, name)})
    scene = Scene(settings=settings, declarations=declarations, say=watch(), dags=states, now_ms=now)
    line, group = scene.line(name, MOST), declarations.group_of(name)
    found = buttons(stream, states, runs, user)
    told = next((f"{button.dag} was started: {button.does}." for button in found if button.order == started), None)
    waiting = say.results_wait(stream.health.frontier_age_ms)
    return _page(
        request,
        "stream.html",
        here="stream",
        now_ms=scene.now_ms,
        line=line,
        told=told,
        problems=[*_not_deployed(deployed), *scene.say.problems, *filter(None, [say.problem, waiting])],
        buttons=found,
        token=token_for(user),
        stream_dag=stream_dag(name),
        tables=say,
        drawing=say.drawing(stream),
        partitions=say.partitions(line.lag),
        charts=line.charts,
        history_said=scene.say.history_said,
        misses=first_misses(settings.reports, line.newest) if line.newest else [],
        tried=None if line.is_renewed else next(iter(outcomes(settings.reports, name)), None),
        panels=[one for kind in TITLES if not line.is_renewed and (one := panel(settings.reports, kind, name))],
        in_group=group is not None,
        log=log_tail(log_of(settings.logs, group.name if group else name)),
    )


@app.post("/streams/{name}/{order}")
def give_order(
    name: str,
    order: Order,
    request: Request,
    deployed: Deployed,
    runs: OfAirflow,
    user: GetUserDep,
    token: Annotated[str, Form()] = "",
) -> RedirectResponse:
    """Start the DAG run of a button, with the rights of ``user``; refused unless a page of ours was asked before."""
    stream = _stream(deployed.declarations, name)
    if not is_token_of(user, token):
        raise HTTPException(
            403, "This order does not come from the page of the stream, or the page is older than 12 h."
        )
    button = next(
        (one for one in buttons(stream, runs.states(dags_of(stream)), runs, user) if one.order == order), None
    )
    if button is None:
        raise HTTPException(404, f"{name} is an archive, or has actions only: there is no {order} of it.")
    if not runs.may_start(button.dag, user):
        raise HTTPException(403, f"You may not start runs of {button.dag}.")
    if button.objection:
        raise HTTPException(409, f"Nothing was started: {button.objection}.")
    runs.start(button.dag, button.conf, user)
    return RedirectResponse(f"{_base(request)}/streams/{name}?started={order}", status_code=303)


@app.get("/data-docs", response_class=HTMLResponse)
def data_docs(request: Request, settings: Here, deployed: Deployed, watch: Brokers, now: Now) -> str:
    """Show what Great Expectations found by stream in the newest audit; nothing of a version that a reset ended."""
    statuses = watch().statuses
    names = [
        name
        for name in sorted(deployed.declarations.topologies)
        if not stream_lines.is_renewed(certificates(settings.reports, name, 1), statuses.get(name))
    ]
    newest = [
        (name, audit, outcome(settings.reports, name, audit))
        for name in names
        for audit in outcomes(settings.reports, name)[:1]
    ]
    return _page(request, "expectations.html", here="expectations", now_ms=now, stream="", newest=newest)


@app.get("/expectations/{name}/{audit}", response_class=HTMLResponse)
def expectations(name: str, audit: str, request: Request, settings: Here, deployed: Deployed, now: Now) -> str:
    """Show what Great Expectations found in one audit."""
    _stream(deployed.declarations, name)
    if audit not in outcomes(settings.reports, name):
        raise HTTPException(404, "The expectations of this audit were not tried, or are kept no longer.")
    found = outcome(settings.reports, name, audit)
    return _page(request, "expectations.html", here="expectations", now_ms=now, stream=name, audit=audit, found=found)


@app.get("/static/{name}")
def static(name: str) -> FileResponse:
    file = _STATIC / name
    if name not in _STATIC_FILES:
        raise HTTPException(404, "There is no such file.")
    return FileResponse(file, headers={"Cache-Control": "private, max-age=300"})


@app.get("/reports/{path:path}")
def report(path: str, settings: Here) -> FileResponse:
    """A file below the reports folder, but for the Data Docs: they are programs and load others from elsewhere."""
    root = Path(settings.reports).resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root) or not file.is_file():
        raise HTTPException(404, "There is no such report.")
    if file.is_relative_to(root / "gx"):
        raise HTTPException(
            404, f"These pages load programs from elsewhere. Open {file} on its machine, or see Expectations."
        )
    return FileResponse(file)


def _stream(declarations: Declarations, name: str) -> Stream:
    if name not in declarations.streams:
        raise HTTPException(404, "There is no such stream.")
    return declarations.streams[name]


def _not_deployed(deployed: Deployment) -> list[str]:
    """Return what is said above a page of former declarations."""
    if deployed.problem is None:
        return []
    return [f"The deployed declarations cannot be read, and these are the former ones: {deployed.problem}"]


def _base(request: Request) -> str:
    """Where these pages are, as the browser sees it: below Airflow's own address."""
    return str(request.scope.get("root_path", ""))


def _page(request: Request, template: str, **values: Any) -> str:
    return rendered(template, base=_base(request), **values)


def _message(request: Request, status: int, title: str, said: object) -> Response:
    page = _page(request, "message.html", here="", now_ms=clock_ms(), title=title, said=said)
    return HTMLResponse(page, status_code=status)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything a page is made of, as of ``now_ms``."""

    settings: Settings
    declarations: Declarations
    say: BrokersSay
    dags: Mapping[str, DagState]
    now_ms: int

    def line(self, name: str, most_certificates: int) -> StreamLine:
        """The stream ``name`` with its newest certificates."""
        stream, group = self.declarations.streams[name], self.declarations.group_of(name)
        status = self.say.statuses.get(name)
        return StreamLine(
            name=name,
            is_archive=not isinstance(stream, Topology),
            is_audited=is_audited(stream),
            domain=domain_of(self.declarations, name),
            group=group.name if group else _ALONE,
            heard=self.say.heard,
            status=status,
            health=None if status is None else health_of(status, stream.health, self.now_ms),
            samples=self.say.samples.get(name, ()),
            lag=self.say.lags.get(name),
            certificates=certificates(self.settings.reports, name, most_certificates),
            next_audit=self._next_audit(stream),
        )

    def _next_audit(self, stream: Stream) -> NextAudit | None:
        """Return the next audit by the DAG of the stream's group, which leaves out a stream whose own DAG is paused."""
        dag = nightly_dag(self.declarations, stream.name)
        if dag not in self.dags:
            return None
        paused = next(
            (one for one in (dag, audit_dag(stream.name)) if one in self.dags and self.dags[one].paused), None
        )
        return NextAudit(dag=paused or dag, at_ms=self.dags[dag].next_ms, paused=paused is not None)


def nightly_dag(declarations: Declarations, stream: str) -> str:
    """The DAG that audits ``stream`` every night."""
    group = declarations.group_of(stream)
    return night_dag(group.name) if group else audit_dag(stream)
